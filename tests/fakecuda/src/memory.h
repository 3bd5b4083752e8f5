// Memory as CUDA knows it: allocations, the address that programs get, and the address where the bytes can be reached.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum memory_kind {
	MEMORY_HOST,    // pinned host memory: the processor may touch it
	MEMORY_DEVICE,  // a load or store by the processor at its address is a SIGSEGV
	MEMORY_MANAGED, // both may touch it
};

struct memory {
	uintptr_t base; // the address that programs get
	size_t size;    // as asked for
	enum memory_kind kind;
	uint64_t id; // no two allocations of a process have the same
	char *bytes; // where they can be read and written
	int fd;      // the memfd
};

// memory_allocate returns the address of size bytes, NULL where there are none. Addresses that were freed are used again.
void *memory_allocate(size_t size, enum memory_kind kind);

// memory_free frees what starts at base, and returns whether anything of that kind, or managed memory in place of device memory, does.
bool memory_free(const void *base, enum memory_kind kind);

// memory_find copies out the allocation that at lies in, and returns whether there is one.
bool memory_find(const void *at, struct memory *found);

// memory_reach returns where length bytes of device or managed memory can be read and written; NULL where they are not all of one allocation.
char *memory_reach(const void *at, size_t length);

// memory_export returns a new descriptor for pages of device memory, or -1. Its file position is where the pages start in the memfd.
int memory_export(const void *at, size_t length);

// fakecuda_alias is memory_reach, for a network adapter that has to reach device memory: what nvidia-peermem does in the kernel.
EXPORT void *fakecuda_alias(const void *at, size_t length);
