/*
 * A loaded tuner, called as NCCL calls it: every output argument holds garbage beforehand, the
 * costs lie in one flat table with a guard behind it, and what NCCL relies on is checked on the
 * spot. The layouts are written down here once more, from NCCL's headers and not from the plugin's.
 */
#ifndef NETDRIVER_TUNER_H
#define NETDRIVER_TUNER_H

#include <stdbool.h>

#include "abi.h"

enum { TUNER_OLDEST = 2, TUNER_NEWEST = 6 };

enum { NCCL_FUNCS = 5, NCCL_ALLGATHER = 2, NCCL_ALLREDUCE = 4, NCCL_ALGOS = 7, NCCL_ALGOS_BEFORE_PAT = 6, NCCL_PROTOS = 3 };
enum { NCCL_TREE = 0, NCCL_RING = 1, NCCL_PAT = 6 };
enum { NCCL_LL = 0, NCCL_LL128 = 1, NCCL_SIMPLE = 2 };

typedef ncclResult_t tunerInit_v2(size_t nRanks, size_t nNodes, ncclDebugLogger_t, void **ctx);
typedef ncclResult_t tunerInit_v5(void **ctx, uint64_t commId, size_t nRanks, size_t nNodes, ncclDebugLogger_t,
                                  void *nvlDomainInfo, void *constants);
typedef ncclResult_t tunerInfo_v2(void *ctx, int coll, size_t nBytes, int collNetSupport, int nvlsSupport,
                                  int numPipeOps, int *algo, int *proto, int *nChannels);
typedef ncclResult_t tunerInfo_v3(void *ctx, int coll, size_t nBytes, int numPipeOps, float **table, int numAlgo,
                                  int numProto, int *nChannels);
typedef ncclResult_t tunerInfo_v4(void *ctx, int coll, size_t nBytes, int numPipeOps, float **table, int numAlgo,
                                  int numProto, int regBuff, int *nChannels);
typedef ncclResult_t tunerChunk_v6(void *ctx, int coll, size_t nBytes, int algo, int proto, int nChannels,
                                   size_t *chunk);
typedef ncclResult_t tunerDestroy(void *ctx);

struct tuner {
	int version;
	const char *name;
	tunerInit_v2 *init_v2;
	tunerInit_v5 *init_v5;
	tunerInfo_v2 *info_v2;
	tunerInfo_v3 *info_v3;
	tunerInfo_v4 *info_v4;
	tunerDestroy *destroy;
	tunerChunk_v6 *chunk_v6; /* may be NULL */
};

/* tuner_find takes a version from a library; false: it is not there, or lacks a member. */
bool tuner_find(struct tuner *tuner, void *library, int version);

ncclResult_t tuner_init(const struct tuner *tuner, void **ctx, size_t nranks, size_t nnodes);

/* What NCCL asks, and the costs it has. */
struct question {
	int coll, ops, algos, reg;
	size_t bytes;
	float cells[NCCL_ALGOS][NCCL_PROTOS]; /* below 0: not possible */
};

/* What becomes of it by NCCL's rules. */
struct answer {
	int algo, proto; /* of the least cost; -1: there is none, and NCCL gives up */
	int channels;    /* as the tuner said; 0: NCCL decides */
	float cells[NCCL_ALGOS][NCCL_PROTOS];
};

/* tuner_ask is false, with the reason in error, when the tuner breaks a rule. */
bool tuner_ask(const struct tuner *tuner, void *ctx, const struct question *q, struct answer *a, char *error,
               size_t error_size);

/* tuner_price fills in costs such as NCCL's model has: rings for all, trees and PAT where they exist. */
void tuner_price(struct question *q, int nranks);

#endif
