/*
 * NCCL's tuner interface. Init gets the answers to all possible queries from Go;
 * later calls run in this file only and neither wait nor allocate. An error would
 * end the job, so no call returns one except in a forked child.
 */
#include "plugin.h"
#include "tuner_abi.h"

/*
 * NCCL multiplies the cost of a last resort by 1024 (rings of more than 8 ranks that
 * sum up 8-bit floats). No other two of its costs differ that much.
 */
#define LAST_RESORT 64

/* As Class in package tuner. */
static inline unsigned size_class(size_t bytes)
{
	unsigned shift, c;

	bytes = bytes < 4 ? 4 : bytes;
	shift = 61 - (unsigned)__builtin_clzl(bytes); /* keeps the three highest bits, of which the first is set */
	c = 4 * shift + ((bytes >> shift) & 3);
	return c < MESH_TUNER_CLASSES ? c : MESH_TUNER_CLASSES - 1;
}

static inline const struct mesh_tuner_row *row(const struct mesh_tuner *t, int coll, size_t bytes)
{
	return &t->rows[coll][size_class(bytes)];
}

/* Every operation for which tuned returns 1 has rows. */
_Static_assert(NCCL_NUM_FUNCTIONS == MESH_TUNER_FUNCS, "the tuner has other operations than NCCL");

static inline int tuned(const struct mesh_tuner *t, int coll)
{
	return t != NULL && (unsigned)coll < NCCL_NUM_FUNCTIONS;
}

/*
 * Sets the cost of the first choice that NCCL offers to 0, so that NCCL takes it. A negative
 * cost marks an impossible choice and is not changed. If NCCL offers none of the choices,
 * the user has excluded them, and nothing is changed.
 */
static inline void choose(const struct mesh_tuner_row *r, float *cells, unsigned known, const float *most,
			  int *nChannels)
{
	unsigned i, cell;

	for (i = 0; i < r->n; i++) {
		cell = r->cell[i];
		if (cell < known && cells[cell] >= 0 && (!most || cells[cell] <= *most)) {
			cells[cell] = 0;
			*nChannels = r->channels[i];
			return;
		}
	}
}

/* As choose, but takes a choice that NCCL has marked as a last resort only if there is no other. */
__attribute__((noinline)) static void choose_last(const struct mesh_tuner_row *r, float *cells, unsigned known,
						  int *nChannels)
{
	float least = __FLT_MAX__ / LAST_RESORT;
	int i;

	for (i = 0; i < r->n; i++)
		if (r->cell[i] < known && cells[r->cell[i]] >= 0 && cells[r->cell[i]] < least)
			least = cells[r->cell[i]];
	least *= LAST_RESORT;
	choose(r, cells, known, &least, nChannels);
}

/*
 * Operations that NCCL launches together have their latencies one after the other, and
 * share the channels of one operation.
 */
__attribute__((noinline)) static void choose_together(const struct mesh_tuner *t, int coll, size_t nBytes, int ops,
						      float *cells, unsigned known, int *nChannels)
{
	const struct mesh_tuner_row *all = row(t, coll, nBytes);

	choose_last(row(t, coll, nBytes / (size_t)ops), cells, known, nChannels);
	if (*nChannels != 0 && all->n > 0)
		*nChannels = (all->channels[0] + ops - 1) / ops;
}

static ncclResult_t get_coll_info_v4(void *ctx, int coll, size_t nBytes, int numPipeOps, float **table, int numAlgo,
				     int numProto, UNUSED int regBuff, int *nChannels)
{
	const struct mesh_tuner *t = ctx;
	unsigned known = (unsigned)numAlgo * NCCL_NUM_PROTOCOLS;
	float *cells = (float *)table;

	*nChannels = 0;
	REFUSE_IN_CHILD();
	if (!tuned(t, coll) || numProto != NCCL_NUM_PROTOCOLS)
		return ncclSuccess;
	if (__builtin_expect(numPipeOps > 1, 0))
		choose_together(t, coll, nBytes, numPipeOps, cells, known, nChannels);
	else if (__builtin_expect(t->last_resorts, 0))
		choose_last(row(t, coll, nBytes), cells, known, nChannels);
	else
		choose(row(t, coll, nBytes), cells, known, NULL, nChannels);
	return ncclSuccess;
}

/*
 * Since 2.29 NCCL queries a group of broadcasts like an all-gather,
 * uses the number of channels unchecked, and crashes if the communicator has
 * fewer. Every communicator has one; for more NCCL decides.
 */
static ncclResult_t get_coll_info_v5(void *ctx, int coll, size_t nBytes, int numPipeOps, float **table, int numAlgo,
				     int numProto, int regBuff, int *nChannels)
{
	ncclResult_t result;

	result = get_coll_info_v4(ctx, coll, nBytes, numPipeOps, table, numAlgo, numProto, regBuff, nChannels);
	if (coll == NCCL_FUNC_ALL_GATHER && *nChannels > 1)
		*nChannels = 0;
	return result;
}

static ncclResult_t get_coll_info_v3(void *ctx, int coll, size_t nBytes, int numPipeOps, float **table, int numAlgo,
				     int numProto, int *nChannels)
{
	return get_coll_info_v4(ctx, coll, nBytes, numPipeOps, table, numAlgo, numProto, 0, nChannels);
}

/*
 * Version 2 has no table: NCCL uses the answer unchecked. Rings and trees are
 * always possible if no switch computes (CollNet).
 */
static ncclResult_t get_coll_info_v2(void *ctx, int coll, size_t nBytes, int collNetSupport, UNUSED int nvlsSupport,
				     int numPipeOps, int *algo, int *proto, int *nChannels)
{
	enum { ALGOS = NCCL_ALGO_RING + 1, CELLS = ALGOS * NCCL_NUM_PROTOCOLS };
	float cells[CELLS] = { 1, NCCL_ALGO_PROTO_IGNORE, 1, 1, NCCL_ALGO_PROTO_IGNORE, 1 };
	ncclResult_t result;
	int i;

	*algo = NCCL_ALGO_UNDEF;
	*proto = NCCL_PROTO_UNDEF;
	result = get_coll_info_v4(collNetSupport == 1 ? NULL : ctx, coll, nBytes, numPipeOps, (float **)cells, ALGOS,
				  NCCL_NUM_PROTOCOLS, 0, nChannels);
	for (i = 0; i < CELLS; i++)
		if (cells[i] == 0) {
			*algo = i / NCCL_NUM_PROTOCOLS;
			*proto = i % NCCL_NUM_PROTOCOLS;
		}
	return result;
}

/* The chunk size is only ever reduced, and never below the 512 bytes to which NCCL rounds it. */
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

/* A query of version 2 does not say which choices the user has excluded. */
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

/* The answers are not freed, because another communicator may use the same ones. */
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
	.getCollInfo = get_coll_info_v5,
	.finalize = destroy_v2,
};

EXPORT const ncclTuner_v6_t ncclTunerPlugin_v6 = {
	.name = "Mesh",
	.init = init_v5,
	.getCollInfo = get_coll_info_v5,
	.finalize = destroy_v2,
	.getChunkSize = get_chunk_size_v6,
};
