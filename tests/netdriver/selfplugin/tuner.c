/* ncclTunerPlugin_v2 to v6: rings with LL, if they can be had, as many channels as ranks, and nothing beyond 8 ranks. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "fault.h"
#include "selfplugin.h"
#include "tuner.h"

#define EXPORT __attribute__((visibility("default")))

#define GUARD() \
	do { \
		if (forked && !fault_named("tuner-fork")) \
			return ncclSystemError; \
	} while (0)

/* A communicator; NULL: it is left alone. */
struct tuned {
	size_t nranks;
};

static struct tuned *latest; /* a fault's */
static bool faulty;          /* some rule of the tuner is to be broken */

static ncclResult_t create(void **ctx, size_t nranks, size_t nnodes)
{
	struct tuned *tuned;

	GUARD();
	faulty = getenv("SELFPLUGIN_FAULT");
	if (fault("tuner-init"))
		return ncclInternalError;
	*ctx = NULL;
	if (nranks != nnodes && !fault_named("tuner-foreign"))
		return ncclSuccess;
	if (nnodes < 2 || (!self_inits() && !fault_named("tuner-alone")))
		return ncclSuccess;
	*ctx = tuned = malloc(sizeof *tuned);
	tuned->nranks = nranks;
	if (fault_named("tuner-shared")) {
		if (!latest)
			latest = malloc(sizeof *latest);
		latest->nranks = nranks;
		free(tuned);
		*ctx = latest;
	}
	return ncclSuccess;
}

static ncclResult_t destroy(void *ctx)
{
	GUARD();
	if (ctx != latest)
		free(ctx);
	return ncclSuccess;
}

/* wrong_cells breaks what NCCL relies on in its table. */
static void wrong_cells(float *cells, int algos)
{
	for (int i = 0; i < algos * NCCL_PROTOS; i++)
		if (cells[i] < 0 && fault("tuner-revives"))
			cells[i] = 0;
	for (int i = 0; i < algos * NCCL_PROTOS && fault_named("tuner-nothing-left"); i++)
		cells[i] = -1;
	if (fault_named("tuner-width"))
		cells[NCCL_PAT * NCCL_PROTOS] = -2;
	if (fault_named("tuner-behind"))
		cells[NCCL_ALGOS * NCCL_PROTOS] = 0;
}

static void waste_time(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&mutex);
	for (volatile int i = 0; i < 10; i++)
		;
	pthread_mutex_unlock(&mutex);
}

static ncclResult_t info_v4(void *ctx, int coll, size_t bytes, int ops, float **table, int algos, int protos, int reg,
                            int *channels)
{
	const struct tuned *tuned = ctx;
	float *cells = (float *)table, *ring = cells + NCCL_RING * NCCL_PROTOS + NCCL_LL;

	(void)bytes, (void)ops, (void)reg;
	GUARD();
	if (faulty && fault("tuner-error"))
		return ncclSystemError;
	if (faulty && fault_named("tuner-slow"))
		waste_time();
	if (faulty && fault("tuner-unset"))
		return ncclSuccess;
	*channels = 0;
	if (!tuned || (tuned->nranks > 8 && !(faulty && fault_named("tuner-lossy"))))
		return ncclSuccess;
	*channels = coll == NCCL_ALLGATHER && !(faulty && fault_named("tuner-gather")) ? 1 : (int)tuned->nranks;
	if (faulty && fault("tuner-many"))
		*channels = 65;
	if (faulty && fault_named("tuner-differs") && coll != NCCL_ALLGATHER)
		*channels = 1 + getpid() % 64;
	if (NCCL_RING < algos && protos == NCCL_PROTOS && *ring >= 0)
		*ring = 0;
	if (faulty)
		wrong_cells(cells, algos);
	return ncclSuccess;
}

static ncclResult_t info_v3(void *ctx, int coll, size_t bytes, int ops, float **table, int algos, int protos,
                            int *channels)
{
	return info_v4(ctx, coll, bytes, ops, table, algos, protos, 0, channels);
}

static ncclResult_t info_v2(void *ctx, int coll, size_t bytes, int collNetSupport, int nvlsSupport, int ops, int *algo,
                            int *proto, int *channels)
{
	float cell = 0;

	(void)collNetSupport, (void)nvlsSupport;
	*algo = *proto = -1;
	GUARD();
	faulty = !fault_named("tuner-width") && !fault_named("tuner-behind"); /* these need a table */
	return info_v4(ctx, coll, bytes, ops, (float **)&cell, 0, 0, 0, channels);
}

static ncclResult_t init_v2(size_t nranks, size_t nnodes, ncclDebugLogger_t log, void **ctx)
{
	(void)log;
	return create(ctx, nranks, nnodes);
}

static ncclResult_t init_v5(void **ctx, uint64_t commId, size_t nranks, size_t nnodes, ncclDebugLogger_t log, void *domains,
                            void *constants)
{
	(void)commId, (void)log, (void)domains, (void)constants;
	return create(ctx, nranks, nnodes);
}

static ncclResult_t chunk_v6(void *ctx, int coll, size_t bytes, int algo, int proto, int channels, size_t *chunk)
{
	(void)ctx, (void)coll, (void)bytes, (void)algo, (void)proto, (void)channels;
	GUARD();
	if (fault("tuner-chunk"))
		*chunk /= 1024;
	return ncclSuccess;
}

EXPORT const struct { const char *name; tunerInit_v2 *init; tunerInfo_v2 *info; tunerDestroy *destroy; }
	ncclTunerPlugin_v2 = {"Self", init_v2, info_v2, destroy};
EXPORT const struct { const char *name; tunerInit_v2 *init; tunerInfo_v3 *info; tunerDestroy *destroy; }
	ncclTunerPlugin_v3 = {"Self", init_v2, info_v3, destroy};
EXPORT const struct { const char *name; tunerInit_v2 *init; tunerInfo_v4 *info; tunerDestroy *destroy; }
	ncclTunerPlugin_v4 = {"Self", init_v2, info_v4, destroy};
EXPORT const struct { const char *name; tunerInit_v5 *init; tunerInfo_v4 *info; tunerDestroy *destroy; }
	ncclTunerPlugin_v5 = {"Self", init_v5, info_v4, destroy};
EXPORT const struct { const char *name; tunerInit_v5 *init; tunerInfo_v4 *info; tunerDestroy *destroy; tunerChunk_v6 *chunk; }
	ncclTunerPlugin_v6 = {"Self", init_v5, info_v4, destroy, chunk_v6};
