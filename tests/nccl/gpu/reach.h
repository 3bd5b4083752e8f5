// Where device memory can be reached. The processor cannot touch it at the address that programs have: a load or a store there is a
// SIGSEGV. What plays the device - kernels, copies - goes through another mapping of the same memory.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define GPU_WINDOW ((size_t)64 << 30) // addresses of device memory

extern uintptr_t gpu_window; // where they begin; 0 before the first allocation
extern uintptr_t gpu_alias;  // where the other mapping begins

// gpu_reach is where the memory at p can be reached: device memory in the other mapping, other memory where it is.
static inline void *gpu_reach(const void *p) {
	uintptr_t offset = (uintptr_t)p - gpu_window;
	return (void *)(gpu_window && offset < GPU_WINDOW ? gpu_alias + offset : (uintptr_t)p);
}
