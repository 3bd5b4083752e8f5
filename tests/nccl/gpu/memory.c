// Memory: device memory, which the processor cannot touch where programs have it, and pinned memory of the host.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "gpu.h"

enum { PAGE = 4096 };

// A block is what was allocated: device memory, in the order of addresses, or pinned memory.
struct block {
	char *at;
	size_t size;
	uint64_t id; // no two blocks of a process have the same
	struct block *next;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct block *device, *pinned;
static size_t used;
static uint64_t last_id;
static int store = -1; // the memfd of all device memory

uintptr_t gpu_window, gpu_alias;

static size_t pages(size_t size) {
	return (size + PAGE - 1) / PAGE * PAGE;
}

size_t gpu_memory_used(void) {
	pthread_mutex_lock(&mu);
	size_t n = used;
	pthread_mutex_unlock(&mu);
	return n;
}

// open_window makes both mappings. What is not allocated cannot be touched in either.
static void open_window(void) {
	store = memfd_create("pretend GPU", MFD_CLOEXEC);
	void *window = MAP_FAILED, *alias = MAP_FAILED;
	if (store >= 0 && ftruncate(store, (off_t)GPU_WINDOW) == 0) {
		window = mmap(NULL, GPU_WINDOW, PROT_NONE, MAP_SHARED | MAP_NORESERVE, store, 0);
		alias = mmap(NULL, GPU_WINDOW, PROT_NONE, MAP_SHARED | MAP_NORESERVE, store, 0);
	}
	if (window == MAP_FAILED || alias == MAP_FAILED) gpu_panic("no %zu GiB of addresses for device memory", GPU_WINDOW >> 30);
	gpu_alias = (uintptr_t)alias;
	gpu_window = (uintptr_t)window;
}

// put_in notes a block in its place of a list.
static void put_in(struct block **place, void *at, size_t size) {
	struct block *b = malloc(sizeof *b);
	*b = (struct block){at, size, ++last_id, *place};
	*place = b;
	used += size;
}

// find_room is where a block of device memory goes: the first gap that has a free page behind it. Freed addresses are soon used again.
static struct block **find_room(size_t size, char **at) {
	struct block **place = &device;
	*at = (char *)gpu_window;
	for (; *place && (size_t)((*place)->at - *at) < pages(size) + PAGE; place = &(*place)->next)
		*at = (*place)->at + pages((*place)->size) + PAGE;
	return place;
}

static cudaError_t allocate_device(void **ptr, size_t size) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, open_window);
	pthread_mutex_lock(&mu);
	char *at;
	struct block **place = find_room(size, &at);
	bool room = pages(size) + PAGE <= GPU_WINDOW - ((uintptr_t)at - gpu_window) &&
		(size == 0 || mprotect(gpu_reach(at), pages(size), PROT_READ | PROT_WRITE) == 0);
	if (room) put_in(place, at, size);
	pthread_mutex_unlock(&mu);
	*ptr = room ? at : NULL;
	return room ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t allocate_pinned(void **ptr, size_t size) {
	void *at = mmap(NULL, pages(size + 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED) return cudaErrorMemoryAllocation;
	pthread_mutex_lock(&mu);
	put_in(&pinned, at, size);
	pthread_mutex_unlock(&mu);
	*ptr = at;
	return cudaSuccess;
}

// take_out is the block that begins there, out of its list.
static struct block *take_out(struct block **list, const void *at) {
	while (*list && (*list)->at != at) list = &(*list)->next;
	struct block *b = *list;
	if (b) {
		*list = b->next;
		used -= b->size;
	}
	return b;
}

static void release(void *ptr) {
	if (!ptr) return;
	pthread_mutex_lock(&mu);
	struct block *b = take_out(&device, ptr);
	if (b && b->size) {
		mprotect(gpu_reach(ptr), pages(b->size), PROT_NONE);
		fallocate(store, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)((uintptr_t)ptr - gpu_window), (off_t)pages(b->size));
	}
	if (!b && (b = take_out(&pinned, ptr))) munmap(ptr, pages(b->size + 1));
	pthread_mutex_unlock(&mu);
	if (!b) gpu_panic("memory is freed that was not allocated, at %p", ptr);
	free(b);
}

struct memory memory_find(const void *at) {
	struct memory m = {.kind = MEMORY_OTHER};
	pthread_mutex_lock(&mu);
	for (int k = 0; k < 2 && m.kind == MEMORY_OTHER; k++)
		for (struct block *b = k ? pinned : device; b && m.kind == MEMORY_OTHER; b = b->next)
			if ((uintptr_t)at - (uintptr_t)b->at < b->size) m = (struct memory){k ? MEMORY_PINNED : MEMORY_DEVICE, b->at, b->size, b->id};
	pthread_mutex_unlock(&mu);
	return m;
}

// is_ours says whether the memory is the device's or pinned.
static bool is_ours(const void *ptr) {
	return memory_find(ptr).kind != MEMORY_OTHER;
}

// What tests/fakeverbs asks, in the place of nvidia-peermem.
EXPORT void *fakecuda_alias(const void *at, size_t length);
EXPORT void *fakecuda_alias(const void *at, size_t length) {
	struct memory m = memory_find(at);
	if (m.kind != MEMORY_DEVICE || length > m.size - (size_t)((const char *)at - m.base)) return NULL;
	return gpu_reach(at);
}

int memory_export(const void *at, size_t length) {
	struct memory m = memory_find(at);
	size_t offset = (size_t)((const char *)at - m.base);
	if (m.kind != MEMORY_DEVICE || (uintptr_t)at % PAGE || length == 0 || length % PAGE || length > pages(m.size) - offset) return -1;
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", store);
	int fd = open(path, O_RDWR | O_CLOEXEC); // unlike a duplicate, it has a position of its own
	if (fd >= 0) lseek(fd, (off_t)((uintptr_t)at - gpu_window), SEEK_SET);
	return fd;
}

EXPORT cudaError_t cudaMalloc(void **ptr, size_t size) {
	return allocate_device(ptr, size);
}

EXPORT cudaError_t cudaFree(void *ptr) {
	release(ptr);
	return cudaSuccess;
}

EXPORT cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned flags) {
	(void)flags;
	return allocate_pinned(ptr, size);
}

EXPORT cudaError_t cudaFreeHost(void *ptr) {
	release(ptr);
	return cudaSuccess;
}

EXPORT cudaError_t cudaHostRegister(void *ptr, size_t size, unsigned flags) {
	(void)ptr, (void)size, (void)flags;
	return cudaSuccess;
}

EXPORT cudaError_t cudaHostUnregister(void *ptr) {
	(void)ptr;
	return cudaSuccess;
}

EXPORT cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
	(void)flags;
	*device = host;
	return cudaSuccess;
}

struct attributes {
	int type, device;
	void *device_pointer, *host_pointer;
};

EXPORT cudaError_t cudaPointerGetAttributes(struct attributes *attributes, const void *ptr) {
	enum { UNREGISTERED = 0, HOST = 1, DEVICE = 2 };
	static const int types[] = {[MEMORY_OTHER] = UNREGISTERED, [MEMORY_PINNED] = HOST, [MEMORY_DEVICE] = DEVICE};
	enum memory_kind kind = memory_find(ptr).kind;
	*attributes = (struct attributes){types[kind], 0, (void *)ptr, kind == MEMORY_DEVICE ? NULL : (void *)ptr};
	return cudaSuccess;
}

// A copy takes a source that is not pinned at once, as CUDA does: callers use it again.
struct copy {
	void *to;
	const void *from;
	size_t size;
	char taken[];
};

static void copy(void *data) {
	struct copy *c = data;
	memmove(gpu_reach(c->to), gpu_reach(c->from), c->size);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, cudaStream_t stream) {
	(void)kind;
	size_t taken = is_ours(from) ? 0 : size;
	struct copy *c = malloc(sizeof *c + taken);
	*c = (struct copy){to, from, size};
	if (taken) c->from = memcpy(c->taken, from, size);
	stream_run(stream, copy, c);
	return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind) {
	cudaMemcpyAsync(to, from, size, kind, NULL);
	return cudaStreamSynchronize(NULL);
}

struct fill {
	void *at;
	int value;
	size_t size;
};

static void fill(void *data) {
	struct fill *f = data;
	memset(gpu_reach(f->at), f->value, f->size);
}

EXPORT cudaError_t cudaMemsetAsync(void *at, int value, size_t size, cudaStream_t stream) {
	struct fill *f = malloc(sizeof *f);
	*f = (struct fill){at, value, size};
	stream_run(stream, fill, f);
	return cudaSuccess;
}

EXPORT cudaError_t cudaMemset(void *at, int value, size_t size) {
	cudaMemsetAsync(at, value, size, NULL);
	return cudaStreamSynchronize(NULL);
}

// Pools: memory that is had at once and freed in the stream's turn.

EXPORT cudaError_t cudaMemPoolCreate(void **pool, const void *properties) {
	(void)properties;
	static char only;
	*pool = &only;
	return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolDestroy(void *pool) {
	(void)pool;
	return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolSetAttribute(void *pool, int attr, void *value) {
	(void)pool, (void)attr, (void)value;
	return cudaSuccess;
}

EXPORT cudaError_t cudaMallocFromPoolAsync(void **ptr, size_t size, void *pool, cudaStream_t stream) {
	(void)pool, (void)stream;
	return allocate_device(ptr, size);
}

static void free_in_turn(void *data) {
	void *ptr;
	memcpy(&ptr, data, sizeof ptr);
	release(ptr);
}

EXPORT cudaError_t cudaFreeAsync(void *ptr, cudaStream_t stream) {
	void **data = malloc(sizeof ptr);
	*data = ptr;
	stream_run(stream, free_in_turn, data);
	return cudaSuccess;
}

// Memory of other processes is not reached.

EXPORT cudaError_t cudaIpcGetMemHandle(void *handle, void *ptr) {
	(void)handle, (void)ptr;
	return cudaErrorNotSupported;
}

EXPORT cudaError_t cudaIpcCloseMemHandle(void *ptr) {
	(void)ptr;
	return cudaErrorNotSupported;
}

struct ipc_handle {
	char reserved[64];
};

EXPORT cudaError_t cudaIpcOpenMemHandle(void **ptr, struct ipc_handle handle, unsigned flags) {
	(void)ptr, (void)handle, (void)flags;
	return cudaErrorNotSupported;
}
