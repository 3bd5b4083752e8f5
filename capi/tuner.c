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
static inline unsigned size_class(size_t bytes)
{
	unsigned shift, c;

	bytes = bytes < 4 ? 4 : bytes;
	shift = 61 - (unsigned)__builtin_clzl(bytes); /* leaves three bits, of which the first is set */
	c = 4 * shift + ((bytes >> shift) & 3);
	return c < MESH_TUNER_CLASSES ? c : MESH_TUNER_CLASSES - 1;
}

static inline const struct mesh_tuner_row *row(const struct mesh_tuner *t, int coll, size_t bytes)
{
	return &t->rows[coll][size_class(bytes)];
}

/* What passes as tuned has its rows. */
_Static_assert(NCCL_NUM_FUNCTIONS == MESH_TUNER_FUNCS, "the tuner has other operations than NCCL");

static inline int tuned(const struct mesh_tuner *t, int coll)
{
	return t != NULL && (unsigned)coll < NCCL_NUM_FUNCTIONS;
}

/*
 * The first choice that NCCL has costs nothing from here on, which wins. A cell
 * below 0 is not possible and stays as it is. Where NCCL has none of the choices,
 * the user wants something else: nothing is changed.
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

/* Where NCCL has marked choices as the last ones, they are taken last. */
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
 * Operations that go out together have their latencies one after the other, and
 * the channels of one operation of them all.
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
 * From 2.29 on NCCL asks for a group of broadcasts as it does for an all-gather,
 * takes the number of channels as it is, and crashes if the communicator has
 * fewer. It has one; more than that are left to NCCL.
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
 * Version 2 has no table: NCCL takes the answer as it is. Rings and trees are
 * always possible where no switch computes.
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
