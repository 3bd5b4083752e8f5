#include "rma.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "memory.h"

bool rma_load(struct rma *rma, const struct net *net, int version)
{
	int newest = version ? version : RMA_NEWEST, oldest = version ? version : RMA_OLDEST;
	char symbol[32];

	*rma = (struct rma){0};
	for (int v = newest; v >= oldest; v--) {
		snprintf(symbol, sizeof symbol, "ncclRmaPlugin_v%d", v);
		if ((rma->table = dlsym(net->library, symbol))) {
			rma->version = v;
			return true;
		}
	}
	return false;
}

const char *rma_missing(const struct rma *rma)
{
	static const char *const names[] = {
		"name", "init", "devices", "getProperties", "listen", "connect", "createContext", "regMrSym", "regMrSymDmaBuf",
		"deregMrSym", "destroyContext", "closeColl", "closeListen", "iput", "iputSignal", "iget", "iflush", "test",
		NULL, NULL, "finalize", /* rmaProgress and queryLastError may be NULL */
	};
	void *const *slots = (void *const *)rma->table;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i] && !slots[i])
			return names[i];
	return NULL;
}

/* written checks an output slot after a call. */
static ncclResult_t written(const char *call, ncclResult_t result, void **slot, bool may_be_null)
{
	bool kept = *slot == net_garbage();

	if (kept)
		*slot = NULL;
	if (result == ncclInProgress)
		wrong("%s returned ncclInProgress (7), which NCCL takes for an error", call);
	if (result != ncclSuccess)
		return result;
	if (kept)
		wrong("%s returned ncclSuccess and did not write its result", call);
	else if (!*slot && !may_be_null)
		wrong("%s returned ncclSuccess and NULL, which NCCL uses all the same", call);
	else
		return ncclSuccess;
	return ncclInternalError;
}

ncclResult_t rma_init(struct rma *rma, void **ctx, uint64_t commId)
{
	*ctx = NULL; /* a plugin may leave it so */
	return rma->table->init(ctx, commId, nccl_logger);
}

ncclResult_t rma_devices(struct rma *rma, int *ndev)
{
	ncclResult_t r;

	*ndev = INT_MIN;
	r = rma->table->devices(ndev);
	if (r == ncclSuccess && *ndev == INT_MIN)
		wrong("RMA devices returned ncclSuccess and did not write *ndev");
	return r;
}

ncclResult_t rma_properties(struct rma *rma, int dev, unsigned char fill, ncclNetProperties_v12_t *props)
{
	memset(props, fill, sizeof *props);
	return rma->table->getProperties(dev, props);
}

ncclResult_t rma_listen(struct rma *rma, void *ctx, int dev, void *handle, void **listenComm)
{
	*listenComm = net_garbage();
	return written("RMA listen", rma->table->listen(ctx, dev, handle, listenComm), listenComm, false);
}

ncclResult_t rma_connect(struct rma *rma, void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm)
{
	*collComm = net_garbage();
	return written("RMA connect", rma->table->connect(ctx, handles, nranks, rank, listenComm, collComm), collComm, false);
}

ncclResult_t rma_create_context(struct rma *rma, void *collComm, int contexts, void **ctx)
{
	ncclGinConfig_v13_t old = {.nContexts = contexts, .trafficClass = -1};
	ncclRmaConfig_v14_t config = {contexts, -1, 1};
	void *device = NULL;
	ncclResult_t r;

	*ctx = net_garbage();
	if (rma->version == 13)
		r = ((rmaCreateContext_v13 *)rma->table->createContext)(collComm, &old, ctx, &device);
	else
		r = ((rmaCreateContext_v14 *)rma->table->createContext)(collComm, &config, ctx);
	return written("createContext", r, ctx, false);
}

static ncclResult_t reg_dmabuf(struct rma *rma, void *collComm, void *data, size_t size, uint64_t flags, void **mhandle)
{
	void *gin = net_garbage();
	size_t offset;
	int fd = memory_dmabuf(data, size, &offset);
	ncclResult_t r;

	if (rma->version == 13)
		r = ((rmaRegMrSymDmaBuf_v13 *)rma->table->regMrSymDmaBuf)(collComm, data, size, NCCL_PTR_CUDA, offset, fd, flags, mhandle, &gin);
	else
		r = ((rmaRegMrSymDmaBuf_v14 *)rma->table->regMrSymDmaBuf)(collComm, data, size, NCCL_PTR_CUDA, offset, fd, flags, mhandle);
	close(fd);
	return r;
}

ncclResult_t rma_reg(struct rma *rma, void *collComm, void *data, size_t size, uint64_t flags, void **mhandle)
{
	int type = memory_is_device(data) ? NCCL_PTR_CUDA : NCCL_PTR_HOST;
	void *gin = net_garbage();
	ncclResult_t r;

	*mhandle = net_garbage();
	if (type == NCCL_PTR_CUDA && memory_kind() == MEMORY_DMABUF)
		r = reg_dmabuf(rma, collComm, data, size, flags, mhandle);
	else if (rma->version == 13)
		r = ((rmaRegMrSym_v13 *)rma->table->regMrSym)(collComm, data, size, type, flags, mhandle, &gin);
	else
		r = ((rmaRegMrSym_v14 *)rma->table->regMrSym)(collComm, data, size, type, flags, mhandle);
	return written("regMrSym", r, mhandle, false);
}

ncclResult_t rma_put(struct rma *rma, void *ctx, const struct rma_call *c, void **request)
{
	uint32_t flags = c->more ? RMA_OPT_FLAGS_AGGREGATE : 0;
	void *f = c->words ? rma->table->iputSignal : rma->table->iput;
	ncclResult_t r;

	*request = net_garbage();
	if (!c->words && rma->version < 15)
		r = ((rmaPut_v13 *)f)(ctx, c->context, c->from, c->source, c->size, c->to, c->target, c->rank, request);
	else if (!c->words)
		r = ((rmaPut_v15 *)f)(ctx, c->context, c->from, c->source, c->size, c->to, c->target, c->rank, flags, request);
	else if (rma->version == 13)
		r = ((rmaPutSignal_v13 *)f)(ctx, c->context, c->from, c->source, c->size, c->to, c->target, c->rank, c->word, c->words,
		                            c->value, c->op, request);
	else if (rma->version == 14)
		r = ((rmaPutSignal_v14 *)f)(ctx, c->context, c->from, c->source, c->size, c->to, c->target, c->rank, c->word, c->words,
		                            c->value, c->op, c->strong, request);
	else
		r = ((rmaPutSignal_v15 *)f)(ctx, c->context, c->from, c->source, c->size, c->to, c->target, c->rank, c->word, c->words,
		                            c->value, c->op, c->strong, flags, request);
	return written(c->words ? "iputSignal" : "iput", r, request, false);
}

ncclResult_t rma_get(struct rma *rma, void *ctx, const struct rma_call *c, void **request)
{
	uint32_t flags = c->more ? RMA_OPT_FLAGS_AGGREGATE : 0;
	ncclResult_t r;

	*request = net_garbage();
	if (rma->version < 15)
		r = ((rmaPut_v13 *)rma->table->iget)(ctx, c->context, c->from, c->source, c->size, c->to, c->target, c->rank, request);
	else
		r = ((rmaPut_v15 *)rma->table->iget)(ctx, c->context, c->from, c->source, c->size, c->to, c->target, c->rank, flags, request);
	return written("iget", r, request, false);
}

ncclResult_t rma_flush(struct rma *rma, void *ctx, int context, void *mhandle, uint32_t rank, void **request)
{
	*request = NULL; /* and may stay so */
	return rma->table->iflush(ctx, context, mhandle, rank, request);
}

ncclResult_t rma_test(struct rma *rma, void *collComm, void *request, int *done)
{
	ncclResult_t r;

	*done = INT_MIN;
	r = rma->table->test(collComm, request, done);
	if (r == ncclSuccess && *done == INT_MIN) {
		wrong("RMA test returned ncclSuccess and did not write *done");
		return ncclInternalError;
	}
	return r;
}

ncclResult_t rma_query_last_error(struct rma *rma, void *ctx, bool *error)
{
	*error = false;
	return rma->table->queryLastError ? rma->table->queryLastError(ctx, error) : ncclSuccess;
}
