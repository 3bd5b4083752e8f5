/*
 * NCCL's RMA plugin interface, versions 13 to 15 (src/include/plugin/rma, of which version 13 is that of GIN). The driver has a
 * description of its own, so that a mistake in the plugin's does not hide here.
 */
#ifndef NETDRIVER_RMA_ABI_H
#define NETDRIVER_RMA_ABI_H

#include <stdbool.h>

#include "abi.h"

enum { RMA_OLDEST = 13, RMA_NEWEST = 15 };

enum { NCCL_NET_SIGNAL_OP_INC = 1, NCCL_NET_SIGNAL_OP_ADD = 2 };
enum { NCCL_NET_MR_FLAG_FORCE_SO = 1, NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET = 2 };
enum { NCCL_NET_DEVICE_GIN_PROXY = 2 };
enum { RMA_OPT_FLAGS_AGGREGATE = 1 };

typedef struct {
	int nSignals, nCounters, nContexts, queueDepth, trafficClass;
} ncclGinConfig_v13_t;

typedef struct {
	int nContexts, trafficClass, rankStride;
} ncclRmaConfig_v14_t;

/* The order of the members is the same in all versions; the types of some differ. */
typedef struct {
	const char *name;
	ncclResult_t (*init)(void **ctx, uint64_t commId, ncclDebugLogger_t);
	ncclResult_t (*devices)(int *ndev);
	ncclResult_t (*getProperties)(int dev, ncclNetProperties_v12_t *);
	ncclResult_t (*listen)(void *ctx, int dev, void *handle, void **listenComm);
	ncclResult_t (*connect)(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm);
	void *createContext;
	void *regMrSym;
	void *regMrSymDmaBuf;
	ncclResult_t (*deregMrSym)(void *collComm, void *mhandle);
	ncclResult_t (*destroyContext)(void *rmaCtx);
	ncclResult_t (*closeColl)(void *collComm);
	ncclResult_t (*closeListen)(void *listenComm);
	void *iput;
	void *iputSignal;
	void *iget;
	ncclResult_t (*iflush)(void *rmaCtx, int context, void *mhandle, uint32_t rank, void **request);
	ncclResult_t (*test)(void *collComm, void *request, int *done);
	ncclResult_t (*rmaProgress)(void *rmaCtx);
	ncclResult_t (*queryLastError)(void *rmaCtx, bool *hasError);
	ncclResult_t (*finalize)(void *ctx);
} ncclRma_t;

ABI_SIZE(ncclRma_t, 168);
ABI_AT(ncclRma_t, createContext, 48);
ABI_AT(ncclRma_t, iput, 104);
ABI_AT(ncclRma_t, test, 136);
ABI_AT(ncclRma_t, finalize, 160);

typedef ncclResult_t rmaCreateContext_v13(void *collComm, ncclGinConfig_v13_t *, void **ctx, void **devHandle);
typedef ncclResult_t rmaCreateContext_v14(void *collComm, ncclRmaConfig_v14_t *, void **ctx);
typedef ncclResult_t rmaRegMrSym_v13(void *collComm, void *data, size_t size, int type, uint64_t flags, void **mhandle, void **gin);
typedef ncclResult_t rmaRegMrSym_v14(void *collComm, void *data, size_t size, int type, uint64_t flags, void **mhandle);
typedef ncclResult_t rmaRegMrSymDmaBuf_v13(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd,
                                           uint64_t flags, void **mhandle, void **gin);
typedef ncclResult_t rmaRegMrSymDmaBuf_v14(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd,
                                           uint64_t flags, void **mhandle);
typedef ncclResult_t rmaPut_v13(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst,
                                uint32_t rank, void **request);
typedef ncclResult_t rmaPut_v15(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst,
                                uint32_t rank, uint32_t flags, void **request);
typedef ncclResult_t rmaPutSignal_v13(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst,
                                      uint32_t rank, uint64_t signalOff, void *signal, uint64_t value, uint32_t op, void **request);
typedef ncclResult_t rmaPutSignal_v14(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst,
                                      uint32_t rank, uint64_t signalOff, void *signal, uint64_t value, uint32_t op, bool strong,
                                      void **request);
typedef ncclResult_t rmaPutSignal_v15(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst,
                                      uint32_t rank, uint64_t signalOff, void *signal, uint64_t value, uint32_t op, bool strong,
                                      uint32_t flags, void **request);

#endif
