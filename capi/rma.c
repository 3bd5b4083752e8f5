/*
 * NCCL's RMA interface: one vtable for each version, and the functions in them. A function is named after the earliest
 * version with its signature, and serves all later ones. This file makes two decisions only: a call in a forked
 * child fails, and every output argument is written.
 */
#include "plugin.h"
#include "properties.h"
#include "rma_abi.h"

static uintptr_t number(void *handle)
{
	return (uintptr_t)handle;
}

static ncclResult_t init_v13(void **ctx, UNUSED uint64_t commId, ncclDebugLogger_t logger)
{
	*ctx = NULL;
	REFUSE_IN_CHILD();
	return meshRmaInit((uintptr_t *)ctx, mesh_nccl_version(logger), logger);
}

static ncclResult_t devices_v13(int *ndev)
{
	*ndev = 0;
	REFUSE_IN_CHILD();
	return meshRmaDevices(ndev);
}

static ncclResult_t get_properties_v13(int dev, ncclNetProperties_v12_t *props)
{
	struct mesh_properties p = { 0 };
	ncclResult_t result;

	REFUSE_IN_CHILD();
	result = meshRmaProperties(dev, &p);
	if (result == ncclSuccess)
		PROPERTIES_V12(props, p, dev);
	return result;
}

static ncclResult_t listen_v13(void *ctx, int dev, void *handle, void **listenComm)
{
	*listenComm = NULL;
	REFUSE_IN_CHILD();
	return meshRmaListen(number(ctx), dev, handle, (uintptr_t *)listenComm);
}

static ncclResult_t connect_v13(UNUSED void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm)
{
	*collComm = NULL;
	REFUSE_IN_CHILD();
	return meshRmaConnect((uint8_t **)handles, nranks, rank, number(listenComm), (uintptr_t *)collComm);
}

static ncclResult_t create_context_v14(void *collComm, ncclRmaConfig_v14_t *config, void **rmaCtx)
{
	*rmaCtx = NULL;
	REFUSE_IN_CHILD();
	return meshRmaCreateContext(number(collComm), config->nContexts, (uintptr_t *)rmaCtx);
}

static ncclResult_t create_context_v13(void *collComm, ncclGinConfig_v13_t *config, void **rmaCtx, ncclRmaDeviceHandle_t **devHandle)
{
	*rmaCtx = NULL;
	*devHandle = NULL;
	REFUSE_IN_CHILD();
	return meshRmaCreateContext(number(collComm), config->nContexts, (uintptr_t *)rmaCtx);
}

static ncclResult_t reg_mr_sym_v14(void *collComm, void *data, size_t size, int type, UNUSED uint64_t mrFlags, void **mhandle)
{
	*mhandle = NULL;
	REFUSE_IN_CHILD();
	return meshRmaRegister(number(collComm), (uintptr_t)data, size, type, (uintptr_t *)mhandle);
}

static ncclResult_t reg_mr_sym_v13(void *collComm, void *data, size_t size, int type, uint64_t mrFlags, void **mhandle,
				   void **ginHandle)
{
	ncclResult_t result = reg_mr_sym_v14(collComm, data, size, type, mrFlags, mhandle);

	*ginHandle = *mhandle;
	return result;
}

static ncclResult_t reg_mr_sym_dmabuf_v14(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd,
					  UNUSED uint64_t mrFlags, void **mhandle)
{
	*mhandle = NULL;
	REFUSE_IN_CHILD();
	return meshRmaRegisterDmaBuf(number(collComm), (uintptr_t)data, size, type, offset, fd, (uintptr_t *)mhandle);
}

static ncclResult_t reg_mr_sym_dmabuf_v13(void *collComm, void *data, size_t size, int type, uint64_t offset, int fd,
					  uint64_t mrFlags, void **mhandle, void **ginHandle)
{
	ncclResult_t result = reg_mr_sym_dmabuf_v14(collComm, data, size, type, offset, fd, mrFlags, mhandle);

	*ginHandle = *mhandle;
	return result;
}

static ncclResult_t dereg_mr_sym_v13(void *collComm, void *mhandle)
{
	REFUSE_IN_CHILD();
	return meshRmaDeregister(number(collComm), number(mhandle));
}

static ncclResult_t destroy_context_v13(void *rmaCtx)
{
	REFUSE_IN_CHILD();
	return meshRmaDestroyContext(number(rmaCtx));
}

static ncclResult_t close_coll_v13(void *collComm)
{
	REFUSE_IN_CHILD();
	return meshRmaCloseColl(number(collComm));
}

static ncclResult_t close_listen_v13(void *listenComm)
{
	REFUSE_IN_CHILD();
	return meshRmaCloseListen(number(listenComm));
}

/* optFlags only allows to wait for more work, which the plugin does not do. */
static ncclResult_t iput_v15(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff,
			     void *dstMhandle, uint32_t rank, UNUSED uint32_t optFlags, void **request)
{
	*request = NULL;
	REFUSE_IN_CHILD();
	return meshRmaPut(number(rmaCtx), context, srcOff, number(srcMhandle), size, dstOff, number(dstMhandle), rank,
			  (uintptr_t *)request);
}

static ncclResult_t iput_v13(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff,
			     void *dstMhandle, uint32_t rank, void **request)
{
	return iput_v15(rmaCtx, context, srcOff, srcMhandle, size, dstOff, dstMhandle, rank, 0, request);
}

/* Every signal is strong: it comes after all earlier operations to its rank. */
static ncclResult_t iput_signal_v15(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff,
				    void *dstMhandle, uint32_t rank, uint64_t signalOff, void *signalMhandle, uint64_t signalValue,
				    uint32_t signalOp, UNUSED bool isStrongSignal, UNUSED uint32_t optFlags, void **request)
{
	*request = NULL;
	REFUSE_IN_CHILD();
	return meshRmaPutSignal(number(rmaCtx), context, srcOff, number(srcMhandle), size, dstOff, number(dstMhandle), rank, signalOff,
				number(signalMhandle), signalValue, signalOp, (uintptr_t *)request);
}

static ncclResult_t iput_signal_v14(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff,
				    void *dstMhandle, uint32_t rank, uint64_t signalOff, void *signalMhandle, uint64_t signalValue,
				    uint32_t signalOp, bool isStrongSignal, void **request)
{
	return iput_signal_v15(rmaCtx, context, srcOff, srcMhandle, size, dstOff, dstMhandle, rank, signalOff, signalMhandle,
			       signalValue, signalOp, isStrongSignal, 0, request);
}

static ncclResult_t iput_signal_v13(void *rmaCtx, int context, uint64_t srcOff, void *srcMhandle, size_t size, uint64_t dstOff,
				    void *dstMhandle, uint32_t rank, uint64_t signalOff, void *signalMhandle, uint64_t signalValue,
				    uint32_t signalOp, void **request)
{
	return iput_signal_v15(rmaCtx, context, srcOff, srcMhandle, size, dstOff, dstMhandle, rank, signalOff, signalMhandle,
			       signalValue, signalOp, true, 0, request);
}

static ncclResult_t iget_v15(void *rmaCtx, int context, uint64_t remoteOff, void *remoteMhandle, size_t size, uint64_t localOff,
			     void *localMhandle, uint32_t rank, UNUSED uint32_t optFlags, void **request)
{
	*request = NULL;
	REFUSE_IN_CHILD();
	return meshRmaGet(number(rmaCtx), context, remoteOff, number(remoteMhandle), size, localOff, number(localMhandle), rank,
			  (uintptr_t *)request);
}

static ncclResult_t iget_v13(void *rmaCtx, int context, uint64_t remoteOff, void *remoteMhandle, size_t size, uint64_t localOff,
			     void *localMhandle, uint32_t rank, void **request)
{
	return iget_v15(rmaCtx, context, remoteOff, remoteMhandle, size, localOff, localMhandle, rank, 0, request);
}

/* NULL without an error: there is nothing to flush. All windows are flushed, whatever the mhandle, which may be NULL. */
static ncclResult_t iflush_v13(void *rmaCtx, int context, UNUSED void *mhandle, uint32_t rank, void **request)
{
	*request = NULL;
	REFUSE_IN_CHILD();
	return meshRmaFlush(number(rmaCtx), context, rank, (uintptr_t *)request);
}

static ncclResult_t test_v13(void *collComm, void *request, int *done)
{
	*done = 0;
	REFUSE_IN_CHILD();
	return meshRmaTest(number(collComm), number(request), done);
}

static ncclResult_t progress_v13(void *rmaCtx)
{
	REFUSE_IN_CHILD();
	return meshRmaProgress(number(rmaCtx));
}

static ncclResult_t query_last_error_v13(void *rmaCtx, bool *hasError)
{
	int failed = 0;
	ncclResult_t result;

	*hasError = false;
	REFUSE_IN_CHILD();
	result = meshRmaLastError(number(rmaCtx), &failed);
	*hasError = failed != 0;
	return result;
}

static ncclResult_t finalize_v13(void *ctx)
{
	REFUSE_IN_CHILD();
	return meshRmaFinalize(number(ctx));
}

EXPORT const ncclRma_v13_t ncclRmaPlugin_v13 = {
	.name = "Mesh",
	.init = init_v13,
	.devices = devices_v13,
	.getProperties = get_properties_v13,
	.listen = listen_v13,
	.connect = connect_v13,
	.createContext = create_context_v13,
	.regMrSym = reg_mr_sym_v13,
	.regMrSymDmaBuf = reg_mr_sym_dmabuf_v13,
	.deregMrSym = dereg_mr_sym_v13,
	.destroyContext = destroy_context_v13,
	.closeColl = close_coll_v13,
	.closeListen = close_listen_v13,
	.iput = iput_v13,
	.iputSignal = iput_signal_v13,
	.iget = iget_v13,
	.iflush = iflush_v13,
	.test = test_v13,
	.rmaProgress = progress_v13,
	.queryLastError = query_last_error_v13,
	.finalize = finalize_v13,
};

EXPORT const ncclRma_v14_t ncclRmaPlugin_v14 = {
	.name = "Mesh",
	.init = init_v13,
	.devices = devices_v13,
	.getProperties = get_properties_v13,
	.listen = listen_v13,
	.connect = connect_v13,
	.createContext = create_context_v14,
	.regMrSym = reg_mr_sym_v14,
	.regMrSymDmaBuf = reg_mr_sym_dmabuf_v14,
	.deregMrSym = dereg_mr_sym_v13,
	.destroyContext = destroy_context_v13,
	.closeColl = close_coll_v13,
	.closeListen = close_listen_v13,
	.iput = iput_v13,
	.iputSignal = iput_signal_v14,
	.iget = iget_v13,
	.iflush = iflush_v13,
	.test = test_v13,
	.rmaProgress = progress_v13,
	.queryLastError = query_last_error_v13,
	.finalize = finalize_v13,
};

EXPORT const ncclRma_v15_t ncclRmaPlugin_v15 = {
	.name = "Mesh",
	.init = init_v13,
	.devices = devices_v13,
	.getProperties = get_properties_v13,
	.listen = listen_v13,
	.connect = connect_v13,
	.createContext = create_context_v14,
	.regMrSym = reg_mr_sym_v14,
	.regMrSymDmaBuf = reg_mr_sym_dmabuf_v14,
	.deregMrSym = dereg_mr_sym_v13,
	.destroyContext = destroy_context_v13,
	.closeColl = close_coll_v13,
	.closeListen = close_listen_v13,
	.iput = iput_v15,
	.iputSignal = iput_signal_v15,
	.iget = iget_v15,
	.iflush = iflush_v13,
	.test = test_v13,
	.rmaProgress = progress_v13,
	.queryLastError = query_last_error_v13,
	.finalize = finalize_v13,
};
