#include "memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "log.h"

/* CUDA's driver API (cuda.h), as far as it is used. Every call returns 0 or an error. */
enum { CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1 };

static struct {
	int (*init)(unsigned flags);
	int (*retain)(void **context, int device); /* NULL where the library has no contexts */
	int (*current)(void *context);
	int (*alloc)(uintptr_t *at, size_t size);
	int (*free)(uintptr_t at);
	int (*put)(uintptr_t to, const void *from, size_t size);
	int (*get)(void *to, uintptr_t from, size_t size);
	int (*handle)(void *fd, uintptr_t at, size_t size, int type, unsigned long long flags); /* NULL before CUDA 11.7 */
} cuda;

enum { MAX_BLOCKS = 4096 };

static enum memory_kind kind;
static void *context;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct block { uintptr_t base; size_t size; } blocks[MAX_BLOCKS];
static int nblocks;

static void find(void *library, const char *name, void *function, bool needed)
{
	void *symbol = dlsym(library, name);

	if (!symbol && needed)
		die("libcuda has no %s", name);
	memcpy(function, &symbol, sizeof symbol);
}

static void check(int error, const char *call)
{
	if (error)
		die("%s failed: CUDA error %d", call, error);
}

/* enter makes the device's context that of the calling thread. */
static void enter(void)
{
	static _Thread_local bool entered;

	if (!entered && cuda.current)
		check(cuda.current(context), "cuCtxSetCurrent");
	entered = true;
}

void memory_use(enum memory_kind wanted, const char *libcuda)
{
	void *library;

	kind = wanted;
	if (kind == MEMORY_HOST)
		return;
	library = dlopen(libcuda, RTLD_NOW | RTLD_GLOBAL);
	if (!library)
		die("cannot load CUDA: %s", dlerror());
	find(library, "cuInit", &cuda.init, true);
	find(library, "cuDevicePrimaryCtxRetain", &cuda.retain, false);
	find(library, "cuCtxSetCurrent", &cuda.current, false);
	find(library, "cuMemAlloc_v2", &cuda.alloc, true);
	find(library, "cuMemFree_v2", &cuda.free, true);
	find(library, "cuMemcpyHtoD_v2", &cuda.put, true);
	find(library, "cuMemcpyDtoH_v2", &cuda.get, true);
	find(library, "cuMemGetHandleForAddressRange", &cuda.handle, kind == MEMORY_DMABUF);
	check(cuda.init(0), "cuInit");
	if (cuda.retain)
		check(cuda.retain(&context, 0), "cuDevicePrimaryCtxRetain");
	enter();
}

enum memory_kind memory_kind(void)
{
	return kind;
}

int memory_pointers(const struct net *net)
{
	if (kind == MEMORY_HOST)
		return NCCL_PTR_HOST;
	return NCCL_PTR_HOST | (kind == MEMORY_DMABUF && net->regMrDmaBuf ? NCCL_PTR_DMABUF : NCCL_PTR_CUDA);
}

void *memory_allocate(size_t size)
{
	uintptr_t base = 0;

	enter();
	if (cuda.alloc(&base, size))
		die("no %zu bytes of GPU memory for messages; --max or --comms may be too large", size);
	pthread_rwlock_wrlock(&lock);
	if (nblocks == MAX_BLOCKS)
		die("more than %d blocks of GPU memory", MAX_BLOCKS);
	blocks[nblocks++] = (struct block){base, size};
	pthread_rwlock_unlock(&lock);
	return (void *)base;
}

void memory_free(void *base)
{
	enter();
	pthread_rwlock_wrlock(&lock);
	for (int i = 0; i < nblocks; i++)
		if (blocks[i].base == (uintptr_t)base) {
			blocks[i] = blocks[--nblocks];
			break;
		}
	pthread_rwlock_unlock(&lock);
	check(cuda.free((uintptr_t)base), "cuMemFree");
}

bool memory_is_device(const void *at)
{
	bool found = false;

	if (kind == MEMORY_HOST)
		return false;
	pthread_rwlock_rdlock(&lock);
	for (int i = 0; i < nblocks && !found; i++)
		found = (uintptr_t)at - blocks[i].base < blocks[i].size;
	pthread_rwlock_unlock(&lock);
	return found;
}

void memory_put(void *to, const void *from, size_t size)
{
	if (!memory_is_device(to)) {
		memcpy(to, from, size);
	} else if (size) {
		enter();
		check(cuda.put((uintptr_t)to, from, size), "cuMemcpyHtoD");
	}
}

void memory_get(void *to, const void *from, size_t size)
{
	if (!memory_is_device(from)) {
		memcpy(to, from, size);
	} else if (size) {
		enter();
		check(cuda.get(to, (uintptr_t)from, size), "cuMemcpyDtoH");
	}
}

int memory_dmabuf(const void *data, size_t size, size_t *offset)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = -1;

	*offset = (uintptr_t)data % page;
	enter();
	if (cuda.handle((void *)&fd, (uintptr_t)data - *offset, (*offset + size + page - 1) / page * page,
	                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0))
		die("CUDA gives no DMA-BUF of %zu bytes of GPU memory", size);
	return fd;
}

ncclResult_t memory_reg(struct net *net, void *comm, void *data, size_t size, void **mhandle)
{
	ncclResult_t result;
	size_t offset;
	int fd;

	if (!memory_is_device(data))
		return net_reg(net, comm, data, size, NCCL_PTR_HOST, mhandle);
	if (kind != MEMORY_DMABUF || !net->regMrDmaBuf)
		return net_reg(net, comm, data, size, NCCL_PTR_CUDA, mhandle);
	fd = memory_dmabuf(data, size, &offset);
	result = net_reg_dmabuf(net, comm, data, size, NCCL_PTR_CUDA, offset, fd, mhandle);
	close(fd);
	return result;
}
