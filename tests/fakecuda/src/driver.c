// The driver API of CUDA, as far as a network plugin and its tests need it. The numbers are those of cuda.h.
#include <stdlib.h>
#include <string.h>
#include "memory.h"

typedef int CUresult;
typedef int CUdevice;
typedef uintptr_t CUdeviceptr;

enum { // CUresult
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	INVALID_DEVICE = 101,
	INVALID_CONTEXT = 201,
	NOT_FOUND = 500,
	NOT_SUPPORTED = 801,
};

static _Atomic int initialized;
static _Atomic int flushes;

// setting returns a number from the environment. A list with commas between its numbers has one for each device; its last holds for all
// further devices.
static int setting(const char *name, int device, int otherwise) {
	const char *text = getenv(name);
	if (!text || !*text) return otherwise;
	for (const char *comma; device > 0 && (comma = strchr(text, ',')); device--) text = comma + 1;
	return atoi(text);
}

static int device_count(void) {
	return setting("FAKECUDA_DEVICES", 0, 1);
}

static bool is_device(CUdevice device) {
	return device >= 0 && device < device_count();
}

static _Thread_local int pushed; // contexts that cuCtxPushCurrent has made current

static bool has_context(void) {
	return pushed || !setting("FAKECUDA_NO_CONTEXT", 0, 0);
}

EXPORT CUresult cuInit(unsigned flags) {
	if (flags) return INVALID_VALUE;
	initialized = 1;
	return SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) {
	*version = setting("FAKECUDA_VERSION", 0, 12080);
	return SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
	if (!initialized) return NOT_INITIALIZED;
	*count = device_count();
	return SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
	if (!initialized) return NOT_INITIALIZED;
	if (!is_device(ordinal)) return INVALID_DEVICE;
	*device = ordinal;
	return SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
	if (!initialized) return NOT_INITIALIZED;
	if (!has_context()) return INVALID_CONTEXT;
	*device = setting("FAKECUDA_DEVICE", 0, 0);
	return SUCCESS;
}

// Every thread has a context from the start; these are for programs that make one.

static char context;

EXPORT CUresult cuDevicePrimaryCtxRetain(void **retained, CUdevice device) {
	if (!initialized) return NOT_INITIALIZED;
	if (!is_device(device)) return INVALID_DEVICE;
	*retained = &context;
	return SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
	return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

// A program uses the primary context of a device where FAKECUDA_PRIMARY is 1.
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
	if (!initialized) return NOT_INITIALIZED;
	if (!is_device(device)) return INVALID_DEVICE;
	*flags = 0;
	*active = setting("FAKECUDA_PRIMARY", device, 0);
	return SUCCESS;
}

EXPORT CUresult cuCtxPushCurrent_v2(void *made) {
	if (made != &context) return INVALID_CONTEXT;
	pushed++;
	return SUCCESS;
}

EXPORT CUresult cuCtxPopCurrent_v2(void **made) {
	if (!pushed) return INVALID_CONTEXT;
	pushed--;
	*made = &context;
	return SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(void *made) {
	if (!initialized) return NOT_INITIALIZED;
	return !made || made == &context ? SUCCESS : INVALID_CONTEXT;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
	static const struct {
		int attribute;
		const char *name; // NULL: not to be set
		int otherwise;
	} known[] = {
		{18, "FAKECUDA_INTEGRATED", 0},
		{41, NULL, 1}, // UNIFIED_ADDRESSING
		{102, NULL, 1}, // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
		{110, "FAKECUDA_VMM_GDR", 1},
		{116, "FAKECUDA_GDR", 1},
		{117, "FAKECUDA_FLUSH", 1},
		{118, "FAKECUDA_ORDERING", 100},
		{124, "FAKECUDA_DMABUF", 1},
	};
	if (!initialized) return NOT_INITIALIZED;
	if (!is_device(device)) return INVALID_DEVICE;
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (known[i].attribute == attribute) {
			*value = known[i].name ? setting(known[i].name, device, known[i].otherwise) : known[i].otherwise;
			return SUCCESS;
		}
	return INVALID_VALUE;
}

enum { // CUpointer_attribute
	MEMORY_TYPE = 2,
	BUFFER_ID = 7,
	IS_MANAGED = 8,
	DEVICE_ORDINAL = 9,
	RANGE_START_ADDR = 11,
	RANGE_SIZE = 12,
	MAPPED = 13,
	IS_GPU_DIRECT_RDMA_CAPABLE = 15,
};

enum { TYPE_HOST = 1, TYPE_DEVICE = 2 }; // CUmemorytype

#define GIVE(type, value) (memcpy(data, &(type){value}, sizeof(type)), SUCCESS)

EXPORT CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr at) {
	struct memory m;
	if (!initialized) return NOT_INITIALIZED;
	if (!has_context()) return INVALID_CONTEXT;
	if (!memory_find((void *)at, &m)) return INVALID_VALUE;
	switch (attribute) {
	case MEMORY_TYPE: return GIVE(unsigned, m.kind == MEMORY_HOST ? TYPE_HOST : TYPE_DEVICE);
	case BUFFER_ID: return GIVE(unsigned long long, m.id);
	case IS_MANAGED: return GIVE(_Bool, m.kind == MEMORY_MANAGED);
	case DEVICE_ORDINAL: return GIVE(int, 0);
	case RANGE_START_ADDR: return GIVE(CUdeviceptr, m.base);
	case RANGE_SIZE: return GIVE(size_t, m.size);
	case MAPPED: return GIVE(_Bool, 1);
	case IS_GPU_DIRECT_RDMA_CAPABLE: return GIVE(_Bool, m.kind == MEMORY_DEVICE && setting("FAKECUDA_GDR", 0, 1));
	default: return INVALID_VALUE;
	}
}

EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr at) {
	struct memory m;
	if (!initialized) return NOT_INITIALIZED;
	if (!has_context()) return INVALID_CONTEXT;
	if (!memory_find((void *)at, &m)) return NOT_FOUND;
	if (base) *base = m.base;
	if (size) *size = m.size;
	return SUCCESS;
}

static CUresult allocate(CUdeviceptr *at, size_t size, enum memory_kind kind) {
	if (!initialized) return NOT_INITIALIZED;
	if (!at || !size) return INVALID_VALUE;
	*at = (CUdeviceptr)memory_allocate(size, kind);
	return *at ? SUCCESS : OUT_OF_MEMORY;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size) {
	return allocate(at, size, MEMORY_DEVICE);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *at, size_t size, unsigned flags) {
	return flags ? allocate(at, size, MEMORY_MANAGED) : INVALID_VALUE;
}

EXPORT CUresult cuMemHostAlloc(void **at, size_t size, unsigned flags) {
	(void)flags;
	return allocate((CUdeviceptr *)(void *)at, size, MEMORY_HOST);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr at) {
	return memory_free((void *)at, MEMORY_DEVICE) ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuMemFreeHost(void *at) {
	return memory_free(at, MEMORY_HOST) ? SUCCESS : INVALID_VALUE;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
	char *bytes = memory_reach((void *)to, size);
	if (!bytes) return INVALID_VALUE;
	memcpy(bytes, from, size);
	return SUCCESS;
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
	char *bytes = memory_reach((void *)from, size);
	if (!bytes) return INVALID_VALUE;
	memcpy(to, bytes, size);
	return SUCCESS;
}

enum { HANDLE_DMA_BUF_FD = 1, FLAG_MAPPING_PCIE = 1 };

EXPORT CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr at, size_t size, int type, unsigned long long flags) {
	if (!initialized) return NOT_INITIALIZED;
	if (type != HANDLE_DMA_BUF_FD || flags & ~(unsigned long long)FLAG_MAPPING_PCIE) return INVALID_VALUE;
	if (!setting("FAKECUDA_DMABUF", 0, 1)) return NOT_SUPPORTED;
	int fd = memory_export((void *)at, size);
	if (fd < 0) return INVALID_VALUE;
	memcpy(handle, &fd, sizeof fd);
	return SUCCESS;
}

enum { TARGET_CURRENT_CTX = 0, TO_OWNER = 100, TO_ALL_DEVICES = 200 };

EXPORT CUresult cuFlushGPUDirectRDMAWrites(int target, int scope) {
	if (!initialized) return NOT_INITIALIZED;
	if (!has_context()) return INVALID_CONTEXT;
	if (target != TARGET_CURRENT_CTX || (scope != TO_OWNER && scope != TO_ALL_DEVICES)) return INVALID_VALUE;
	if (!(setting("FAKECUDA_FLUSH", 0, 1) & 1)) return NOT_SUPPORTED;
	flushes++;
	return SUCCESS;
}

// fakecuda_flushes returns how often cuFlushGPUDirectRDMAWrites has succeeded.
EXPORT int fakecuda_flushes(void);
EXPORT int fakecuda_flushes(void) {
	return flushes;
}
