/* ncclNetPlugin_v5 to v12. */
#include <stddef.h>

#include "fault.h"
#include "selfplugin.h"

#define EXPORT __attribute__((visibility("default")))

static ncclResult_t init_v10(ncclDebugLogger_t log, ncclProfilerCallback_t profiler)
{
	if (fault_named("profile-old"))
		self_profiler(profiler);
	return self_init(log);
}

static ncclResult_t init_v11(void **ctx, uint64_t commId, ncclNetCommConfig_t *config, ncclDebugLogger_t log,
                             ncclProfilerCallback_t profiler)
{
	static int context;

	(void)commId, (void)config;
	self_profiler(profiler);
	*ctx = &context;
	return self_init(log);
}

#define COMMON() \
	struct self_props own = {0}; \
	ncclResult_t result = self_properties(dev, &own); \
	if (result != ncclSuccess) \
		return result; \
	p->name = own.name; \
	p->pciPath = NULL; \
	p->guid = own.guid; \
	p->ptrSupport = own.pointers; \
	p->speed = 10000; \
	p->port = 1; \
	if (!own.latency_unset) \
		p->latency = 2; \
	p->maxComms = 1024; \
	p->maxRecvs = NCCL_NET_MAX_RECVS
#define DEVICE() (p->netDeviceType = NCCL_NET_DEVICE_HOST, p->netDeviceVersion = 0)
#define LIMITS() \
	(p->regIsGlobal = 0, p->forceFlush = 0, p->vProps.ndevs = 1, p->vProps.devs[0] = dev, \
	 p->maxP2pBytes = 1u << 30, p->maxCollBytes = 1u << 30)

static ncclResult_t props_v5(int dev, ncclNetProperties_v5_t *p)
{
	COMMON();
	return ncclSuccess;
}

static ncclResult_t props_v7(int dev, ncclNetProperties_v7_t *p)
{
	COMMON();
	DEVICE();
	return ncclSuccess;
}

static ncclResult_t props_v8(int dev, ncclNetProperties_v8_t *p)
{
	COMMON();
	DEVICE();
	p->regIsGlobal = 0;
	if (fault_named("ptr-version"))
		p->ptrSupport ^= NCCL_PTR_CUDA;
	return ncclSuccess;
}

static ncclResult_t props_v9(int dev, ncclNetProperties_v9_t *p)
{
	COMMON();
	DEVICE();
	LIMITS();
	return ncclSuccess;
}

static ncclResult_t props_v11(int dev, ncclNetProperties_v11_t *p)
{
	COMMON();
	DEVICE();
	LIMITS();
	p->maxMultiRequestSize = 1;
	return ncclSuccess;
}

static ncclResult_t props_v12(int dev, ncclNetProperties_v12_t *p)
{
	COMMON();
	DEVICE();
	LIMITS();
	p->maxMultiRequestSize = 1;
	p->railId = p->planeId = -1;
	return ncclSuccess;
}

ncclResult_t self_properties_v12(int dev, ncclNetProperties_v12_t *p)
{
	return props_v12(dev, p);
}

static ncclResult_t listen_v11(void *ctx, int dev, void *handle, void **listenComm)
{
	(void)ctx;
	return self_listen(dev, handle, listenComm);
}

static ncclResult_t connect_v7(int dev, void *handle, void **sendComm, ncclNetDeviceHandle_t **devComm)
{
	(void)devComm;
	return self_connect(dev, handle, sendComm);
}

static ncclResult_t connect_v10(int dev, ncclNetCommConfig_t *config, void *handle, void **sendComm,
                                ncclNetDeviceHandle_t **devComm)
{
	(void)config, (void)devComm;
	return self_connect(dev, handle, sendComm);
}

static ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **sendComm,
                                ncclNetDeviceHandle_t **devComm)
{
	(void)ctx, (void)devComm;
	return self_connect(dev, handle, sendComm);
}

static ncclResult_t accept_v7(void *listenComm, void **recvComm, ncclNetDeviceHandle_t **devComm)
{
	(void)devComm;
	return self_accept(listenComm, recvComm);
}

static ncclResult_t reg_v5(void *comm, void *data, int size, int type, void **mhandle)
{
	return self_reg(comm, data, (size_t)size, type, mhandle);
}

static ncclResult_t isend_v5(void *sendComm, void *data, int size, int tag, void *mhandle, void **request)
{
	return self_isend(sendComm, data, (size_t)size, tag, mhandle, request);
}

static ncclResult_t isend_v10(void *sendComm, void *data, size_t size, int tag, void *mhandle, void *phandle,
                              void **request)
{
	void *before = *request; /* a mistake may leave it */
	ncclResult_t result = self_isend(sendComm, data, size, tag, mhandle, request);

	self_steps(result || *request == before ? NULL : *request, 1, &phandle);
	return result;
}

static ncclResult_t irecv_v5(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles,
                             void **request)
{
	size_t wide[NCCL_NET_MAX_RECVS];

	for (int i = 0; i < n && i < NCCL_NET_MAX_RECVS; i++)
		wide[i] = (size_t)sizes[i];
	return self_irecv(recvComm, n, data, wide, tags, mhandles, request);
}

static ncclResult_t irecv_v10(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                              void **phandles, void **request)
{
	void *before = *request;
	ncclResult_t result = self_irecv(recvComm, n, data, sizes, tags, mhandles, request);

	self_steps(result || *request == before ? NULL : *request, n, phandles);
	return result;
}

static ncclResult_t attributes(void *ctx, ncclNetAttr_t *attributes)
{
	(void)ctx, (void)attributes;
	return ncclSuccess;
}

#define SAME \
	.name = "Self", .devices = self_devices, .deregMr = self_dereg, .iflush = self_iflush, \
	.test = self_test, .closeSend = self_close, .closeRecv = self_close, .closeListen = self_close

EXPORT const ncclNet_v5_t ncclNetPlugin_v5 = {
	SAME, .init = self_init, .getProperties = props_v5, .listen = self_listen, .connect = self_connect,
	.accept = self_accept, .regMr = reg_v5, .isend = isend_v5, .irecv = irecv_v5,
};
EXPORT const ncclNet_v6_t ncclNetPlugin_v6 = {
	SAME, .init = self_init, .getProperties = props_v5, .listen = self_listen, .connect = self_connect,
	.accept = self_accept,
	.regMrDmaBuf = self_reg_dmabuf, .regMr = reg_v5, .isend = isend_v5, .irecv = irecv_v5,
};
EXPORT const ncclNet_v7_t ncclNetPlugin_v7 = {
	SAME, .init = self_init, .getProperties = props_v7, .listen = self_listen, .connect = connect_v7,
	.accept = accept_v7,
	.regMrDmaBuf = self_reg_dmabuf, .regMr = reg_v5, .isend = isend_v5, .irecv = irecv_v5,
};
EXPORT const ncclNet_v8_t ncclNetPlugin_v8 = {
	SAME, .init = self_init, .getProperties = props_v8, .listen = self_listen, .connect = connect_v7,
	.accept = accept_v7,
	.regMrDmaBuf = self_reg_dmabuf, .regMr = self_reg, .isend = isend_v5, .irecv = irecv_v5,
};
EXPORT const ncclNet_v9_t ncclNetPlugin_v9 = {
	SAME, .init = self_init, .getProperties = props_v9, .listen = self_listen, .connect = connect_v7,
	.accept = accept_v7,
	.regMrDmaBuf = self_reg_dmabuf, .regMr = self_reg, .isend = self_isend, .irecv = self_irecv,
};
EXPORT const ncclNet_v10_t ncclNetPlugin_v10 = {
	SAME, .init = init_v10, .getProperties = props_v9, .listen = self_listen, .connect = connect_v10,
	.accept = accept_v7,
	.regMrDmaBuf = self_reg_dmabuf, .regMr = self_reg, .isend = isend_v10, .irecv = irecv_v10,
};
EXPORT const ncclNet_v11_t ncclNetPlugin_v11 = {
	SAME, .init = init_v11, .getProperties = props_v11, .listen = listen_v11, .connect = connect_v11,
	.accept = accept_v7,
	.regMrDmaBuf = self_reg_dmabuf, .regMr = self_reg, .isend = isend_v10, .irecv = irecv_v10,
	.finalize = self_finalize, .setNetAttr = attributes,
};
EXPORT const ncclNet_v12_t ncclNetPlugin_v12 = {
	SAME, .init = init_v11, .getProperties = props_v12, .listen = listen_v11, .connect = connect_v11,
	.accept = accept_v7,
	.regMrDmaBuf = self_reg_dmabuf, .regMr = self_reg, .isend = isend_v10, .irecv = irecv_v10,
	.finalize = self_finalize, .setNetAttr = attributes,
};
