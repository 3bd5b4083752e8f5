// libcuda.so.1 of the pretend GPU, for programs that load it: the driver's names for what the runtime does here.
#include <stdio.h>
#include "gpu.h"

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device);
cudaError_t cudaDeviceSynchronize(void);

EXPORT CUresult cuInit(unsigned flags) {
	return flags ? cudaErrorInvalidValue : cudaSuccess;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
	return cudaGetDeviceCount(count);
}

EXPORT CUresult cuDeviceGet(int *device, int ordinal) {
	*device = 0;
	return ordinal == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, int device) {
	(void)device;
	return snprintf(name, (size_t)size, "pretend GB10") < size ? cudaSuccess : cudaErrorInvalidValue;
}

EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
	*text = cudaGetErrorString(error);
	return cudaSuccess;
}

static char context; // the device's, the only one

EXPORT CUresult cuDevicePrimaryCtxRetain(void **retained, int device) {
	*retained = &context;
	return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(int device) {
	return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

static _Thread_local void *current; // a call before cuCtxSetCurrent on its thread fails, as the driver's do

EXPORT CUresult cuCtxSetCurrent(void *to) {
	current = to;
	return to == &context ? cudaSuccess : cudaErrorInvalidValue;
}

enum { NO_CONTEXT = 201 }; // CUDA_ERROR_INVALID_CONTEXT

EXPORT CUresult cuCtxSynchronize(void) {
	return current ? cudaDeviceSynchronize() : NO_CONTEXT;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
	*total = *available = (size_t)1 << 30;
	return current ? cudaSuccess : NO_CONTEXT;
}

EXPORT CUresult cuMemAlloc_v2(void **ptr, size_t size) {
	return current ? cudaMalloc(ptr, size) : NO_CONTEXT;
}

EXPORT CUresult cuMemFree_v2(void *ptr) {
	return current ? cudaFree(ptr) : NO_CONTEXT;
}

EXPORT CUresult cuMemcpyHtoD_v2(void *to, const void *from, size_t size) {
	return current ? cudaMemcpy(to, from, size, 1) : NO_CONTEXT;
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, const void *from, size_t size) {
	return current ? cudaMemcpy(to, from, size, 2) : NO_CONTEXT;
}

// Queries need no cuCtxSetCurrent: the runtime's context is current on every thread.

EXPORT CUresult cuDriverGetVersion(int *version) {
	*version = GPU_DRIVER;
	return cudaSuccess;
}

EXPORT CUresult cuCtxGetDevice(int *device) {
	*device = 0;
	return cudaSuccess;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
	return cudaDeviceGetAttribute(value, attribute, device);
}

EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, const void *at) {
	return driver_pointer_attribute(data, attribute, at);
}

EXPORT CUresult cuMemGetAddressRange_v2(void **base, size_t *size, const void *at) {
	return driver_address_range(base, size, at);
}

EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, const void *at, size_t size, int type, unsigned long long flags) {
	return driver_export(handle, at, size, type, flags);
}

EXPORT CUresult cuFlushGPUDirectRDMAWrites(int target, int scope) {
	(void)target, (void)scope; // what an adapter wrote is there at once
	return cudaSuccess;
}

EXPORT CUresult cuStreamCreate(cudaStream_t *stream, unsigned flags) {
	return current ? cudaStreamCreateWithFlags(stream, flags) : NO_CONTEXT;
}

EXPORT CUresult cuStreamQuery(cudaStream_t stream) {
	return current ? cudaStreamQuery(stream) : NO_CONTEXT;
}

EXPORT CUresult cuStreamDestroy_v2(cudaStream_t stream) {
	return current ? cudaStreamDestroy(stream) : NO_CONTEXT;
}
