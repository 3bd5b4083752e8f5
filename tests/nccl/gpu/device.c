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

// The attributes that are not 0. A GB10 has none of those of GPUDirect RDMA; FAKEGPU_GDR=1 makes the device another one, whose memory a
// network adapter reaches by its address, and FAKEGPU_DMABUF=1 by DMA-BUFs too.
enum {
	ATTR_MAX_THREADS_PER_BLOCK = 1,
	ATTR_WARP_SIZE = 10,
	ATTR_SM_COUNT = 16,
	ATTR_COMPUTE_MAJOR = 75,
	ATTR_COMPUTE_MINOR = 76,
	ATTR_SHARED_MEMORY_OPTIN = 97,
	ATTR_GPU_DIRECT_RDMA = 116,
	ATTR_FLUSH_WRITES_OPTIONS = 117,
};

static bool is_set(const char *name) {
	const char *text = getenv(name);
	return text && strcmp(text, "1") == 0;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, int attr, int device) {
	(void)device;
	int major, minor;
	gpu_capability(&major, &minor);
	switch (attr) {
	case ATTR_MAX_THREADS_PER_BLOCK: *value = 1024; break;
	case ATTR_WARP_SIZE: *value = 32; break;
	case ATTR_SM_COUNT: *value = 48; break;
	case ATTR_COMPUTE_MAJOR: *value = major; break;
	case ATTR_COMPUTE_MINOR: *value = minor; break;
	case ATTR_SHARED_MEMORY_OPTIN: *value = GPU_SHARED_MEMORY; break;
	case ATTR_GPU_DIRECT_RDMA: *value = is_set("FAKEGPU_GDR"); break;
	case ATTR_FLUSH_WRITES_OPTIONS: *value = is_set("FAKEGPU_GDR"); break; // by the host
	case ATTR_DMA_BUF: *value = is_set("FAKEGPU_DMABUF"); break;
	default: *value = 0; // no multicast, virtual memory management
	}
	return cudaSuccess;
}

// Of the 1032 bytes only the compute capability is looked at, and that only without NVML.
EXPORT cudaError_t cudaGetDeviceProperties_v2(void *properties, int device) {
	(void)device;
	int capability[2];
	gpu_capability(&capability[0], &capability[1]);
	memset(properties, 0, 1032);
	strcpy(properties, "pretend GB10");
	memcpy((char *)properties + 360, capability, sizeof capability);
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
