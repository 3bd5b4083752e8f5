// Memory: what is called device memory here is the host's.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "gpu.h"

// A block is what was allocated: pages, as CUDA gives them, and one before for this.
struct block {
	size_t size;
	struct block *next, **self; // in the list of all
};
enum { PAGE = 4096 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static size_t used;

size_t gpu_memory_used(void) {
	pthread_mutex_lock(&mu);
	size_t n = used;
	pthread_mutex_unlock(&mu);
	return n;
}

static char *data_of(struct block *b) {
	return (char *)b + PAGE;
}

static cudaError_t allocate(void **ptr, size_t size) {
	struct block *b = mmap(NULL, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b == MAP_FAILED) return cudaErrorMemoryAllocation;
	pthread_mutex_lock(&mu);
	*b = (struct block){size, blocks, &blocks};
	if (blocks) blocks->self = &b->next;
	blocks = b;
	used += size;
	pthread_mutex_unlock(&mu);
	*ptr = data_of(b);
	return cudaSuccess;
}

static void release(void *ptr) {
	if (!ptr) return;
	struct block *b = (struct block *)(void *)((char *)ptr - PAGE);
	pthread_mutex_lock(&mu);
	*b->self = b->next;
	if (b->next) b->next->self = b->self;
	used -= b->size;
	pthread_mutex_unlock(&mu);
	munmap(b, b->size + PAGE);
}

// is_ours says whether the memory is the device's or pinned.
static bool is_ours(const void *ptr) {
	pthread_mutex_lock(&mu);
	struct block *b = blocks;
	while (b && ((const char *)ptr < data_of(b) || (const char *)ptr >= data_of(b) + b->size)) b = b->next;
	pthread_mutex_unlock(&mu);
	return b;
}

EXPORT cudaError_t cudaMalloc(void **ptr, size_t size) {
	return allocate(ptr, size);
}

EXPORT cudaError_t cudaFree(void *ptr) {
	release(ptr);
	return cudaSuccess;
}

EXPORT cudaError_t cudaHostAlloc(void **ptr, size_t size, unsigned flags) {
	(void)flags;
	return allocate(ptr, size);
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
	enum { UNREGISTERED = 0, DEVICE = 2 };
	*attributes = (struct attributes){is_ours(ptr) ? DEVICE : UNREGISTERED, 0, (void *)ptr, (void *)ptr};
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
	memmove(c->to, c->from, c->size);
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
	memset(f->at, f->value, f->size);
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
	return allocate(ptr, size);
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
