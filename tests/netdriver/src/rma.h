/*
 * The RMA plugin in a library, behind one neutral interface. The rma_* functions call it as NCCL does: every output argument holds
 * garbage beforehand and must be written, and a request must not be NULL where NCCL tests it without a look.
 */
#ifndef NETDRIVER_RMA_H
#define NETDRIVER_RMA_H

#include <stddef.h>
#include <stdint.h>

#include "plugin.h"
#include "rma_abi.h"

struct rma {
	int version;
	const ncclRma_t *table;
};

/* rma_load takes the named version of the library that net has loaded, or with version 0 the newest that it exports; false: it exports
 * none. */
bool rma_load(struct rma *rma, const struct net *net, int version);

/* rma_missing names the first member that is NULL and is needed, or is NULL itself. */
const char *rma_missing(const struct rma *rma);

/* What a put, a signal or a get is about. The mhandles are those of this rank. */
struct rma_call {
	int context;
	uint64_t from, to; /* offsets */
	void *source, *target;
	size_t size;
	uint32_t rank;
	uint64_t word; /* offset of the signal */
	void *words;   /* NULL: no signal */
	uint64_t value;
	uint32_t op;
	bool strong, more;
};

ncclResult_t rma_init(struct rma *rma, void **ctx, uint64_t commId);
ncclResult_t rma_devices(struct rma *rma, int *ndev);
/* rma_properties fills the plugin's struct with the given byte before the call. */
ncclResult_t rma_properties(struct rma *rma, int dev, unsigned char fill, ncclNetProperties_v12_t *props);
ncclResult_t rma_listen(struct rma *rma, void *ctx, int dev, void *handle, void **listenComm);
ncclResult_t rma_connect(struct rma *rma, void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm);
ncclResult_t rma_create_context(struct rma *rma, void *collComm, int contexts, void **ctx);
ncclResult_t rma_reg(struct rma *rma, void *collComm, void *data, size_t size, uint64_t flags, void **mhandle);
ncclResult_t rma_put(struct rma *rma, void *ctx, const struct rma_call *call, void **request);
ncclResult_t rma_get(struct rma *rma, void *ctx, const struct rma_call *call, void **request);
ncclResult_t rma_flush(struct rma *rma, void *ctx, int context, void *mhandle, uint32_t rank, void **request);
ncclResult_t rma_test(struct rma *rma, void *collComm, void *request, int *done);
ncclResult_t rma_query_last_error(struct rma *rma, void *ctx, bool *error);

#endif
