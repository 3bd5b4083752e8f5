/*
 * The functions that the C and the Go half of the plugin call in each other. Handles are
 * numbers; pointers belong to the caller and are not kept.
 */
#ifndef MESH_PLUGIN_H
#define MESH_PLUGIN_H

#include "abi.h"
#include "host/host.h"

#define EXPORT __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))

#define REFUSE_IN_CHILD()                                                                                            \
	do {                                                                                                         \
		if (__builtin_expect(mesh_forked, 0))                                                                \
			return ncclSystemError;                                                                      \
	} while (0)

#define MESH_MAX_RECVS 8

/* The NCCL that initialises the network. */
struct mesh_caller {
	int interface_version;
	int nccl_version; /* 0 if unknown */
	uintptr_t profiler; /* an ncclProfilerCallback_t, or 0 */
};

/* The members of all versions of ncclNetProperties. */
struct mesh_properties {
	char *name;
	char *pciPath; /* or NULL */
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
	size_t maxP2pBytes;
	size_t maxCollBytes;
	int maxMultiRequestSize;
	int16_t railId;
	int16_t planeId;
};

/* A part of a message on a lane, as Event in package ncclnet. */
struct mesh_event {
	int socket; /* 1: a socket, 0: a queue pair */
	int sending;
	int lane;
	int number; /* of the queue pair or of the file descriptor */
	uint64_t request;
	size_t length;
};

/* The tuner's answers for one mesh, as Table in package tuner. They do not change once they are made. */
#define MESH_TUNER_FUNCS 5
#define MESH_TUNER_CLASSES 160
#define MESH_TUNER_CHOICES 6

struct mesh_tuner {
	int last_resorts; /* NCCL may have marked some choices as last resorts */
	struct mesh_tuner_row {
		uint8_t n;
		uint8_t cell[MESH_TUNER_CHOICES]; /* indices in NCCL's table of costs, fastest first */
		uint8_t channels[MESH_TUNER_CHOICES];
		uint8_t pad[3];
	} rows[MESH_TUNER_FUNCS][MESH_TUNER_CLASSES];
	uint32_t chunks[MESH_TUNER_FUNCS][MESH_TUNER_CLASSES]; /* chunk sizes; 0: NCCL's */
};

/* In Go. Each function writes its result arguments on success only. */
ncclResult_t meshInit(uintptr_t *ctx, struct mesh_caller caller, int trafficClass, ncclDebugLogger_t logger);
ncclResult_t meshInitShared(struct mesh_caller caller, ncclDebugLogger_t logger);
ncclResult_t meshFinalize(uintptr_t ctx);
ncclResult_t meshDevices(int *ndev);
ncclResult_t meshProperties(int dev, struct mesh_properties *props);
ncclResult_t meshListen(uintptr_t ctx, int dev, uint8_t *handle, uintptr_t *listenComm);
ncclResult_t meshConnect(uintptr_t ctx, int dev, uint8_t *handle, uintptr_t *sendComm);
ncclResult_t meshAccept(uintptr_t listenComm, uintptr_t *recvComm);
ncclResult_t meshRegMr(uintptr_t comm, uintptr_t data, size_t size, int type, uintptr_t *mhandle);
ncclResult_t meshRegMrDmaBuf(uintptr_t comm, uintptr_t data, size_t size, int type, uint64_t offset, int fd,
			     uintptr_t *mhandle);
ncclResult_t meshDeregMr(uintptr_t comm, uintptr_t mhandle);
ncclResult_t meshIsend(uintptr_t sendComm, uintptr_t data, size_t size, int tag, uintptr_t mhandle,
		       uintptr_t phandle, uintptr_t *request);
ncclResult_t meshIrecv(uintptr_t recvComm, int n, uintptr_t *data, size_t *sizes, int *tags, uintptr_t *mhandles,
		       uintptr_t *phandles, uintptr_t *request);
ncclResult_t meshIflush(uintptr_t recvComm, int n, uintptr_t *data, int *sizes, uintptr_t *mhandles, uintptr_t *request);
ncclResult_t meshTest(uintptr_t request, int *done, int *sizes);
ncclResult_t meshCloseSend(uintptr_t sendComm);
ncclResult_t meshCloseRecv(uintptr_t recvComm);
ncclResult_t meshCloseListen(uintptr_t listenComm);
ncclResult_t meshRmaInit(uintptr_t *ctx, int nccl_version, ncclDebugLogger_t logger);
ncclResult_t meshRmaFinalize(uintptr_t ctx);
ncclResult_t meshRmaDevices(int *ndev);
ncclResult_t meshRmaProperties(int dev, struct mesh_properties *props);
ncclResult_t meshRmaListen(uintptr_t ctx, int dev, uint8_t *handle, uintptr_t *listenComm);
ncclResult_t meshRmaConnect(uint8_t **handles, int nranks, int rank, uintptr_t listenComm, uintptr_t *collComm);
ncclResult_t meshRmaCreateContext(uintptr_t collComm, int nContexts, uintptr_t *rmaCtx);
ncclResult_t meshRmaRegister(uintptr_t collComm, uintptr_t data, size_t size, int type, uintptr_t *mhandle);
ncclResult_t meshRmaRegisterDmaBuf(uintptr_t collComm, uintptr_t data, size_t size, int type, uint64_t offset, int fd,
				   uintptr_t *mhandle);
ncclResult_t meshRmaDeregister(uintptr_t collComm, uintptr_t mhandle);
ncclResult_t meshRmaDestroyContext(uintptr_t rmaCtx);
ncclResult_t meshRmaCloseColl(uintptr_t collComm);
ncclResult_t meshRmaCloseListen(uintptr_t listenComm);
ncclResult_t meshRmaPut(uintptr_t rmaCtx, int context, uint64_t srcOff, uintptr_t srcMhandle, size_t size, uint64_t dstOff,
			uintptr_t dstMhandle, uint32_t rank, uintptr_t *request);
ncclResult_t meshRmaPutSignal(uintptr_t rmaCtx, int context, uint64_t srcOff, uintptr_t srcMhandle, size_t size, uint64_t dstOff,
			      uintptr_t dstMhandle, uint32_t rank, uint64_t signalOff, uintptr_t signalMhandle,
			      uint64_t signalValue, uint32_t signalOp, uintptr_t *request);
ncclResult_t meshRmaGet(uintptr_t rmaCtx, int context, uint64_t remoteOff, uintptr_t remoteMhandle, size_t size,
			uint64_t localOff, uintptr_t localMhandle, uint32_t rank, uintptr_t *request);
ncclResult_t meshRmaFlush(uintptr_t rmaCtx, int context, uint32_t rank, uintptr_t *request);
ncclResult_t meshRmaTest(uintptr_t collComm, uintptr_t request, int *done);
ncclResult_t meshRmaProgress(uintptr_t rmaCtx);
ncclResult_t meshRmaLastError(uintptr_t rmaCtx, int *failed);
void meshSettle(void); /* waits for a short time until queued output is sent */
/* Returns a struct mesh_tuner that is never freed, or 0 if NCCL decides alone. */
uintptr_t meshTuner(size_t ranks, size_t nodes, ncclDebugLogger_t logger, int masked);

/* In C (host.c). */
void mesh_log(ncclDebugLogger_t logger, int level, unsigned long flags, char *file, int line, char *text);
int mesh_nccl_version(ncclDebugLogger_t logger);

/* In C (profiler.c). */
uintptr_t mesh_event_start(uintptr_t profiler, uintptr_t phandle, struct mesh_event event);
void mesh_event_stop(uintptr_t profiler, uintptr_t event);

#endif
