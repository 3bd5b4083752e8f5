// libnvidia-ml.so.1: the one device, without NVLink.
#include <strings.h>
#include "gpu.h"

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6 };

static char only; // the device's handle is its address

EXPORT int nvmlInit_v2(void) {
	return OK;
}

EXPORT int nvmlInit(void) {
	return OK;
}

EXPORT int nvmlShutdown(void) {
	return OK;
}

EXPORT const char *nvmlErrorString(int error) {
	return error == OK ? "no error" : "an error of the pretend GPU";
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
	*count = 1;
	return OK;
}

EXPORT int nvmlDeviceGetCount(unsigned *count) {
	return nvmlDeviceGetCount_v2(count);
}

EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void **device) {
	*device = &only;
	return index == 0 ? OK : INVALID;
}

EXPORT int nvmlDeviceGetHandleByPciBusId(const char *id, void **device) {
	(void)id;
	*device = &only;
	return OK;
}

EXPORT int nvmlDeviceGetIndex(void *device, unsigned *index) {
	*index = 0;
	return device == &only ? OK : NOT_FOUND;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
	(void)device;
	gpu_capability(major, minor);
	return OK;
}

EXPORT int nvmlDeviceGetP2PStatus(void *one, void *other, int capability, int *status) {
	(void)one, (void)other, (void)capability;
	*status = 0;
	return OK;
}

#define ABSENT(name) \
	EXPORT int name(void) { return UNSUPPORTED; }
ABSENT(nvmlDeviceGetNvLinkState)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo)
ABSENT(nvmlDeviceGetNvLinkCapability)
ABSENT(nvmlDeviceGetFieldValues)
ABSENT(nvmlDeviceGetGpuFabricInfoV)
