/* The reference plugin's functions, independent of the version; vtables.c makes vtables of them. */
#ifndef SELFPLUGIN_H
#define SELFPLUGIN_H

#include <stdbool.h>

#include "abi.h"

struct self_props {
	char *name;
	uint64_t guid;
	bool latency_unset; /* a fault */
	int pointers;       /* NCCL_PTR_ bits */
};

extern bool forked; /* this process is a forked child */

/* What NCCL's profiler is told (profiler.c). */
void self_profiler(ncclProfilerCallback_t callback);
void self_steps(void *request, int n, void **steps);

struct request;
void self_tell(struct request *request); /* in test: it is through */

ncclResult_t self_init(ncclDebugLogger_t log);
int self_inits(void); /* successful ones so far */
ncclResult_t self_finalize(void *ctx);
ncclResult_t self_devices(int *ndev);
ncclResult_t self_properties(int dev, struct self_props *props);
ncclResult_t self_properties_v12(int dev, ncclNetProperties_v12_t *props);
ncclResult_t self_listen(int dev, void *opaque, void **listenComm);
ncclResult_t self_connect(int dev, void *opaque, void **sendComm);
ncclResult_t self_accept(void *listenComm, void **recvComm);
ncclResult_t self_close(void *comm);
void *self_reach(const void *data, size_t size); /* where a GPU's memory can be read and written; NULL for other memory */
ncclResult_t self_reg(void *comm, void *data, size_t size, int type, void **mhandle);
ncclResult_t self_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle);
ncclResult_t self_dereg(void *comm, void *mhandle);
ncclResult_t self_isend(void *sendComm, void *data, size_t size, int tag, void *mhandle, void **request);
ncclResult_t self_irecv(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                        void **request);
ncclResult_t self_iflush(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request);
ncclResult_t self_test(void *request, int *done, int *sizes);

#endif
