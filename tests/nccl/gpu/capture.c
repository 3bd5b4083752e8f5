// Graphs: no stream is ever being captured, and none of the rest is there.
#include "gpu.h"

EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) {
	(void)mode;
	return cudaSuccess;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status) {
	(void)stream;
	*status = 0;
	return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, int *status, unsigned long long *id, void **graph, const void **deps, size_t *count) {
	(void)stream, (void)deps;
	*status = 0;
	if (id) *id = 0;
	if (graph) *graph = NULL;
	if (count) *count = 0;
	return cudaSuccess;
}

EXPORT cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, int *status, unsigned long long *id, void **graph, const void **deps,
	const void **edges, size_t *count) {
	(void)edges;
	return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, deps, count);
}

#define ABSENT(name) \
	EXPORT cudaError_t name(void) { return cudaErrorNotSupported; }
ABSENT(cudaStreamUpdateCaptureDependencies)
ABSENT(cudaStreamUpdateCaptureDependencies_v2)
ABSENT(cudaGraphAddDependencies)
ABSENT(cudaGraphAddDependencies_v2)
ABSENT(cudaGraphAddEventRecordNode)
ABSENT(cudaGraphAddEventWaitNode)
ABSENT(cudaGraphAddHostNode)
ABSENT(cudaGraphAddKernelNode)
ABSENT(cudaGraphRetainUserObject)
ABSENT(cudaUserObjectCreate)
