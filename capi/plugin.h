/*
 * What the C and the Go half of the plugin call in each other. Handles are
 * numbers; pointers are the caller's and are not kept.
 */
#ifndef MESH_PLUGIN_H
#define MESH_PLUGIN_H

#include "abi.h"

#define EXPORT __attribute__((visibility("default")))
#define UNUSED __attribute__((unused))

#define REFUSE_IN_CHILD()                                                                                            \
	do {                                                                                                         \
		if (__builtin_expect(mesh_forked, 0))                                                                \
			return ncclSystemError;                                                                      \
	} while (0)

#define MESH_MAX_RECVS 8

/* What is known of the NCCL that opens the network. */
struct mesh_caller {
	int interface_version;
	int nccl_version; /* or 0 */
	uintptr_t profiler; /* an ncclProfilerCallback_t, or 0 */
};

/* ncclNetProperties without a version. */
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

/* A part of a message that a lane carries, as Event in package ncclnet. */
struct mesh_event {
	int socket; /* else a queue pair */
	int sending;
	int lane;
	int number; /* the queue pair's, or the descriptor */
	uint64_t request;
	size_t length;
};

/* The tuner's answers for one mesh, as Table in package tuner. Once made they stay as they are. */
#define MESH_TUNER_FUNCS 5
#define MESH_TUNER_CLASSES 160
#define MESH_TUNER_CHOICES 6

struct mesh_tuner {
	int last_resorts; /* NCCL may have marked some choices as such */
	struct mesh_tuner_row {
		uint8_t n;
		uint8_t cell[MESH_TUNER_CHOICES]; /* of NCCL's table of costs, fastest first */
		uint8_t channels[MESH_TUNER_CHOICES];
		uint8_t pad[3];
	} rows[MESH_TUNER_FUNCS][MESH_TUNER_CLASSES];
	uint32_t chunks[MESH_TUNER_FUNCS][MESH_TUNER_CLASSES]; /* or 0 */
};

/* In Go. Each writes its result arguments on success only. */
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
ncclResult_t meshIflush(uintptr_t recvComm);
ncclResult_t meshTest(uintptr_t request, int *done, int *sizes);
ncclResult_t meshCloseSend(uintptr_t sendComm);
ncclResult_t meshCloseRecv(uintptr_t recvComm);
ncclResult_t meshCloseListen(uintptr_t listenComm);
void meshSettle(void); /* waits a moment at most until what has been sent is on its way */
/* A struct mesh_tuner that stays, or 0: NCCL is left alone. */
uintptr_t meshTuner(size_t ranks, size_t nodes, ncclDebugLogger_t logger, int masked);

/* In C (host.c). */
extern int mesh_forked __attribute__((visibility("hidden"))); /* this process is a forked child: no entry may reach Go */
void mesh_fork_table(uintptr_t bitmap, int bits, uintptr_t gate);
void mesh_log(ncclDebugLogger_t logger, int level, unsigned long flags, char *file, int line, char *text);
char *mesh_environ(int i);
int mesh_nccl_version(ncclDebugLogger_t logger);

/* In C (profiler.c). */
uintptr_t mesh_event_start(uintptr_t profiler, uintptr_t phandle, struct mesh_event event);
void mesh_event_stop(uintptr_t profiler, uintptr_t event);

#endif
