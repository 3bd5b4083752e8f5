// The device: how many, which, and what they can do.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "gpu.h"

_Noreturn void gpu_panic(const char *format, ...) {
	va_list args;
	va_start(args, format);
	fprintf(stderr, "pretend GPU: ");
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	abort();
}

const char *gpu_bus_id(void) {
	const char *id = getenv("FAKEGPU_BUSID");
	return id ? id : "000f:01:00.0";
}

EXPORT cudaError_t cudaGetDeviceCount(int *count) {
	*count = 1;
	return cudaSuccess;
}

EXPORT cudaError_t cudaGetDevice(int *device) {
	*device = 0;
	return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device) {
	return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

EXPORT cudaError_t cudaDeviceSetLimit(int limit, size_t value) {
	(void)limit, (void)value;
	return cudaSuccess;
}

// The attributes that are not 0.
enum {
	ATTR_MAX_THREADS_PER_BLOCK = 1,
	ATTR_WARP_SIZE = 10,
	ATTR_SM_COUNT = 16,
	ATTR_COMPUTE_MAJOR = 75,
	ATTR_COMPUTE_MINOR = 76,
	ATTR_SHARED_MEMORY_OPTIN = 97,
};

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, int attr, int device) {
	(void)device;
	switch (attr) {
	case ATTR_MAX_THREADS_PER_BLOCK: *value = 1024; break;
	case ATTR_WARP_SIZE: *value = 32; break;
	case ATTR_SM_COUNT: *value = 48; break;
	case ATTR_COMPUTE_MAJOR: *value = GPU_MAJOR; break;
	case ATTR_COMPUTE_MINOR: *value = GPU_MINOR; break;
	case ATTR_SHARED_MEMORY_OPTIN: *value = GPU_SHARED_MEMORY; break;
	default: *value = 0; // no GPUDirect, DMA-BUF, multicast, virtual memory management
	}
	return cudaSuccess;
}

// Of the 1032 bytes only the compute capability is looked at, and that only without NVML.
EXPORT cudaError_t cudaGetDeviceProperties_v2(void *properties, int device) {
	(void)device;
	memset(properties, 0, 1032);
	strcpy(properties, "pretend GB10");
	memcpy((char *)properties + 360, (int[]){GPU_MAJOR, GPU_MINOR}, 2 * sizeof(int));
	return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) {
	(void)device;
	return snprintf(id, (size_t)size, "%s", gpu_bus_id()) < size ? cudaSuccess : cudaErrorInvalidValue;
}

EXPORT cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *id) {
	*device = 0;
	return strcasecmp(id, gpu_bus_id()) == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
	(void)device, (void)peer;
	*can = 0;
	return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
	(void)peer, (void)flags;
	return cudaErrorNotSupported;
}

EXPORT cudaError_t cudaDriverGetVersion(int *version) {
	*version = GPU_DRIVER;
	return cudaSuccess;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
	*version = GPU_DRIVER;
	return cudaSuccess;
}

EXPORT cudaError_t cudaGetLastError(void) {
	return cudaSuccess;
}

EXPORT const char *cudaGetErrorString(cudaError_t error) {
	switch (error) {
	case cudaSuccess: return "no error";
	case cudaErrorInvalidValue: return "invalid argument";
	case cudaErrorMemoryAllocation: return "out of memory";
	case cudaErrorNotReady: return "device not ready";
	case cudaErrorNotSupported: return "operation not supported by the pretend GPU";
	default: return "an error of the pretend GPU";
	}
}
