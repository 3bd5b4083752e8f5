/*
 * NCCL's network interface: one vtable for each version, and the functions in
 * them. A function is named after the earliest version with its signature, and
 * serves all later ones. This file makes three decisions only: a call in
 * a forked child fails, every output argument is written, and
 * version 5 returns no remote errors. Results that Go has published are read
 * from the connection's board.
 */
#include "board.h"
#include "plugin.h"
#include "properties.h"

/* The shared context of the versions without contexts. */
#define NO_CONTEXT 0

static uintptr_t number(void *handle)
{
	return (uintptr_t)handle;
}

static struct mesh_caller caller(int interface_version, ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	return (struct mesh_caller){ interface_version, mesh_nccl_version(logger), (uintptr_t)profiler };
}

/* Each version has its own function, because the plugin's properties depend on the version. */
#define INIT_V5(version)                                                                                             \
	static ncclResult_t init_v##version(ncclDebugLogger_t logger)                                                \
	{                                                                                                            \
		REFUSE_IN_CHILD();                                                                                   \
		return meshInitShared(caller(version, logger, NULL), logger);                                              \
	}

INIT_V5(5)
INIT_V5(6)
INIT_V5(7)
INIT_V5(8)
INIT_V5(9)

static ncclResult_t init_v10(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)
{
	REFUSE_IN_CHILD();
	return meshInitShared(caller(10, logger, profiler), logger);
}

#define INIT_V11(version)                                                                                            \
	static ncclResult_t init_v##version(void **ctx, UNUSED uint64_t commId, ncclNetCommConfig_v10_t *config,     \
					    ncclDebugLogger_t logger, ncclProfilerCallback_t profiler)               \
	{                                                                                                            \
		*ctx = NULL;                                                                                         \
		REFUSE_IN_CHILD();                                                                                   \
		return meshInit((uintptr_t *)ctx, caller(version, logger, profiler),                                 \
				config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF, logger);               \
	}

INIT_V11(11)
INIT_V11(12)

static ncclResult_t finalize_v11(void *ctx)
{
	REFUSE_IN_CHILD();
	return meshFinalize(number(ctx));
}

static ncclResult_t set_net_attr_v11(UNUSED void *ctx, UNUSED ncclNetAttr_t *attr)
{
	return ncclSuccess;
}

static ncclResult_t devices_v5(int *ndev)
{
	*ndev = 0;
	REFUSE_IN_CHILD();
	return meshDevices(ndev);
}

#define GET_PROPERTIES(version, copy)                                                                                \
	static ncclResult_t get_properties_##version(int dev, ncclNetProperties_##version##_t *props)               \
	{                                                                                                            \
		struct mesh_properties p = { 0 };                                                                    \
		ncclResult_t result;                                                                                 \
                                                                                                                     \
		REFUSE_IN_CHILD();                                                                                   \
		result = meshProperties(dev, &p);                                                                    \
		if (result == ncclSuccess)                                                                           \
			copy;                                                                                        \
		return result;                                                                                       \
	}

GET_PROPERTIES(v5, PROPERTIES_V5(props, p))
GET_PROPERTIES(v7, PROPERTIES_V7(props, p))
GET_PROPERTIES(v8, PROPERTIES_V8(props, p))
GET_PROPERTIES(v9, PROPERTIES_V9(props, p, dev))
GET_PROPERTIES(v11, PROPERTIES_V11(props, p, dev))
GET_PROPERTIES(v12, PROPERTIES_V12(props, p, dev))

static ncclResult_t listen_v11(void *ctx, int dev, void *handle, void **listenComm)
{
	*listenComm = NULL;
	REFUSE_IN_CHILD();
	return meshListen(number(ctx), dev, handle, (uintptr_t *)listenComm);
}

static ncclResult_t listen_v5(int dev, void *handle, void **listenComm)
{
	return listen_v11(NO_CONTEXT, dev, handle, listenComm);
}

/* connect and accept do not write the device handles, because the pointers to them may be NULL. */
static ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **sendComm,
				UNUSED ncclNetDeviceHandle_t **sendDevComm)
{
	*sendComm = NULL;
	REFUSE_IN_CHILD();
	return meshConnect(number(ctx), dev, handle, (uintptr_t *)sendComm);
}

/* The configuration contains a traffic class, which the process has already chosen. */
static ncclResult_t connect_v10(int dev, UNUSED ncclNetCommConfig_v10_t *config, void *handle, void **sendComm,
				ncclNetDeviceHandle_t **sendDevComm)
{
	return connect_v11(NO_CONTEXT, dev, handle, sendComm, sendDevComm);
}

static ncclResult_t connect_v7(int dev, void *handle, void **sendComm, ncclNetDeviceHandle_t **sendDevComm)
{
	return connect_v11(NO_CONTEXT, dev, handle, sendComm, sendDevComm);
}

static ncclResult_t connect_v6(int dev, void *handle, void **sendComm)
{
	return connect_v11(NO_CONTEXT, dev, handle, sendComm, NULL);
}

static ncclResult_t accept_v7(void *listenComm, void **recvComm, UNUSED ncclNetDeviceHandle_t **recvDevComm)
{
	*recvComm = NULL;
	REFUSE_IN_CHILD();
	return meshAccept(number(listenComm), (uintptr_t *)recvComm);
}

static ncclResult_t accept_v6(void *listenComm, void **recvComm)
{
	return accept_v7(listenComm, recvComm, NULL);
}

static ncclResult_t reg_mr_v8(void *comm, void *data, size_t size, int type, void **mhandle)
{
	*mhandle = NULL;
	REFUSE_IN_CHILD();
	return meshRegMr(number(comm), (uintptr_t)data, size, type, (uintptr_t *)mhandle);
}

static ncclResult_t reg_mr_v5(void *comm, void *data, int size, int type, void **mhandle)
{
	return reg_mr_v8(comm, data, (size_t)size, type, mhandle);
}

static ncclResult_t reg_mr_dmabuf_v6(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
				     void **mhandle)
{
	*mhandle = NULL;
	REFUSE_IN_CHILD();
	return meshRegMrDmaBuf(number(comm), (uintptr_t)data, size, type, offset, fd, (uintptr_t *)mhandle);
}

static ncclResult_t dereg_mr_v5(void *comm, void *mhandle)
{
	REFUSE_IN_CHILD();
	return meshDeregMr(number(comm), number(mhandle));
}

/* Records that Go has just posted the request, so that the next tests are answered from the board. */
static ncclResult_t posted(ncclResult_t result, void **request)
{
	if (*request)
		mesh_board_asked(number(*request));
	return result;
}

/* NCCL does not clear the request before it calls isend or irecv; NULL means "again". */
static ncclResult_t isend_v10(void *sendComm, void *data, size_t size, int tag, void *mhandle, void *phandle,
			      void **request)
{
	*request = NULL;
	REFUSE_IN_CHILD();
	if (mesh_board_waits(number(sendComm)))
		return ncclSuccess;
	return posted(meshIsend(number(sendComm), (uintptr_t)data, size, tag, number(mhandle), (uintptr_t)phandle,
				(uintptr_t *)request),
		      request);
}

static ncclResult_t isend_v9(void *sendComm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	return isend_v10(sendComm, data, size, tag, mhandle, NULL, request);
}

/* A negative size becomes one that is too large for a message; Go refuses it. */
static ncclResult_t isend_v6(void *sendComm, void *data, int size, int tag, void *mhandle, void **request)
{
	return isend_v10(sendComm, data, (size_t)size, tag, mhandle, NULL, request);
}

static ncclResult_t irecv_v10(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
			      void **phandles, void **request)
{
	*request = NULL;
	REFUSE_IN_CHILD();
	return posted(meshIrecv(number(recvComm), n, (uintptr_t *)data, sizes, tags, (uintptr_t *)mhandles,
				(uintptr_t *)phandles, (uintptr_t *)request),
		      request);
}

static ncclResult_t irecv_v9(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
			     void **request)
{
	return irecv_v10(recvComm, n, data, sizes, tags, mhandles, NULL, request);
}

static ncclResult_t irecv_v6(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles,
			     void **request)
{
	size_t wide[MESH_MAX_RECVS];
	int i;

	for (i = 0; i < n && i < MESH_MAX_RECVS; i++)
		wide[i] = (size_t)sizes[i];
	return irecv_v10(recvComm, n, data, wide, tags, mhandles, NULL, request);
}

static ncclResult_t iflush_v5(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	*request = NULL;
	REFUSE_IN_CHILD();
	return meshIflush(number(recvComm), n, (uintptr_t *)data, sizes, (uintptr_t *)mhandles, (uintptr_t *)request);
}

static ncclResult_t test_v6(void *request, int *done, int *sizes)
{
	ncclResult_t result;

	*done = 0;
	REFUSE_IN_CHILD();
	if (mesh_board_answers(number(request), done, sizes))
		return ncclSuccess;
	result = meshTest(number(request), done, sizes);
	if (!*done)
		mesh_board_asked(number(request));
	return result;
}

static ncclResult_t close_send_v5(void *sendComm)
{
	REFUSE_IN_CHILD();
	return meshCloseSend(number(sendComm));
}

static ncclResult_t close_recv_v5(void *recvComm)
{
	REFUSE_IN_CHILD();
	return meshCloseRecv(number(recvComm));
}

static ncclResult_t close_listen_v5(void *listenComm)
{
	REFUSE_IN_CHILD();
	return meshCloseListen(number(listenComm));
}

/* Version 5 is used by NCCL 2.12, which does not know ncclRemoteError. */
static ncclResult_t without_remote(ncclResult_t result)
{
	return result == ncclRemoteError ? ncclSystemError : result;
}

static ncclResult_t connect_v5(int dev, void *handle, void **sendComm)
{
	return without_remote(connect_v6(dev, handle, sendComm));
}

static ncclResult_t accept_v5(void *listenComm, void **recvComm)
{
	return without_remote(accept_v6(listenComm, recvComm));
}

static ncclResult_t isend_v5(void *sendComm, void *data, int size, int tag, void *mhandle, void **request)
{
	return without_remote(isend_v6(sendComm, data, size, tag, mhandle, request));
}

static ncclResult_t irecv_v5(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles,
			     void **request)
{
	return without_remote(irecv_v6(recvComm, n, data, sizes, tags, mhandles, request));
}

static ncclResult_t test_v5(void *request, int *done, int *sizes)
{
	return without_remote(test_v6(request, done, sizes));
}

EXPORT const ncclNet_v5_t ncclNetPlugin_v5 = {
	.name = "Mesh",
	.init = init_v5,
	.devices = devices_v5,
	.getProperties = get_properties_v5,
	.listen = listen_v5,
	.connect = connect_v5,
	.accept = accept_v5,
	.regMr = reg_mr_v5,
	.deregMr = dereg_mr_v5,
	.isend = isend_v5,
	.irecv = irecv_v5,
	.iflush = iflush_v5,
	.test = test_v5,
	.closeSend = close_send_v5,
	.closeRecv = close_recv_v5,
	.closeListen = close_listen_v5,
};

EXPORT const ncclNet_v6_t ncclNetPlugin_v6 = {
	.name = "Mesh",
	.init = init_v6,
	.devices = devices_v5,
	.getProperties = get_properties_v5,
	.listen = listen_v5,
	.connect = connect_v6,
	.accept = accept_v6,
	.regMr = reg_mr_v5,
	.regMrDmaBuf = reg_mr_dmabuf_v6,
	.deregMr = dereg_mr_v5,
	.isend = isend_v6,
	.irecv = irecv_v6,
	.iflush = iflush_v5,
	.test = test_v6,
	.closeSend = close_send_v5,
	.closeRecv = close_recv_v5,
	.closeListen = close_listen_v5,
};

EXPORT const ncclNet_v7_t ncclNetPlugin_v7 = {
	.name = "Mesh",
	.init = init_v7,
	.devices = devices_v5,
	.getProperties = get_properties_v7,
	.listen = listen_v5,
	.connect = connect_v7,
	.accept = accept_v7,
	.regMr = reg_mr_v5,
	.regMrDmaBuf = reg_mr_dmabuf_v6,
	.deregMr = dereg_mr_v5,
	.isend = isend_v6,
	.irecv = irecv_v6,
	.iflush = iflush_v5,
	.test = test_v6,
	.closeSend = close_send_v5,
	.closeRecv = close_recv_v5,
	.closeListen = close_listen_v5,
	.getDeviceMr = NULL,
	.irecvConsumed = NULL,
};

EXPORT const ncclNet_v8_t ncclNetPlugin_v8 = {
	.name = "Mesh",
	.init = init_v8,
	.devices = devices_v5,
	.getProperties = get_properties_v8,
	.listen = listen_v5,
	.connect = connect_v7,
	.accept = accept_v7,
	.regMr = reg_mr_v8,
	.regMrDmaBuf = reg_mr_dmabuf_v6,
	.deregMr = dereg_mr_v5,
	.isend = isend_v6,
	.irecv = irecv_v6,
	.iflush = iflush_v5,
	.test = test_v6,
	.closeSend = close_send_v5,
	.closeRecv = close_recv_v5,
	.closeListen = close_listen_v5,
	.getDeviceMr = NULL,
	.irecvConsumed = NULL,
};

EXPORT const ncclNet_v9_t ncclNetPlugin_v9 = {
	.name = "Mesh",
	.init = init_v9,
	.devices = devices_v5,
	.getProperties = get_properties_v9,
	.listen = listen_v5,
	.connect = connect_v7,
	.accept = accept_v7,
	.regMr = reg_mr_v8,
	.regMrDmaBuf = reg_mr_dmabuf_v6,
	.deregMr = dereg_mr_v5,
	.isend = isend_v9,
	.irecv = irecv_v9,
	.iflush = iflush_v5,
	.test = test_v6,
	.closeSend = close_send_v5,
	.closeRecv = close_recv_v5,
	.closeListen = close_listen_v5,
	.getDeviceMr = NULL,
	.irecvConsumed = NULL,
	.makeVDevice = NULL,
};

EXPORT const ncclNet_v10_t ncclNetPlugin_v10 = {
	.name = "Mesh",
	.init = init_v10,
	.devices = devices_v5,
	.getProperties = get_properties_v9,
	.listen = listen_v5,
	.connect = connect_v10,
	.accept = accept_v7,
	.regMr = reg_mr_v8,
	.regMrDmaBuf = reg_mr_dmabuf_v6,
	.deregMr = dereg_mr_v5,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.iflush = iflush_v5,
	.test = test_v6,
	.closeSend = close_send_v5,
	.closeRecv = close_recv_v5,
	.closeListen = close_listen_v5,
	.getDeviceMr = NULL,
	.irecvConsumed = NULL,
	.makeVDevice = NULL,
};

EXPORT const ncclNet_v11_t ncclNetPlugin_v11 = {
	.name = "Mesh",
	.init = init_v11,
	.devices = devices_v5,
	.getProperties = get_properties_v11,
	.listen = listen_v11,
	.connect = connect_v11,
	.accept = accept_v7,
	.regMr = reg_mr_v8,
	.regMrDmaBuf = reg_mr_dmabuf_v6,
	.deregMr = dereg_mr_v5,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.iflush = iflush_v5,
	.test = test_v6,
	.closeSend = close_send_v5,
	.closeRecv = close_recv_v5,
	.closeListen = close_listen_v5,
	.getDeviceMr = NULL,
	.irecvConsumed = NULL,
	.makeVDevice = NULL,
	.finalize = finalize_v11,
	.setNetAttr = set_net_attr_v11,
};

EXPORT const ncclNet_v12_t ncclNetPlugin_v12 = {
	.name = "Mesh",
	.init = init_v12,
	.devices = devices_v5,
	.getProperties = get_properties_v12,
	.listen = listen_v11,
	.connect = connect_v11,
	.accept = accept_v7,
	.regMr = reg_mr_v8,
	.regMrDmaBuf = reg_mr_dmabuf_v6,
	.deregMr = dereg_mr_v5,
	.isend = isend_v10,
	.irecv = irecv_v10,
	.iflush = iflush_v5,
	.test = test_v6,
	.closeSend = close_send_v5,
	.closeRecv = close_recv_v5,
	.closeListen = close_listen_v5,
	.getDeviceMr = NULL,
	.irecvConsumed = NULL,
	.makeVDevice = NULL,
	.finalize = finalize_v11,
	.setNetAttr = set_net_attr_v11,
};
