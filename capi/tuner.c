/*
 * The tuner as NCCL sees it. Init asks Go for the answers to everything that NCCL
 * can ask; after that no call leaves this file, waits or allocates. An error would
 * end the job: there is none, but in a forked child.
 */
#include "plugin.h"
#include "tuner_abi.h"

/*
 * NCCL multiplies what it wants taken last by 1024 (rings of more than 8 ranks that
 * sum up 8-bit floats). Nothing else makes two of its costs differ that much.
 */
#define LAST_RESORT 64

/* As Class in package tuner. */
static unsigned size_class(size_t bytes)
{
	unsigned e, c;

	if (bytes < 4)
		return (unsigned)bytes;
	e = 63 - (unsigned)__builtin_clzl(bytes);
	c = 4 * (e - 1) + ((bytes >> (e - 2)) & 3);
	return c < MESH_TUNER_CLASSES ? c : MESH_TUNER_CLASSES - 1;
}

static const struct mesh_tuner_row *row(const struct mesh_tuner *t, int coll, size_t bytes)
{
	return &t->rows[coll][size_class(bytes)];
}

/* Operations that go out together have their latencies one after the other, and share the channels. */
static int shared(const struct mesh_tuner *t, int coll, size_t bytes, int ops, const struct mesh_tuner_choice *c)
{
	const struct mesh_tuner_row *all = row(t, coll, bytes);
	int i;

	for (i = 0; i < all->n; i++)
		if (all->choices[i].algo == c->algo && all->choices[i].proto == c->proto)
			return (all->choices[i].channels + ops - 1) / ops;
	return c->channels;
}

static int tuned(const struct mesh_tuner *t, int coll)
{
	return t != NULL && coll >= 0 && coll < NCCL_NUM_FUNCTIONS;
}

/* The most that a cell may have to be chosen. */
static float ceiling(const struct mesh_tuner_row *r, const float *cells, int numAlgo, int numProto)
{
	float least = __FLT_MAX__;
	int i;

	for (i = 0; i < r->n; i++) {
		const struct mesh_tuner_choice *c = &r->choices[i];

		if (c->algo < numAlgo && c->proto < numProto) {
			float cost = cells[c->algo * numProto + c->proto];

			if (cost >= 0 && cost < least)
				least = cost;
		}
	}
	return least > __FLT_MAX__ / LAST_RESORT ? __FLT_MAX__ : least * LAST_RESORT;
}

static void exclude(float *cells, int algo, int numAlgo, int numProto)
{
	int p;

	for (p = 0; algo < numAlgo && p < numProto; p++)
		cells[algo * numProto + p] = NCCL_ALGO_PROTO_IGNORE;
}

/*
 * The first choice that NCCL has costs nothing from here on, which wins. A cell
 * below 0 is not possible and stays as it is. Where NCCL has none of the choices,
 * the user wants something else: nothing is changed.
 */
static ncclResult_t get_coll_info_v4(void *ctx, int coll, size_t nBytes, int numPipeOps, float **table, int numAlgo,
				     int numProto, UNUSED int regBuff, int *nChannels)
{
	const struct mesh_tuner *t = ctx;
	const struct mesh_tuner_row *r;
	float *cells = (float *)table, most = __FLT_MAX__;
	int i;

	*nChannels = 0;
	REFUSE_IN_CHILD();
	if (!tuned(t, coll))
		return ncclSuccess;
	if (numPipeOps < 1)
		numPipeOps = 1;
	r = row(t, coll, numPipeOps == 1 ? nBytes : nBytes / (size_t)numPipeOps);
	if (t->last_resorts)
		most = ceiling(r, cells, numAlgo, numProto);
	for (i = 0; i < r->n; i++) {
		const struct mesh_tuner_choice *c = &r->choices[i];
		float *cell = &cells[c->algo * numProto + c->proto];

		if (c->algo >= numAlgo || c->proto >= numProto || !(*cell >= 0 && *cell <= most))
			continue;
		if (t->without_tree)
			exclude(cells, NCCL_ALGO_TREE, numAlgo, numProto);
		if (t->without_pat)
			exclude(cells, NCCL_ALGO_PAT, numAlgo, numProto);
		*cell = 0;
		*nChannels = numPipeOps == 1 ? c->channels : shared(t, coll, nBytes, numPipeOps, c);
		break;
	}
	return ncclSuccess;
}

static ncclResult_t get_coll_info_v3(void *ctx, int coll, size_t nBytes, int numPipeOps, float **table, int numAlgo,
				     int numProto, int *nChannels)
{
	return get_coll_info_v4(ctx, coll, nBytes, numPipeOps, table, numAlgo, numProto, 0, nChannels);
}

/*
 * Version 2 has no table: NCCL takes the answer as it is. Rings and trees are
 * always possible where no switch computes.
 */
static ncclResult_t get_coll_info_v2(void *ctx, int coll, size_t nBytes, int collNetSupport, UNUSED int nvlsSupport,
				     int numPipeOps, int *algo, int *proto, int *nChannels)
{
	enum { ALGOS = NCCL_ALGO_RING + 1, PROTOS = NCCL_PROTO_SIMPLE + 1 };
	float cells[ALGOS * PROTOS] = { 1, NCCL_ALGO_PROTO_IGNORE, 1, 1, NCCL_ALGO_PROTO_IGNORE, 1 };
	ncclResult_t result;
	int i;

	*algo = NCCL_ALGO_UNDEF;
	*proto = NCCL_PROTO_UNDEF;
	result = get_coll_info_v4(collNetSupport == 1 ? NULL : ctx, coll, nBytes, numPipeOps, (float **)cells, ALGOS,
				  PROTOS, 0, nChannels);
	for (i = 0; i < ALGOS * PROTOS; i++)
		if (cells[i] == 0) {
			*algo = i / PROTOS;
			*proto = i % PROTOS;
		}
	return result;
}

/* Only ever smaller than NCCL's, and never less than the 512 bytes that it rounds to. */
static ncclResult_t get_chunk_size_v6(void *ctx, int coll, size_t nBytes, int algo, int proto, int nChannels,
				      size_t *chunkSize)
{
	const struct mesh_tuner *t = ctx;
	size_t chunk;

	REFUSE_IN_CHILD();
	if (!tuned(t, coll) || algo != NCCL_ALGO_RING || proto != NCCL_PROTO_SIMPLE || nChannels < 1)
		return ncclSuccess;
	chunk = t->chunks[coll][size_class(nBytes / (size_t)nChannels)];
	if (chunk != 0 && chunk < *chunkSize)
		*chunkSize = chunk;
	return ncclSuccess;
}

static ncclResult_t init(void **ctx, size_t nRanks, size_t nNodes, ncclDebugLogger_t logger, int masked)
{
	*ctx = NULL;
	REFUSE_IN_CHILD();
	*ctx = (void *)meshTuner(nRanks, nNodes, logger, masked);
	return ncclSuccess;
}

/* What version 2 is asked says nothing of what the user has excluded. */
static ncclResult_t init_v2(size_t nRanks, size_t nNodes, ncclDebugLogger_t logger, void **ctx)
{
	return init(ctx, nRanks, nNodes, logger, 0);
}

static ncclResult_t init_v3(size_t nRanks, size_t nNodes, ncclDebugLogger_t logger, void **ctx)
{
	return init(ctx, nRanks, nNodes, logger, 1);
}

static ncclResult_t init_v5(void **ctx, UNUSED uint64_t commId, size_t nRanks, size_t nNodes, ncclDebugLogger_t logger,
			    UNUSED ncclNvlDomainInfo_t *domains, UNUSED ncclTunerConstants_t *constants)
{
	return init(ctx, nRanks, nNodes, logger, 1);
}

/* The answers stay: another communicator may have the same. */
static ncclResult_t destroy_v2(UNUSED void *ctx)
{
	REFUSE_IN_CHILD();
	return ncclSuccess;
}

EXPORT const ncclTuner_v2_t ncclTunerPlugin_v2 = {
	.name = "Mesh",
	.init = init_v2,
	.getCollInfo = get_coll_info_v2,
	.destroy = destroy_v2,
};

EXPORT const ncclTuner_v3_t ncclTunerPlugin_v3 = {
	.name = "Mesh",
	.init = init_v3,
	.getCollInfo = get_coll_info_v3,
	.destroy = destroy_v2,
};

EXPORT const ncclTuner_v4_t ncclTunerPlugin_v4 = {
	.name = "Mesh",
	.init = init_v3,
	.getCollInfo = get_coll_info_v4,
	.destroy = destroy_v2,
};

EXPORT const ncclTuner_v5_t ncclTunerPlugin_v5 = {
	.name = "Mesh",
	.init = init_v5,
	.getCollInfo = get_coll_info_v4,
	.finalize = destroy_v2,
};

EXPORT const ncclTuner_v6_t ncclTunerPlugin_v6 = {
	.name = "Mesh",
	.init = init_v5,
	.getCollInfo = get_coll_info_v4,
	.finalize = destroy_v2,
	.getChunkSize = get_chunk_size_v6,
};
