/*
 * NCCL's network plugin interface, versions 5 to 12, written down from its published
 * facts: what a driver needs and no more. Types and members keep NCCL's names. A
 * version's layout never changed after its release, so every size and offset is asserted.
 *
 * Function types carry the version that introduced the signature; a vtable uses the
 * newest one not newer than itself.
 */
#ifndef NETDRIVER_ABI_H
#define NETDRIVER_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7,
} ncclResult_t;

enum {
	NCCL_NET_HANDLE_MAXSIZE = 128,
	NCCL_NET_MAX_REQUESTS = 32,
	NCCL_NET_MAX_RECVS = 8,
	NCCL_STEPS = 8,
	NCCL_PTR_HOST = 1,
	NCCL_PTR_CUDA = 2,
	NCCL_PTR_DMABUF = 4,
	NCCL_NET_OPTIONAL_RECV_COMPLETION = 1,
	NCCL_NET_DEVICE_HOST = 0,
};

enum {
	NCCL_LOG_NONE = 0,
	NCCL_LOG_VERSION = 1,
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_ABORT = 4,
	NCCL_LOG_TRACE = 5,
};

typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char *file, int line,
                                  const char *fmt, ...);
typedef ncclResult_t (*ncclProfilerCallback_t)(void **eHandle, int type, void *phandle,
                                               int64_t pluginId, void *extData);

/* What the callback is given (nccl_profiler.h, net_ib_v1.h and net_socket_v1.h of NCCL's
 * src/include/plugin). */
enum {
	NCCL_PROFILER_NET_EVENT_START = 0,
	NCCL_PROFILER_NET_EVENT_STOP = 1,
	NCCL_PROFILER_NET_TYPE_IB = 1 << 16, /* and the version of the description */
	NCCL_PROFILER_NET_TYPE_SOCK = 2 << 16,
	NCCL_SOCKET_SEND = 0,
	NCCL_SOCKET_RECV = 1,
};

typedef struct {
	uint8_t type;
	struct {
		int device;
		uint64_t wr_id;
		int opcode;
		int qpNum;
		size_t length;
	} qp;
} ncclProfilerNetIbDescr_v1_t;

typedef struct {
	uint8_t type;
	struct {
		int fd;
		int op;
		size_t length;
	} sock;
} ncclProfilerNetSockDescr_v1_t;

typedef struct {
	int netDeviceType;
	int netDeviceVersion;
	void *handle;
	size_t size;
	int needsProxyProgress;
} ncclNetDeviceHandle_t; /* v7 to v12 */

typedef struct {
	int trafficClass;
} ncclNetCommConfig_t; /* v10 to v12 */

typedef struct {
	int32_t maxConcurrentPeers, minConcurrentPeers, maxFlowsPerPeer, minFlowsPerPeer;
} ncclNetCommAttr_t;

typedef struct {
	ncclNetCommAttr_t send, recv;
	uint32_t op, algo, proto;
} ncclNetAttr_t; /* v11, v12 */

/* Properties. */

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, speed, port;
	float latency;
	int maxComms, maxRecvs;
} ncclNetProperties_v5_t; /* v5, v6 */

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, speed, port;
	float latency;
	int maxComms, maxRecvs, netDeviceType, netDeviceVersion;
} ncclNetProperties_v7_t;

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, regIsGlobal, speed, port;
	float latency;
	int maxComms, maxRecvs, netDeviceType, netDeviceVersion;
} ncclNetProperties_v8_t;

typedef struct {
	int ndevs;
	int devs[4];
} ncclNetVDeviceProps_v9_t; /* v9 to v11 */

typedef struct {
	int ndevs;
	int devs[8];
} ncclNetVDeviceProps_v12_t;

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, regIsGlobal, forceFlush, speed, port;
	float latency;
	int maxComms, maxRecvs, netDeviceType, netDeviceVersion;
	ncclNetVDeviceProps_v9_t vProps;
	size_t maxP2pBytes, maxCollBytes;
} ncclNetProperties_v9_t; /* v9, v10 */

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, regIsGlobal, forceFlush, speed, port;
	float latency;
	int maxComms, maxRecvs, netDeviceType, netDeviceVersion;
	ncclNetVDeviceProps_v9_t vProps;
	size_t maxP2pBytes, maxCollBytes;
	int maxMultiRequestSize;
} ncclNetProperties_v11_t;

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport, regIsGlobal, forceFlush, speed, port;
	float latency;
	int maxComms, maxRecvs, netDeviceType, netDeviceVersion;
	ncclNetVDeviceProps_v12_t vProps;
	size_t maxP2pBytes, maxCollBytes;
	int maxMultiRequestSize;
	int16_t railId, planeId;
} ncclNetProperties_v12_t;

/* Functions. */

typedef ncclResult_t netInit_v5(ncclDebugLogger_t);
typedef ncclResult_t netInit_v10(ncclDebugLogger_t, ncclProfilerCallback_t);
typedef ncclResult_t netInit_v11(void **ctx, uint64_t commId, ncclNetCommConfig_t *,
                                 ncclDebugLogger_t, ncclProfilerCallback_t);
typedef ncclResult_t netDevices(int *ndev);
typedef ncclResult_t netGetProperties_v5(int dev, ncclNetProperties_v5_t *);
typedef ncclResult_t netGetProperties_v7(int dev, ncclNetProperties_v7_t *);
typedef ncclResult_t netGetProperties_v8(int dev, ncclNetProperties_v8_t *);
typedef ncclResult_t netGetProperties_v9(int dev, ncclNetProperties_v9_t *);
typedef ncclResult_t netGetProperties_v11(int dev, ncclNetProperties_v11_t *);
typedef ncclResult_t netGetProperties_v12(int dev, ncclNetProperties_v12_t *);
typedef ncclResult_t netListen_v5(int dev, void *handle, void **listenComm);
typedef ncclResult_t netListen_v11(void *ctx, int dev, void *handle, void **listenComm);
typedef ncclResult_t netConnect_v5(int dev, void *handle, void **sendComm);
typedef ncclResult_t netConnect_v7(int dev, void *handle, void **sendComm, ncclNetDeviceHandle_t **);
typedef ncclResult_t netConnect_v10(int dev, ncclNetCommConfig_t *, void *handle, void **sendComm,
                                    ncclNetDeviceHandle_t **);
typedef ncclResult_t netConnect_v11(void *ctx, int dev, void *handle, void **sendComm,
                                    ncclNetDeviceHandle_t **);
typedef ncclResult_t netAccept_v5(void *listenComm, void **recvComm);
typedef ncclResult_t netAccept_v7(void *listenComm, void **recvComm, ncclNetDeviceHandle_t **);
typedef ncclResult_t netRegMr_v5(void *comm, void *data, int size, int type, void **mhandle);
typedef ncclResult_t netRegMr_v8(void *comm, void *data, size_t size, int type, void **mhandle);
typedef ncclResult_t netRegMrDmaBuf(void *comm, void *data, size_t size, int type, uint64_t offset,
                                    int fd, void **mhandle);
typedef ncclResult_t netDeregMr(void *comm, void *mhandle);
typedef ncclResult_t netIsend_v5(void *sendComm, void *data, int size, int tag, void *mhandle,
                                 void **request);
typedef ncclResult_t netIsend_v9(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                                 void **request);
typedef ncclResult_t netIsend_v10(void *sendComm, void *data, size_t size, int tag, void *mhandle,
                                  void *phandle, void **request);
typedef ncclResult_t netIrecv_v5(void *recvComm, int n, void **data, int *sizes, int *tags,
                                 void **mhandles, void **request);
typedef ncclResult_t netIrecv_v9(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                                 void **mhandles, void **request);
typedef ncclResult_t netIrecv_v10(void *recvComm, int n, void **data, size_t *sizes, int *tags,
                                  void **mhandles, void **phandles, void **request);
typedef ncclResult_t netIflush(void *recvComm, int n, void **data, int *sizes, void **mhandles,
                               void **request);
typedef ncclResult_t netTest(void *request, int *done, int *sizes);
typedef ncclResult_t netClose(void *comm);
typedef ncclResult_t netGetDeviceMr(void *comm, void *mhandle, void **dptr_mhandle);
typedef ncclResult_t netIrecvConsumed(void *recvComm, int n, void *request);
typedef ncclResult_t netMakeVDevice_v9(int *d, ncclNetVDeviceProps_v9_t *);
typedef ncclResult_t netMakeVDevice_v12(int *d, ncclNetVDeviceProps_v12_t *);
typedef ncclResult_t netFinalize(void *ctx);
typedef ncclResult_t netSetNetAttr(void *ctx, ncclNetAttr_t *);

/* The vtables: one member a line, in order. */

typedef struct {
	const char *name;
	netInit_v5 *init;
	netDevices *devices;
	netGetProperties_v5 *getProperties;
	netListen_v5 *listen;
	netConnect_v5 *connect;
	netAccept_v5 *accept;
	netRegMr_v5 *regMr;
	netDeregMr *deregMr;
	netIsend_v5 *isend;
	netIrecv_v5 *irecv;
	netIflush *iflush;
	netTest *test;
	netClose *closeSend;
	netClose *closeRecv;
	netClose *closeListen;
} ncclNet_v5_t;

typedef struct {
	const char *name;
	netInit_v5 *init;
	netDevices *devices;
	netGetProperties_v5 *getProperties;
	netListen_v5 *listen;
	netConnect_v5 *connect;
	netAccept_v5 *accept;
	netRegMr_v5 *regMr;
	netRegMrDmaBuf *regMrDmaBuf;
	netDeregMr *deregMr;
	netIsend_v5 *isend;
	netIrecv_v5 *irecv;
	netIflush *iflush;
	netTest *test;
	netClose *closeSend;
	netClose *closeRecv;
	netClose *closeListen;
} ncclNet_v6_t;

typedef struct {
	const char *name;
	netInit_v5 *init;
	netDevices *devices;
	netGetProperties_v7 *getProperties;
	netListen_v5 *listen;
	netConnect_v7 *connect;
	netAccept_v7 *accept;
	netRegMr_v5 *regMr;
	netRegMrDmaBuf *regMrDmaBuf;
	netDeregMr *deregMr;
	netIsend_v5 *isend;
	netIrecv_v5 *irecv;
	netIflush *iflush;
	netTest *test;
	netClose *closeSend;
	netClose *closeRecv;
	netClose *closeListen;
	netGetDeviceMr *getDeviceMr;
	netIrecvConsumed *irecvConsumed;
} ncclNet_v7_t;

typedef struct {
	const char *name;
	netInit_v5 *init;
	netDevices *devices;
	netGetProperties_v8 *getProperties;
	netListen_v5 *listen;
	netConnect_v7 *connect;
	netAccept_v7 *accept;
	netRegMr_v8 *regMr;
	netRegMrDmaBuf *regMrDmaBuf;
	netDeregMr *deregMr;
	netIsend_v5 *isend;
	netIrecv_v5 *irecv;
	netIflush *iflush;
	netTest *test;
	netClose *closeSend;
	netClose *closeRecv;
	netClose *closeListen;
	netGetDeviceMr *getDeviceMr;
	netIrecvConsumed *irecvConsumed;
} ncclNet_v8_t;

typedef struct {
	const char *name;
	netInit_v5 *init;
	netDevices *devices;
	netGetProperties_v9 *getProperties;
	netListen_v5 *listen;
	netConnect_v7 *connect;
	netAccept_v7 *accept;
	netRegMr_v8 *regMr;
	netRegMrDmaBuf *regMrDmaBuf;
	netDeregMr *deregMr;
	netIsend_v9 *isend;
	netIrecv_v9 *irecv;
	netIflush *iflush;
	netTest *test;
	netClose *closeSend;
	netClose *closeRecv;
	netClose *closeListen;
	netGetDeviceMr *getDeviceMr;
	netIrecvConsumed *irecvConsumed;
	netMakeVDevice_v9 *makeVDevice;
} ncclNet_v9_t;

typedef struct {
	const char *name;
	netInit_v10 *init;
	netDevices *devices;
	netGetProperties_v9 *getProperties;
	netListen_v5 *listen;
	netConnect_v10 *connect;
	netAccept_v7 *accept;
	netRegMr_v8 *regMr;
	netRegMrDmaBuf *regMrDmaBuf;
	netDeregMr *deregMr;
	netIsend_v10 *isend;
	netIrecv_v10 *irecv;
	netIflush *iflush;
	netTest *test;
	netClose *closeSend;
	netClose *closeRecv;
	netClose *closeListen;
	netGetDeviceMr *getDeviceMr;
	netIrecvConsumed *irecvConsumed;
	netMakeVDevice_v9 *makeVDevice;
} ncclNet_v10_t;

typedef struct {
	const char *name;
	netInit_v11 *init;
	netDevices *devices;
	netGetProperties_v11 *getProperties;
	netListen_v11 *listen;
	netConnect_v11 *connect;
	netAccept_v7 *accept;
	netRegMr_v8 *regMr;
	netRegMrDmaBuf *regMrDmaBuf;
	netDeregMr *deregMr;
	netIsend_v10 *isend;
	netIrecv_v10 *irecv;
	netIflush *iflush;
	netTest *test;
	netClose *closeSend;
	netClose *closeRecv;
	netClose *closeListen;
	netGetDeviceMr *getDeviceMr;
	netIrecvConsumed *irecvConsumed;
	netMakeVDevice_v9 *makeVDevice;
	netFinalize *finalize;
	netSetNetAttr *setNetAttr;
} ncclNet_v11_t;

typedef struct {
	const char *name;
	netInit_v11 *init;
	netDevices *devices;
	netGetProperties_v12 *getProperties;
	netListen_v11 *listen;
	netConnect_v11 *connect;
	netAccept_v7 *accept;
	netRegMr_v8 *regMr;
	netRegMrDmaBuf *regMrDmaBuf;
	netDeregMr *deregMr;
	netIsend_v10 *isend;
	netIrecv_v10 *irecv;
	netIflush *iflush;
	netTest *test;
	netClose *closeSend;
	netClose *closeRecv;
	netClose *closeListen;
	netGetDeviceMr *getDeviceMr;
	netIrecvConsumed *irecvConsumed;
	netMakeVDevice_v12 *makeVDevice;
	netFinalize *finalize;
	netSetNetAttr *setNetAttr;
} ncclNet_v12_t;

#define ABI_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " size")
#define ABI_AT(type, member, at) \
	_Static_assert(offsetof(type, member) == (at), #type "." #member " offset")

ABI_SIZE(ncclResult_t, 4);
ABI_SIZE(ncclNetDeviceHandle_t, 32);
ABI_AT(ncclNetDeviceHandle_t, handle, 8);
ABI_AT(ncclNetDeviceHandle_t, size, 16);
ABI_AT(ncclNetDeviceHandle_t, needsProxyProgress, 24);
ABI_SIZE(ncclNetCommConfig_t, 4);
ABI_SIZE(ncclNetAttr_t, 44);
ABI_AT(ncclNetAttr_t, recv, 16);
ABI_AT(ncclNetAttr_t, op, 32);

ABI_SIZE(ncclNetProperties_v5_t, 48);
ABI_AT(ncclNetProperties_v5_t, speed, 28);
ABI_AT(ncclNetProperties_v5_t, latency, 36);
ABI_AT(ncclNetProperties_v5_t, maxRecvs, 44);
ABI_SIZE(ncclNetProperties_v7_t, 56);
ABI_AT(ncclNetProperties_v7_t, netDeviceType, 48);
ABI_SIZE(ncclNetProperties_v8_t, 64);
ABI_AT(ncclNetProperties_v8_t, regIsGlobal, 28);
ABI_AT(ncclNetProperties_v8_t, speed, 32);
ABI_AT(ncclNetProperties_v8_t, netDeviceVersion, 56);
ABI_SIZE(ncclNetVDeviceProps_v9_t, 20);
ABI_SIZE(ncclNetVDeviceProps_v12_t, 36);
ABI_SIZE(ncclNetProperties_v9_t, 104);
ABI_AT(ncclNetProperties_v9_t, forceFlush, 32);
ABI_AT(ncclNetProperties_v9_t, vProps, 64);
ABI_AT(ncclNetProperties_v9_t, maxP2pBytes, 88);
ABI_AT(ncclNetProperties_v9_t, maxCollBytes, 96);
ABI_SIZE(ncclNetProperties_v11_t, 112);
ABI_AT(ncclNetProperties_v11_t, maxP2pBytes, 88);
ABI_AT(ncclNetProperties_v11_t, maxMultiRequestSize, 104);
ABI_SIZE(ncclNetProperties_v12_t, 128);
ABI_AT(ncclNetProperties_v12_t, speed, 36);
ABI_AT(ncclNetProperties_v12_t, netDeviceVersion, 60);
ABI_AT(ncclNetProperties_v12_t, vProps, 64);
ABI_AT(ncclNetProperties_v12_t, maxP2pBytes, 104);
ABI_AT(ncclNetProperties_v12_t, maxMultiRequestSize, 120);
ABI_AT(ncclNetProperties_v12_t, railId, 124);
ABI_AT(ncclNetProperties_v12_t, planeId, 126);

ABI_SIZE(ncclProfilerNetIbDescr_v1_t, 40);
ABI_AT(ncclProfilerNetIbDescr_v1_t, qp.qpNum, 28);
ABI_AT(ncclProfilerNetIbDescr_v1_t, qp.length, 32);
ABI_SIZE(ncclProfilerNetSockDescr_v1_t, 24);
ABI_AT(ncclProfilerNetSockDescr_v1_t, sock.length, 16);

ABI_SIZE(ncclNet_v5_t, 128);
ABI_SIZE(ncclNet_v6_t, 136);
ABI_SIZE(ncclNet_v7_t, 152);
ABI_SIZE(ncclNet_v8_t, 152);
ABI_SIZE(ncclNet_v9_t, 160);
ABI_SIZE(ncclNet_v10_t, 160);
ABI_SIZE(ncclNet_v11_t, 176);
ABI_SIZE(ncclNet_v12_t, 176);
ABI_AT(ncclNet_v5_t, isend, 72);
ABI_AT(ncclNet_v6_t, isend, 80);
ABI_AT(ncclNet_v7_t, irecvConsumed, 144);
ABI_AT(ncclNet_v9_t, makeVDevice, 152);
ABI_AT(ncclNet_v12_t, isend, 80);
ABI_AT(ncclNet_v12_t, finalize, 160);
ABI_AT(ncclNet_v12_t, setNetAttr, 168);

#endif
