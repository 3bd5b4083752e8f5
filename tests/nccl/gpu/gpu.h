// The pretend GPU: what its parts share. Device memory is host memory that the processor cannot touch at its address (reach.h), a
// stream is a thread that does its work in order, a kernel is a function that runs there. One GPU a process.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>
#include "reach.h"

#define EXPORT __attribute__((visibility("default")))

// What the device says of itself: a GB10.
#define GPU_MAJOR 12
#define GPU_MINOR 1
#define GPU_DRIVER 12020
#define GPU_SHARED_MEMORY 101376

enum { ATTR_DMA_BUF = 124 }; // a device attribute

typedef int CUresult; // the same numbers as cudaError_t for all that is used here

// gpu_bus_id is where the device is on the PCI bus: FAKEGPU_BUSID, or a GB10's.
const char *gpu_bus_id(void);

// gpu_capability is the device's compute capability: FAKEGPU_CC, like 8.0, or a GB10's.
static inline void gpu_capability(int *major, int *minor) {
	const char *text = getenv("FAKEGPU_CC");
	if (!text || sscanf(text, "%d.%d", major, minor) != 2) *major = GPU_MAJOR, *minor = GPU_MINOR;
}

// gpu_memory_used is how many bytes of device and pinned memory are allocated.
size_t gpu_memory_used(void);

enum memory_kind { MEMORY_OTHER, MEMORY_PINNED, MEMORY_DEVICE };

struct memory {
	enum memory_kind kind;
	char *base; // of the allocation that an address lies in
	size_t size;
	uint64_t id; // no two allocations of a process have the same
};

struct memory memory_find(const void *at);

// memory_export returns a descriptor, which the caller closes, of whole pages of device memory, whose position is where these are in
// it; -1 for other memory.
int memory_export(const void *at, size_t length);

// What the driver API answers about memory; libcuda.so.1 has these by the driver's names.
EXPORT CUresult driver_pointer_attribute(void *data, int attribute, const void *at);
EXPORT CUresult driver_address_range(void **base, size_t *size, const void *at);
EXPORT CUresult driver_export(void *handle, const void *at, size_t size, int type, unsigned long long flags);

// stream_run has f(data) done in the stream's turn; data is freed after it.
void stream_run(cudaStream_t stream, void (*f)(void *data), void *data);

// stream_count is how many streams there are.
int stream_count(void);

// kernel_launch runs an NCCL kernel in the stream's turn. args are copied.
CUresult kernel_launch(cudaStream_t stream, const void *args, size_t size);

// gpu_panic ends the process: something is asked of the pretend GPU that it does not do.
_Noreturn void gpu_panic(const char *format, ...) __attribute__((format(printf, 1, 2)));
