/*
 * NCCL's network plugin interface, versions 5 to 12: the memory layout that
 * libnccl agrees on with a plugin. A version never changed after its release,
 * so nor does anything here; the assertions at the end hold it in place.
 * LP64, the same on x86-64 and AArch64.
 */
#ifndef MESH_ABI_H
#define MESH_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6, /* unknown to NCCL 2.12 */
	ncclInProgress = 7,
} ncclResult_t;

typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char *file, int line, const char *fmt, ...);
typedef ncclResult_t (*ncclProfilerCallback_t)(void **eHandle, int type, void *phandle, int64_t pluginId,
					       void *extData);

/*
 * What the profiler's callback is given: types of calls, what kind of network an event
 * is of and in which version of its description (src/include/plugin/nccl_profiler.h),
 * and the descriptions (src/include/plugin/profiler/net_ib_v1.h, net_socket_v1.h).
 */
#define NCCL_PROFILER_NET_EVENT_START 0
#define NCCL_PROFILER_NET_EVENT_STOP 1
#define NCCL_PROFILER_NET_TYPE_IB (1 << 16)
#define NCCL_PROFILER_NET_TYPE_SOCK (2 << 16)
#define NCCL_PROFILER_NET_IB_VER 1
#define NCCL_PROFILER_NET_SOCKET_VER 1

typedef struct {
	uint8_t type; /* NCCL_PROFILE_QP */
	struct {
		int device;
		uint64_t wr_id;
		int opcode; /* an ibv_wr_opcode */
		int qpNum;
		size_t length;
	} qp;
} ncclProfilerNetIbDescr_v1_t;

typedef struct {
	uint8_t type; /* NCCL_PROFILE_SOCKET */
	struct {
		int fd;
		int op; /* NCCL_SOCKET_SEND or NCCL_SOCKET_RECV */
		size_t length;
	} sock;
} ncclProfilerNetSockDescr_v1_t;

#define NCCL_PROFILE_QP 1
#define NCCL_PROFILE_SOCKET 1
#define NCCL_SOCKET_SEND 0
#define NCCL_SOCKET_RECV 1

#define NCCL_NET_HANDLE_MAXSIZE 128
#define NCCL_PTR_HOST 1
#define NCCL_NET_DEVICE_HOST 0
#define NCCL_NET_DEVICE_INVALID_VERSION 0
#define NCCL_NET_TRAFFIC_CLASS_UNDEF (-1)
#define NCCL_NET_MAX_DEVS_PER_NIC_v9 4
#define NCCL_NET_MAX_DEVS_PER_NIC_v12 8

/* Never filled: the data stays on the host. */
typedef struct ncclNetDeviceHandle ncclNetDeviceHandle_t;

typedef struct {
	int trafficClass;
} ncclNetCommConfig_v10_t;

typedef struct {
	int ndevs;
	int devs[NCCL_NET_MAX_DEVS_PER_NIC_v9];
} ncclNetVDeviceProps_v9_t;

typedef struct {
	int ndevs;
	int devs[NCCL_NET_MAX_DEVS_PER_NIC_v12];
} ncclNetVDeviceProps_v12_t;

typedef struct ncclNetAttr ncclNetAttr_t; /* hints, not used */

typedef struct {
	char *name;
	char *pciPath;
	uint64_t guid;
	int ptrSupport;
	int speed;
	int port;
	float latency;
	int maxComms;
	int maxRecvs;
} ncclNetProperties_v5_t; /* also version 6 */

typedef struct {
	char *name;
	char *pciPath;
	uint64_t guid;
	int ptrSupport;
	int speed;
	int port;
	float latency;
	int maxComms;
	int maxRecvs;
	int netDeviceType;
	int netDeviceVersion;
} ncclNetProperties_v7_t;

typedef struct {
	char *name;
	char *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int speed;
	int port;
	float latency;
	int maxComms;
	int maxRecvs;
	int netDeviceType;
	int netDeviceVersion;
} ncclNetProperties_v8_t;

typedef struct {
	char *name;
	char *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int forceFlush;
	int speed;
	int port;
	float latency;
	int maxComms;
	int maxRecvs;
	int netDeviceType;
	int netDeviceVersion;
	ncclNetVDeviceProps_v9_t vProps;
	size_t maxP2pBytes;
	size_t maxCollBytes;
} ncclNetProperties_v9_t; /* also version 10 */

typedef struct {
	char *name;
	char *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int forceFlush;
	int speed;
	int port;
	float latency;
	int maxComms;
	int maxRecvs;
	int netDeviceType;
	int netDeviceVersion;
	ncclNetVDeviceProps_v9_t vProps;
	size_t maxP2pBytes;
	size_t maxCollBytes;
	int maxMultiRequestSize;
} ncclNetProperties_v11_t;

typedef struct {
	char *name;
	char *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int forceFlush;
	int speed;
	int port;
	float latency;
	int maxComms;
	int maxRecvs;
	int netDeviceType;
	int netDeviceVersion;
	ncclNetVDeviceProps_v12_t vProps;
	size_t maxP2pBytes;
	size_t maxCollBytes;
	int maxMultiRequestSize;
	int16_t railId;
	int16_t planeId;
} ncclNetProperties_v12_t;

/*
 * The signatures, each named for the version that brought it in; later versions
 * use it until the next one of the same name.
 */
typedef ncclResult_t init_v5_fn(ncclDebugLogger_t logger);
typedef ncclResult_t init_v10_fn(ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
typedef ncclResult_t init_v11_fn(void **ctx, uint64_t commId, ncclNetCommConfig_v10_t *config,
				 ncclDebugLogger_t logger, ncclProfilerCallback_t profiler);
typedef ncclResult_t devices_v5_fn(int *ndev);
typedef ncclResult_t getProperties_v5_fn(int dev, ncclNetProperties_v5_t *props);
typedef ncclResult_t getProperties_v7_fn(int dev, ncclNetProperties_v7_t *props);
typedef ncclResult_t getProperties_v8_fn(int dev, ncclNetProperties_v8_t *props);
typedef ncclResult_t getProperties_v9_fn(int dev, ncclNetProperties_v9_t *props);
typedef ncclResult_t getProperties_v11_fn(int dev, ncclNetProperties_v11_t *props);
typedef ncclResult_t getProperties_v12_fn(int dev, ncclNetProperties_v12_t *props);
typedef ncclResult_t listen_v5_fn(int dev, void *handle, void **listenComm);
typedef ncclResult_t listen_v11_fn(void *ctx, int dev, void *handle, void **listenComm);
typedef ncclResult_t connect_v5_fn(int dev, void *handle, void **sendComm);
typedef ncclResult_t connect_v7_fn(int dev, void *handle, void **sendComm, ncclNetDeviceHandle_t **sendDevComm);
typedef ncclResult_t connect_v10_fn(int dev, ncclNetCommConfig_v10_t *config, void *handle, void **sendComm,
				    ncclNetDeviceHandle_t **sendDevComm);
typedef ncclResult_t connect_v11_fn(void *ctx, int dev, void *handle, void **sendComm,
				    ncclNetDeviceHandle_t **sendDevComm);
typedef ncclResult_t accept_v5_fn(void *listenComm, void **recvComm);
typedef ncclResult_t accept_v7_fn(void *listenComm, void **recvComm, ncclNetDeviceHandle_t **recvDevComm);
typedef ncclResult_t regMr_v5_fn(void *comm, void *data, int size, int type, void **mhandle);
typedef ncclResult_t regMr_v8_fn(void *comm, void *data, size_t size, int type, void **mhandle);
typedef ncclResult_t regMrDmaBuf_v6_fn(void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
				       void **mhandle);
typedef ncclResult_t deregMr_v5_fn(void *comm, void *mhandle);
typedef ncclResult_t isend_v5_fn(void *sendComm, void *data, int size, int tag, void *mhandle, void **request);
typedef ncclResult_t isend_v9_fn(void *sendComm, void *data, size_t size, int tag, void *mhandle, void **request);
typedef ncclResult_t isend_v10_fn(void *sendComm, void *data, size_t size, int tag, void *mhandle, void *phandle,
				  void **request);
typedef ncclResult_t irecv_v5_fn(void *recvComm, int n, void **data, int *sizes, int *tags, void **mhandles,
				 void **request);
typedef ncclResult_t irecv_v9_fn(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
				 void **request);
typedef ncclResult_t irecv_v10_fn(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
				  void **phandles, void **request);
typedef ncclResult_t iflush_v5_fn(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
typedef ncclResult_t test_v5_fn(void *request, int *done, int *sizes);
typedef ncclResult_t close_v5_fn(void *comm);
typedef ncclResult_t getDeviceMr_v7_fn(void *comm, void *mhandle, void **dptr_mhandle);
typedef ncclResult_t irecvConsumed_v7_fn(void *recvComm, int n, void *request);
typedef ncclResult_t makeVDevice_v9_fn(int *d, ncclNetVDeviceProps_v9_t *props);
typedef ncclResult_t makeVDevice_v12_fn(int *d, ncclNetVDeviceProps_v12_t *props);
typedef ncclResult_t finalize_v11_fn(void *ctx);
typedef ncclResult_t setNetAttr_v11_fn(void *ctx, ncclNetAttr_t *attr);

typedef struct {
	const char *name;
	init_v5_fn *init;
	devices_v5_fn *devices;
	getProperties_v5_fn *getProperties;
	listen_v5_fn *listen;
	connect_v5_fn *connect;
	accept_v5_fn *accept;
	regMr_v5_fn *regMr;
	deregMr_v5_fn *deregMr;
	isend_v5_fn *isend;
	irecv_v5_fn *irecv;
	iflush_v5_fn *iflush;
	test_v5_fn *test;
	close_v5_fn *closeSend;
	close_v5_fn *closeRecv;
	close_v5_fn *closeListen;
} ncclNet_v5_t;

typedef struct {
	const char *name;
	init_v5_fn *init;
	devices_v5_fn *devices;
	getProperties_v5_fn *getProperties;
	listen_v5_fn *listen;
	connect_v5_fn *connect;
	accept_v5_fn *accept;
	regMr_v5_fn *regMr;
	regMrDmaBuf_v6_fn *regMrDmaBuf;
	deregMr_v5_fn *deregMr;
	isend_v5_fn *isend;
	irecv_v5_fn *irecv;
	iflush_v5_fn *iflush;
	test_v5_fn *test;
	close_v5_fn *closeSend;
	close_v5_fn *closeRecv;
	close_v5_fn *closeListen;
} ncclNet_v6_t;

typedef struct {
	const char *name;
	init_v5_fn *init;
	devices_v5_fn *devices;
	getProperties_v7_fn *getProperties;
	listen_v5_fn *listen;
	connect_v7_fn *connect;
	accept_v7_fn *accept;
	regMr_v5_fn *regMr;
	regMrDmaBuf_v6_fn *regMrDmaBuf;
	deregMr_v5_fn *deregMr;
	isend_v5_fn *isend;
	irecv_v5_fn *irecv;
	iflush_v5_fn *iflush;
	test_v5_fn *test;
	close_v5_fn *closeSend;
	close_v5_fn *closeRecv;
	close_v5_fn *closeListen;
	getDeviceMr_v7_fn *getDeviceMr;
	irecvConsumed_v7_fn *irecvConsumed;
} ncclNet_v7_t;

typedef struct {
	const char *name;
	init_v5_fn *init;
	devices_v5_fn *devices;
	getProperties_v8_fn *getProperties;
	listen_v5_fn *listen;
	connect_v7_fn *connect;
	accept_v7_fn *accept;
	regMr_v8_fn *regMr;
	regMrDmaBuf_v6_fn *regMrDmaBuf;
	deregMr_v5_fn *deregMr;
	isend_v5_fn *isend;
	irecv_v5_fn *irecv;
	iflush_v5_fn *iflush;
	test_v5_fn *test;
	close_v5_fn *closeSend;
	close_v5_fn *closeRecv;
	close_v5_fn *closeListen;
	getDeviceMr_v7_fn *getDeviceMr;
	irecvConsumed_v7_fn *irecvConsumed;
} ncclNet_v8_t;

typedef struct {
	const char *name;
	init_v5_fn *init;
	devices_v5_fn *devices;
	getProperties_v9_fn *getProperties;
	listen_v5_fn *listen;
	connect_v7_fn *connect;
	accept_v7_fn *accept;
	regMr_v8_fn *regMr;
	regMrDmaBuf_v6_fn *regMrDmaBuf;
	deregMr_v5_fn *deregMr;
	isend_v9_fn *isend;
	irecv_v9_fn *irecv;
	iflush_v5_fn *iflush;
	test_v5_fn *test;
	close_v5_fn *closeSend;
	close_v5_fn *closeRecv;
	close_v5_fn *closeListen;
	getDeviceMr_v7_fn *getDeviceMr;
	irecvConsumed_v7_fn *irecvConsumed;
	makeVDevice_v9_fn *makeVDevice;
} ncclNet_v9_t;

typedef struct {
	const char *name;
	init_v10_fn *init;
	devices_v5_fn *devices;
	getProperties_v9_fn *getProperties;
	listen_v5_fn *listen;
	connect_v10_fn *connect;
	accept_v7_fn *accept;
	regMr_v8_fn *regMr;
	regMrDmaBuf_v6_fn *regMrDmaBuf;
	deregMr_v5_fn *deregMr;
	isend_v10_fn *isend;
	irecv_v10_fn *irecv;
	iflush_v5_fn *iflush;
	test_v5_fn *test;
	close_v5_fn *closeSend;
	close_v5_fn *closeRecv;
	close_v5_fn *closeListen;
	getDeviceMr_v7_fn *getDeviceMr;
	irecvConsumed_v7_fn *irecvConsumed;
	makeVDevice_v9_fn *makeVDevice;
} ncclNet_v10_t;

typedef struct {
	const char *name;
	init_v11_fn *init;
	devices_v5_fn *devices;
	getProperties_v11_fn *getProperties;
	listen_v11_fn *listen;
	connect_v11_fn *connect;
	accept_v7_fn *accept;
	regMr_v8_fn *regMr;
	regMrDmaBuf_v6_fn *regMrDmaBuf;
	deregMr_v5_fn *deregMr;
	isend_v10_fn *isend;
	irecv_v10_fn *irecv;
	iflush_v5_fn *iflush;
	test_v5_fn *test;
	close_v5_fn *closeSend;
	close_v5_fn *closeRecv;
	close_v5_fn *closeListen;
	getDeviceMr_v7_fn *getDeviceMr;
	irecvConsumed_v7_fn *irecvConsumed;
	makeVDevice_v9_fn *makeVDevice;
	finalize_v11_fn *finalize;
	setNetAttr_v11_fn *setNetAttr;
} ncclNet_v11_t;

typedef struct {
	const char *name;
	init_v11_fn *init;
	devices_v5_fn *devices;
	getProperties_v12_fn *getProperties;
	listen_v11_fn *listen;
	connect_v11_fn *connect;
	accept_v7_fn *accept;
	regMr_v8_fn *regMr;
	regMrDmaBuf_v6_fn *regMrDmaBuf;
	deregMr_v5_fn *deregMr;
	isend_v10_fn *isend;
	irecv_v10_fn *irecv;
	iflush_v5_fn *iflush;
	test_v5_fn *test;
	close_v5_fn *closeSend;
	close_v5_fn *closeRecv;
	close_v5_fn *closeListen;
	getDeviceMr_v7_fn *getDeviceMr;
	irecvConsumed_v7_fn *irecvConsumed;
	makeVDevice_v12_fn *makeVDevice;
	finalize_v11_fn *finalize;
	setNetAttr_v11_fn *setNetAttr;
} ncclNet_v12_t;

#define MESH_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has the wrong size")
#define MESH_AT(type, member, offset)                                                                                \
	_Static_assert(offsetof(type, member) == (offset), #type "." #member " is in the wrong place")

MESH_SIZE(ncclNetVDeviceProps_v9_t, 20);
MESH_SIZE(ncclNetVDeviceProps_v12_t, 36);

MESH_SIZE(ncclNetProperties_v5_t, 48);
MESH_AT(ncclNetProperties_v5_t, name, 0);
MESH_AT(ncclNetProperties_v5_t, pciPath, 8);
MESH_AT(ncclNetProperties_v5_t, guid, 16);
MESH_AT(ncclNetProperties_v5_t, ptrSupport, 24);
MESH_AT(ncclNetProperties_v5_t, speed, 28);
MESH_AT(ncclNetProperties_v5_t, port, 32);
MESH_AT(ncclNetProperties_v5_t, latency, 36);
MESH_AT(ncclNetProperties_v5_t, maxComms, 40);
MESH_AT(ncclNetProperties_v5_t, maxRecvs, 44);

MESH_SIZE(ncclNetProperties_v7_t, 56);
MESH_AT(ncclNetProperties_v7_t, speed, 28);
MESH_AT(ncclNetProperties_v7_t, maxRecvs, 44);
MESH_AT(ncclNetProperties_v7_t, netDeviceType, 48);
MESH_AT(ncclNetProperties_v7_t, netDeviceVersion, 52);

MESH_SIZE(ncclNetProperties_v8_t, 64);
MESH_AT(ncclNetProperties_v8_t, regIsGlobal, 28);
MESH_AT(ncclNetProperties_v8_t, speed, 32);
MESH_AT(ncclNetProperties_v8_t, port, 36);
MESH_AT(ncclNetProperties_v8_t, latency, 40);
MESH_AT(ncclNetProperties_v8_t, maxComms, 44);
MESH_AT(ncclNetProperties_v8_t, maxRecvs, 48);
MESH_AT(ncclNetProperties_v8_t, netDeviceType, 52);
MESH_AT(ncclNetProperties_v8_t, netDeviceVersion, 56);

#define MESH_PROPERTIES_V9(type)                                                                                     \
	MESH_AT(type, name, 0);                                                                                      \
	MESH_AT(type, pciPath, 8);                                                                                   \
	MESH_AT(type, guid, 16);                                                                                     \
	MESH_AT(type, ptrSupport, 24);                                                                               \
	MESH_AT(type, regIsGlobal, 28);                                                                              \
	MESH_AT(type, forceFlush, 32);                                                                               \
	MESH_AT(type, speed, 36);                                                                                    \
	MESH_AT(type, port, 40);                                                                                     \
	MESH_AT(type, latency, 44);                                                                                  \
	MESH_AT(type, maxComms, 48);                                                                                 \
	MESH_AT(type, maxRecvs, 52);                                                                                 \
	MESH_AT(type, netDeviceType, 56);                                                                            \
	MESH_AT(type, netDeviceVersion, 60);                                                                         \
	MESH_AT(type, vProps, 64)

MESH_PROPERTIES_V9(ncclNetProperties_v9_t);
MESH_SIZE(ncclNetProperties_v9_t, 104);
MESH_AT(ncclNetProperties_v9_t, maxP2pBytes, 88);
MESH_AT(ncclNetProperties_v9_t, maxCollBytes, 96);

MESH_PROPERTIES_V9(ncclNetProperties_v11_t);
MESH_SIZE(ncclNetProperties_v11_t, 112);
MESH_AT(ncclNetProperties_v11_t, maxP2pBytes, 88);
MESH_AT(ncclNetProperties_v11_t, maxCollBytes, 96);
MESH_AT(ncclNetProperties_v11_t, maxMultiRequestSize, 104);

MESH_PROPERTIES_V9(ncclNetProperties_v12_t);
MESH_SIZE(ncclNetProperties_v12_t, 128);
MESH_AT(ncclNetProperties_v12_t, maxP2pBytes, 104);
MESH_AT(ncclNetProperties_v12_t, maxCollBytes, 112);
MESH_AT(ncclNetProperties_v12_t, maxMultiRequestSize, 120);
MESH_AT(ncclNetProperties_v12_t, railId, 124);
MESH_AT(ncclNetProperties_v12_t, planeId, 126);

/* A vtable is an array of pointers; a few of them pin the order. */
#define MESH_SLOT(type, member, slot) MESH_AT(type, member, (slot) * sizeof(void *))

MESH_SIZE(ncclProfilerNetIbDescr_v1_t, 40);
MESH_AT(ncclProfilerNetIbDescr_v1_t, qp.device, 8);
MESH_AT(ncclProfilerNetIbDescr_v1_t, qp.wr_id, 16);
MESH_AT(ncclProfilerNetIbDescr_v1_t, qp.opcode, 24);
MESH_AT(ncclProfilerNetIbDescr_v1_t, qp.qpNum, 28);
MESH_AT(ncclProfilerNetIbDescr_v1_t, qp.length, 32);
MESH_SIZE(ncclProfilerNetSockDescr_v1_t, 24);
MESH_AT(ncclProfilerNetSockDescr_v1_t, sock.fd, 8);
MESH_AT(ncclProfilerNetSockDescr_v1_t, sock.op, 12);
MESH_AT(ncclProfilerNetSockDescr_v1_t, sock.length, 16);

MESH_SIZE(ncclNet_v5_t, 128);
MESH_SLOT(ncclNet_v5_t, deregMr, 8);
MESH_SLOT(ncclNet_v5_t, closeListen, 15);
MESH_SIZE(ncclNet_v6_t, 136);
MESH_SLOT(ncclNet_v6_t, regMrDmaBuf, 8);
MESH_SLOT(ncclNet_v6_t, closeListen, 16);
MESH_SIZE(ncclNet_v7_t, 152);
MESH_SLOT(ncclNet_v7_t, test, 13);
MESH_SLOT(ncclNet_v7_t, irecvConsumed, 18);
MESH_SIZE(ncclNet_v8_t, 152);
MESH_SLOT(ncclNet_v8_t, test, 13);
MESH_SLOT(ncclNet_v8_t, irecvConsumed, 18);
MESH_SIZE(ncclNet_v9_t, 160);
MESH_SLOT(ncclNet_v9_t, test, 13);
MESH_SLOT(ncclNet_v9_t, makeVDevice, 19);
MESH_SIZE(ncclNet_v10_t, 160);
MESH_SLOT(ncclNet_v10_t, test, 13);
MESH_SLOT(ncclNet_v10_t, makeVDevice, 19);
MESH_SIZE(ncclNet_v11_t, 176);
MESH_SLOT(ncclNet_v11_t, listen, 4);
MESH_SLOT(ncclNet_v11_t, test, 13);
MESH_SLOT(ncclNet_v11_t, finalize, 20);
MESH_SLOT(ncclNet_v11_t, setNetAttr, 21);
MESH_SIZE(ncclNet_v12_t, 176);
MESH_SLOT(ncclNet_v12_t, listen, 4);
MESH_SLOT(ncclNet_v12_t, test, 13);
MESH_SLOT(ncclNet_v12_t, finalize, 20);
MESH_SLOT(ncclNet_v12_t, setNetAttr, 21);

#endif
