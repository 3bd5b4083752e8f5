/*
 * Data and signal words in GPU memory, which a library at LIBCUDA pretends. Rank 0 writes and signals; rank 1 polls the word as a kernel does,
 * without a call of the library, looks at the data, and signals back to rank 0, which waits by a call.
 */
#include "job.h"

#include <dlfcn.h>
#include <string.h>

typedef unsigned long long address;

#define SIZE (1 << 20)
#define DATA (SIZE - 4096)
#define ROUNDS 20

static int (*to_gpu)(address, const void *, size_t);
static int (*from_gpu)(void *, address, size_t);

static void *symbol(void *library, const char *name)
{
	void *found = dlsym(library, name);

	return found ? found : (FAIL("%s\n", dlerror()), NULL);
}

/* Allocates GPU memory, and stores a descriptor of its DMA-BUF in *fd. */
static address allocate(int *fd)
{
	const char *path = getenv("LIBCUDA");
	void *cuda = path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
	int (*init)(unsigned), (*alloc)(address *, size_t), (*handle)(void *, address, size_t, int, unsigned long long);
	address at = 0;

	if (!cuda)
		FAIL("no libcuda at LIBCUDA\n");
	*(void **)&to_gpu = symbol(cuda, "cuMemcpyHtoD_v2");
	*(void **)&from_gpu = symbol(cuda, "cuMemcpyDtoH_v2");
	*(void **)&init = symbol(cuda, "cuInit");
	*(void **)&alloc = symbol(cuda, "cuMemAlloc_v2");
	*(void **)&handle = symbol(cuda, "cuMemGetHandleForAddressRange");
	if (init(0) || alloc(&at, SIZE) || handle(fd, at, SIZE, 1, 0))
		FAIL("no GPU memory\n");
	return at;
}

static uint64_t word(address at)
{
	uint64_t value = 0;

	if (from_gpu(&value, at, sizeof(value)))
		FAIL("a word cannot be read\n");
	return value;
}

int main(int argc, char **argv)
{
	static unsigned char data[DATA];
	int ranks, rank, round, fd = -1;
	ncclmeshComm_t comm = job(argc, argv, &ranks, &rank);
	ncclmeshBuffer_t buffer;
	uint64_t value = 0;
	address gpu = allocate(&fd);
	void *memory = (void *)(uintptr_t)gpu;
	size_t i;

	CHECK(ncclmeshConnectMemory(comm, 1 - rank, 0, memory, SIZE, ncclmeshGpuMemory, fd, 0));
	CHECK(ncclmeshConnectionSetup(comm));
	CHECK(ncclmeshRegisterMemory(comm, memory, SIZE, ncclmeshGpuMemory, fd, 0, &buffer));
	for (round = 1; round <= ROUNDS; round++) {
		if (rank == 0) {
			for (i = 0; i < DATA; i++)
				data[i] = (unsigned char)(round * 31 + i * 7);
			if (to_gpu(gpu, data, DATA))
				FAIL("round %d: the data cannot be written\n", round);
			CHECK(ncclmeshRegisteredBufferWrite(buffer, 1, 0, buffer, 0, DATA));
			CHECK(ncclmeshRegisteredBufferSignal(buffer, 1, DATA + 8, ncclmeshIncrement, 0));
			CHECK(ncclmeshRegisteredBufferWait(buffer, DATA, 5 * (uint64_t)round, -1));
			continue;
		}
		while (word(gpu + DATA + 8) < (uint64_t)round)
			;
		if (from_gpu(data, gpu, DATA))
			FAIL("round %d: the data cannot be read\n", round);
		for (i = 0; i < DATA; i++)
			if (data[i] != (unsigned char)(round * 31 + i * 7))
				FAIL("round %d: byte %zu is %d when the signal is seen\n", round, i, data[i]);
		CHECK(ncclmeshRegisteredBufferSignal(buffer, 0, DATA, ncclmeshAdd, 5));
	}
	CHECK(ncclmeshRegisteredBufferSignal(buffer, rank, DATA + 16, ncclmeshSet, 77));
	CHECK(ncclmeshRegisteredBufferFlush(buffer, rank, -1));
	CHECK(ncclmeshRegisteredBufferLoad(buffer, DATA + 16, &value));
	if (value != 77 || word(gpu + DATA + 16) != 77)
		FAIL("a rank's own word is %llu\n", (unsigned long long)value);
	CHECK(ncclmeshRegisteredBufferFlush(buffer, 1 - rank, -1));
	CHECK(ncclmeshBootstrapBarrier(comm));
	CHECK(ncclmeshDeregisterBuffer(buffer));
	CHECK(ncclmeshCommDestroy(comm));
	printf("ok\n");
	return 0;
}
