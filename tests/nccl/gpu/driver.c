// The driver API, as far as NCCL gets at it: by name, through cudaGetDriverEntryPoint.
#include <string.h>
#include "gpu.h"

static CUresult get_error(CUresult error, const char **text) {
	*text = cudaGetErrorString(error);
	return cudaSuccess;
}

static CUresult device_get(int *device, int ordinal) {
	*device = 0;
	return ordinal == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaDeviceGetAttribute(int *value, int attr, int device);

static char context; // the device's, the only one

static CUresult context_create(void **made, unsigned flags, int device) {
	(void)flags, (void)device;
	*made = &context;
	return cudaSuccess;
}

static CUresult context_get(void **current) {
	*current = &context;
	return cudaSuccess;
}

static CUresult context_set(void *current) {
	(void)current;
	return cudaSuccess;
}

static CUresult context_device(int *device) {
	*device = 0;
	return cudaSuccess;
}

// What the buffer of arguments is introduced by, in an array that ends with 0.
enum { PARAM_END = 0, PARAM_POINTER = 1, PARAM_SIZE = 2 };

static CUresult launch(cudaStream_t stream, void **extra) {
	const void *args = NULL;
	size_t size = 0;
	for (int i = 0; (uintptr_t)extra[i] != PARAM_END; i += 2) {
		if ((uintptr_t)extra[i] == PARAM_POINTER) args = extra[i + 1];
		if ((uintptr_t)extra[i] == PARAM_SIZE) size = *(size_t *)extra[i + 1];
	}
	return kernel_launch(stream, args, size);
}

static CUresult launch_kernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, cudaStream_t stream, void **params, void **extra) {
	(void)function, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params;
	return launch(stream, extra);
}

struct launch_config {
	unsigned grid[3], block[3], shared;
	cudaStream_t stream;
	void *attributes;
	unsigned count;
};

static CUresult launch_kernel_ex(const struct launch_config *config, void *function, void **params, void **extra) {
	(void)function, (void)params;
	return launch(config->stream, extra);
}

CUresult driver_pointer_attribute(void *data, int attribute, const void *at) {
	enum { MEMORY_TYPE = 2, BUFFER_ID = 7, IS_MANAGED = 8, DEVICE_ORDINAL = 9, RANGE_START_ADDR = 11, RANGE_SIZE = 12, MAPPED = 13 };
	struct memory m = memory_find(at);
	if (m.kind == MEMORY_OTHER) return cudaErrorInvalidValue;
	switch (attribute) {
	case MEMORY_TYPE: *(unsigned *)data = m.kind == MEMORY_DEVICE ? 2 : 1; break;
	case BUFFER_ID: *(unsigned long long *)data = m.id; break;
	case IS_MANAGED: *(bool *)data = false; break;
	case DEVICE_ORDINAL: *(int *)data = 0; break;
	case RANGE_START_ADDR: *(char **)data = m.base; break;
	case RANGE_SIZE: *(size_t *)data = m.size; break;
	case MAPPED: *(bool *)data = true; break;
	default: return cudaErrorInvalidValue;
	}
	return cudaSuccess;
}

CUresult driver_address_range(void **base, size_t *size, const void *at) {
	enum { NOT_FOUND = 500 };
	struct memory m = memory_find(at);
	if (m.kind == MEMORY_OTHER) return NOT_FOUND;
	if (base) *base = m.base;
	if (size) *size = m.size;
	return cudaSuccess;
}

CUresult driver_export(void *handle, const void *at, size_t size, int type, unsigned long long flags) {
	enum { DMA_BUF_FD = 1 };
	(void)flags;
	int allowed = 0;
	cudaDeviceGetAttribute(&allowed, ATTR_DMA_BUF, 0);
	if (!allowed) return cudaErrorNotSupported;
	int fd = type == DMA_BUF_FD ? memory_export(at, size) : -1;
	*(int *)handle = fd;
	return fd < 0 ? cudaErrorInvalidValue : cudaSuccess;
}

static CUresult set_attribute(const void *value, int attribute, const void *at) {
	(void)value, (void)attribute, (void)at; // SYNC_MEMOPS: copies are in order here
	return cudaSuccess;
}

static const struct {
	const char *name;
	void *function;
} entries[] = {
	{"cuGetErrorString", get_error},
	{"cuGetErrorName", get_error},
	{"cuDeviceGet", device_get},
	{"cuDeviceGetAttribute", cudaDeviceGetAttribute},
	{"cuCtxCreate", context_create},
	{"cuCtxDestroy", context_set},
	{"cuCtxGetCurrent", context_get},
	{"cuCtxSetCurrent", context_set},
	{"cuCtxGetDevice", context_device},
	{"cuPointerGetAttribute", driver_pointer_attribute},
	{"cuPointerSetAttribute", set_attribute},
	{"cuMemGetAddressRange", driver_address_range},
	{"cuMemGetHandleForAddressRange", driver_export},
	{"cuLaunchKernel", launch_kernel},
	{"cuLaunchKernelEx", launch_kernel_ex},
};

EXPORT cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
	enum { FOUND = 0, NOT_FOUND = 1 };
	(void)flags;
	*function = NULL;
	*status = NOT_FOUND;
	for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
		if (strcmp(entries[i].name, name) == 0) {
			*function = entries[i].function;
			*status = FOUND;
		}
	return cudaSuccess;
}

// Kernels are known by the address of their stub.
EXPORT cudaError_t cudaGetFuncBySymbol(void **function, const void *symbol) {
	*function = (void *)symbol;
	return cudaSuccess;
}

EXPORT cudaError_t cudaFuncSetAttribute(const void *function, int attr, int value) {
	(void)function, (void)attr, (void)value;
	return cudaSuccess;
}

// struct cudaFuncAttributes, of which NCCL reads sizes: none is needed here.
EXPORT cudaError_t cudaFuncGetAttributes(void *attributes, const void *function) {
	(void)function;
	memset(attributes, 0, 4 * sizeof(size_t));
	return cudaSuccess;
}

// NCCL launches by the driver's API; this is for what it does in other ways only on older drivers.
EXPORT cudaError_t cudaLaunchKernel(const void *function) {
	(void)function;
	return cudaErrorNotSupported;
}
