/*
 * NCCL's RMA plugin interface, versions 13 to 15: the memory layout that libnccl agrees on with a plugin
 * (src/include/plugin/rma/rma_v13.h, which is gin/gin_v13.h, rma_v14.h and rma_v15.h). A version does not change after its
 * release; the assertions at the end hold it in place. LP64, the same on x86-64 and AArch64.
 */
#ifndef MESH_RMA_ABI_H
#define MESH_RMA_ABI_H

#include <stdbool.h>

#include "abi.h"

#define NCCL_NET_SIGNAL_OP_INC 1
#define NCCL_NET_SIGNAL_OP_ADD 2

/* optFlags of version 15: more work follows at once, so that the plugin may wait before it tells the device. */
#define NCCL_RMA_OPT_FLAGS_AGGREGATE_REQUESTS 1

typedef struct {
	int nSignals;
	int nCounters;
	int nContexts;
	int queueDepth;
	int trafficClass;
} ncclGinConfig_v13_t;

/* The structure of early releases ends after trafficClass, so the last member must not be read. */
typedef struct {
	int nContexts;
	int trafficClass;
	int rankStride; /* only ranks at multiples of it are used */
} ncclRmaConfig_v14_t;

typedef struct ncclRmaDeviceHandle ncclRmaDeviceHandle_t; /* never filled: no device calls the plugin */

typedef ncclResult_t rma_init_v13_fn(void **ctx, uint64_t commId, ncclDebugLogger_t logFunction);
typedef ncclResult_t rma_devices_v13_fn(int *ndev);
typedef ncclResult_t rma_getProperties_v13_fn(int dev, ncclNetProperties_v12_t *props);
typedef ncclResult_t rma_listen_v13_fn(void *ctx, int dev, void *handle, void **listenComm);
typedef ncclResult_t rma_connect_v13_fn(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm);
typedef ncclResult_t rma_createContext_v13_fn(void *collComm, ncclGinConfig_v13_t *config, void **rmaCtx,
					      ncclRmaDeviceHandle_t **devHandle);
typedef ncclResult_t rma_createContext_v14_fn(void *collComm, ncclRmaConfig_v14_t *config, void **rmaCtx);
typedef ncclResult_t rma_regMrSym_v13_fn(void *collComm, void *data, size_t size, int type, uint64_t mrFlags, void **mhandle,
					 void **ginHandle);
typedef ncclResult_t rma_regMrSym_v14_fn(void *collComm, void *data, size_t size, int type, uint64_t mrFlags, void **mhandle);
typedef ncclResult_t rma_regMrSymDmaBuf_v13_fn(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd,
					       uint64_t mrFlags, void **mhandle, void **ginHandle);
typedef ncclResult_t rma_regMrSymDmaBuf_v14_fn(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd,
					       uint64_t mrFlags, void **mhandle);
typedef ncclResult_t rma_deregMrSym_v13_fn(void *collComm, void *mhandle);
typedef ncclResult_t rma_close_v13_fn(void *object);
typedef ncclResult_t rma_iput_v13_fn(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff,
				     void *dstMhandle, uint32_t rank, void **request);
typedef ncclResult_t rma_iput_v15_fn(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff,
				     void *dstMhandle, uint32_t rank, uint32_t optFlags, void **request);
typedef ncclResult_t rma_iputSignal_v13_fn(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size,
					   uint64_t dstOff, void *dstMhandle, uint32_t rank, uint64_t signalOff,
					   void *signalMhandle, uint64_t signalValue, uint32_t signalOp, void **request);
typedef ncclResult_t rma_iputSignal_v14_fn(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size,
					   uint64_t dstOff, void *dstMhandle, uint32_t rank, uint64_t signalOff,
					   void *signalMhandle, uint64_t signalValue, uint32_t signalOp, bool isStrongSignal,
					   void **request);
typedef ncclResult_t rma_iputSignal_v15_fn(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size,
					   uint64_t dstOff, void *dstMhandle, uint32_t rank, uint64_t signalOff,
					   void *signalMhandle, uint64_t signalValue, uint32_t signalOp, bool isStrongSignal,
					   uint32_t optFlags, void **request);
typedef ncclResult_t rma_iget_v13_fn(void *rmaCtx, int context, uint64_t remoteOff, void *remoteMhandle, size_t size,
				     uint64_t localOff, void *localMhandle, uint32_t rank, void **request);
typedef ncclResult_t rma_iget_v15_fn(void *rmaCtx, int context, uint64_t remoteOff, void *remoteMhandle, size_t size,
				     uint64_t localOff, void *localMhandle, uint32_t rank, uint32_t optFlags, void **request);
typedef ncclResult_t rma_iflush_v13_fn(void *rmaCtx, int context, void *mhandle, uint32_t rank, void **request);
typedef ncclResult_t rma_test_v13_fn(void *collComm, void *request, int *done);
typedef ncclResult_t rma_queryLastError_v13_fn(void *rmaCtx, bool *hasError);

/* The members that differ between the versions are those whose types are arguments. */
#define MESH_RMA(createContext_fn, regMrSym_fn, regMrSymDmaBuf_fn, iput_fn, iputSignal_fn, iget_fn)                          \
	struct {                                                                                                             \
		const char *name;                                                                                            \
		rma_init_v13_fn *init;                                                                                       \
		rma_devices_v13_fn *devices;                                                                                 \
		rma_getProperties_v13_fn *getProperties;                                                                     \
		rma_listen_v13_fn *listen;                                                                                   \
		rma_connect_v13_fn *connect;                                                                                 \
		createContext_fn *createContext;                                                                             \
		regMrSym_fn *regMrSym;                                                                                       \
		regMrSymDmaBuf_fn *regMrSymDmaBuf;                                                                           \
		rma_deregMrSym_v13_fn *deregMrSym;                                                                           \
		rma_close_v13_fn *destroyContext;                                                                            \
		rma_close_v13_fn *closeColl;                                                                                 \
		rma_close_v13_fn *closeListen;                                                                               \
		iput_fn *iput;                                                                                               \
		iputSignal_fn *iputSignal;                                                                                   \
		iget_fn *iget;                                                                                               \
		rma_iflush_v13_fn *iflush;                                                                                   \
		rma_test_v13_fn *test;                                                                                       \
		rma_close_v13_fn *rmaProgress; /* ginProgress in version 13 */                                               \
		rma_queryLastError_v13_fn *queryLastError;                                                                   \
		rma_close_v13_fn *finalize;                                                                                  \
	}

typedef MESH_RMA(rma_createContext_v13_fn, rma_regMrSym_v13_fn, rma_regMrSymDmaBuf_v13_fn, rma_iput_v13_fn, rma_iputSignal_v13_fn,
		 rma_iget_v13_fn) ncclRma_v13_t;
typedef MESH_RMA(rma_createContext_v14_fn, rma_regMrSym_v14_fn, rma_regMrSymDmaBuf_v14_fn, rma_iput_v13_fn, rma_iputSignal_v14_fn,
		 rma_iget_v13_fn) ncclRma_v14_t;
typedef MESH_RMA(rma_createContext_v14_fn, rma_regMrSym_v14_fn, rma_regMrSymDmaBuf_v14_fn, rma_iput_v15_fn, rma_iputSignal_v15_fn,
		 rma_iget_v15_fn) ncclRma_v15_t;

MESH_SIZE(ncclGinConfig_v13_t, 20);
MESH_AT(ncclGinConfig_v13_t, nContexts, 8);
MESH_SIZE(ncclRmaConfig_v14_t, 12);
MESH_AT(ncclRmaConfig_v14_t, nContexts, 0);

#define MESH_RMA_SLOTS(type)                                                                                                 \
	MESH_SIZE(type, 168);                                                                                                \
	MESH_SLOT(type, listen, 4);                                                                                          \
	MESH_SLOT(type, regMrSym, 7);                                                                                        \
	MESH_SLOT(type, destroyContext, 10);                                                                                 \
	MESH_SLOT(type, iput, 13);                                                                                           \
	MESH_SLOT(type, test, 17);                                                                                           \
	MESH_SLOT(type, rmaProgress, 18);                                                                                    \
	MESH_SLOT(type, finalize, 20)

MESH_RMA_SLOTS(ncclRma_v13_t);
MESH_RMA_SLOTS(ncclRma_v14_t);
MESH_RMA_SLOTS(ncclRma_v15_t);

#endif
