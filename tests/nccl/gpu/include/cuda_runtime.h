// What NCCL's own header and the rank program need of CUDA's runtime API, declared here: no CUDA is installed.
#pragma once
#include <stddef.h>

#define CUDART_VERSION 12020

#ifdef __cplusplus
extern "C" {
#endif

typedef int cudaError_t;
enum {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorNotReady = 600,
	cudaErrorNotSupported = 801,
};

enum { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

cudaError_t cudaMalloc(void **ptr, size_t size);
cudaError_t cudaFree(void *ptr);
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind);
cudaError_t cudaMemset(void *at, int value, size_t size);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
const char *cudaGetErrorString(cudaError_t error);

#ifdef __cplusplus
}
#endif
