/*
 * NCCL's tuner interface, versions 2 to 6: the memory layout that libnccl agrees
 * on with a plugin. A version never changed after its release. LP64.
 */
#ifndef MESH_TUNER_ABI_H
#define MESH_TUNER_ABI_H

#include "abi.h"

#define NCCL_NUM_FUNCTIONS 5
#define NCCL_FUNC_ALL_GATHER 2
#define NCCL_NUM_PROTOCOLS 3
#define NCCL_ALGO_UNDEF (-1)
#define NCCL_PROTO_UNDEF (-1)
#define NCCL_ALGO_TREE 0
#define NCCL_ALGO_RING 1
#define NCCL_ALGO_PAT 6 /* since 2.23 */
#define NCCL_PROTO_SIMPLE 2
#define NCCL_ALGO_PROTO_IGNORE (-1.0f)

/* Read and written by neither side here. */
typedef struct ncclNvlDomainInfo ncclNvlDomainInfo_t;
typedef struct ncclTunerConstants ncclTunerConstants_t;

/*
 * The signatures, each named for the version that brought it in. The cost table
 * is declared as an array of rows, and is one flat float[numAlgo][numProto].
 */
typedef ncclResult_t tunerInit_v2_fn(size_t nRanks, size_t nNodes, ncclDebugLogger_t logger, void **ctx);
typedef ncclResult_t tunerInit_v5_fn(void **ctx, uint64_t commId, size_t nRanks, size_t nNodes,
				     ncclDebugLogger_t logger, ncclNvlDomainInfo_t *domains,
				     ncclTunerConstants_t *constants);
typedef ncclResult_t tunerGetCollInfo_v2_fn(void *ctx, int coll, size_t nBytes, int collNetSupport, int nvlsSupport,
					    int numPipeOps, int *algo, int *proto, int *nChannels);
typedef ncclResult_t tunerGetCollInfo_v3_fn(void *ctx, int coll, size_t nBytes, int numPipeOps, float **table,
					    int numAlgo, int numProto, int *nChannels);
typedef ncclResult_t tunerGetCollInfo_v4_fn(void *ctx, int coll, size_t nBytes, int numPipeOps, float **table,
					    int numAlgo, int numProto, int regBuff, int *nChannels);
typedef ncclResult_t tunerGetChunkSize_v6_fn(void *ctx, int coll, size_t nBytes, int algo, int proto, int nChannels,
					     size_t *chunkSize);
typedef ncclResult_t tunerDestroy_v2_fn(void *ctx);

typedef struct {
	const char *name;
	tunerInit_v2_fn *init;
	tunerGetCollInfo_v2_fn *getCollInfo;
	tunerDestroy_v2_fn *destroy;
} ncclTuner_v2_t;

typedef struct {
	const char *name;
	tunerInit_v2_fn *init;
	tunerGetCollInfo_v3_fn *getCollInfo;
	tunerDestroy_v2_fn *destroy;
} ncclTuner_v3_t;

typedef struct {
	const char *name;
	tunerInit_v2_fn *init;
	tunerGetCollInfo_v4_fn *getCollInfo;
	tunerDestroy_v2_fn *destroy;
} ncclTuner_v4_t;

typedef struct {
	const char *name;
	tunerInit_v5_fn *init;
	tunerGetCollInfo_v4_fn *getCollInfo;
	tunerDestroy_v2_fn *finalize;
} ncclTuner_v5_t;

typedef struct {
	const char *name;
	tunerInit_v5_fn *init;
	tunerGetCollInfo_v4_fn *getCollInfo;
	tunerDestroy_v2_fn *finalize;
	tunerGetChunkSize_v6_fn *getChunkSize;
} ncclTuner_v6_t;

MESH_SIZE(ncclTuner_v2_t, 32);
MESH_SLOT(ncclTuner_v2_t, getCollInfo, 2);
MESH_SIZE(ncclTuner_v3_t, 32);
MESH_SLOT(ncclTuner_v3_t, getCollInfo, 2);
MESH_SIZE(ncclTuner_v4_t, 32);
MESH_SLOT(ncclTuner_v4_t, getCollInfo, 2);
MESH_SIZE(ncclTuner_v5_t, 32);
MESH_SLOT(ncclTuner_v5_t, finalize, 3);
MESH_SIZE(ncclTuner_v6_t, 40);
MESH_SLOT(ncclTuner_v6_t, getCollInfo, 2);
MESH_SLOT(ncclTuner_v6_t, getChunkSize, 4);

#endif
