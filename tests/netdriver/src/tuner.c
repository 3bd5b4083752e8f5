/* The tuner's versions behind one interface, and NCCL's rules for what they answer. */
#include "tuner.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "log.h"
#include "plugin.h"

enum { GARBAGE_INT = INT_MIN + 0x5A5A, GUARD = 8 };

#define CONSTANTS_BYTES 1152

/* The tables as NCCL sees them; all members are pointers. */
struct table_v2 {
	const char *name;
	void *init, *info, *destroy, *chunk; /* chunk: from version 6 on */
};

bool tuner_find(struct tuner *tuner, void *library, int version)
{
	char symbol[32];
	const struct table_v2 *table;

	memset(tuner, 0, sizeof *tuner);
	snprintf(symbol, sizeof symbol, "ncclTunerPlugin_v%d", version);
	if (!(table = dlsym(library, symbol)))
		return false;
	tuner->version = version;
	tuner->name = table->name;
	if (version < 5)
		tuner->init_v2 = (tunerInit_v2 *)table->init;
	else
		tuner->init_v5 = (tunerInit_v5 *)table->init;
	if (version == 2)
		tuner->info_v2 = (tunerInfo_v2 *)table->info;
	else if (version == 3)
		tuner->info_v3 = (tunerInfo_v3 *)table->info;
	else
		tuner->info_v4 = (tunerInfo_v4 *)table->info;
	tuner->destroy = (tunerDestroy *)table->destroy;
	if (version >= 6)
		tuner->chunk_v6 = (tunerChunk_v6 *)table->chunk;
	return table->name && table->init && table->info && table->destroy;
}

ncclResult_t tuner_init(const struct tuner *tuner, void **ctx, size_t nranks, size_t nnodes)
{
	int domains[3] = {(int)nnodes, 1, 1};
	double constants[CONSTANTS_BYTES / sizeof(double)];

	for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
		constants[i] = 1;
	*ctx = net_garbage();
	if (tuner->init_v2)
		return tuner->init_v2(nranks, nnodes, nccl_logger, ctx);
	return tuner->init_v5(ctx, 42, nranks, nnodes, nccl_logger, domains, constants);
}

/* flat is the table as NCCL lays it out: rows of as many algorithms as it knows, and then memory of others. */
struct flat {
	float cells[NCCL_ALGOS * NCCL_PROTOS], guard[GUARD];
};

static ncclResult_t ask(const struct tuner *tuner, void *ctx, const struct question *q, struct flat *flat,
                        int *channels)
{
	float **table = (float **)flat->cells;
	int algo = GARBAGE_INT, proto = GARBAGE_INT;
	ncclResult_t result;

	if (tuner->info_v4)
		return tuner->info_v4(ctx, q->coll, q->bytes, q->ops, table, q->algos, NCCL_PROTOS, q->reg, channels);
	if (tuner->info_v3)
		return tuner->info_v3(ctx, q->coll, q->bytes, q->ops, table, q->algos, NCCL_PROTOS, channels);
	result = tuner->info_v2(ctx, q->coll, q->bytes, 0, 0, q->ops, &algo, &proto, channels);
	if (algo >= 0 && algo < q->algos && proto >= 0 && proto < NCCL_PROTOS)
		flat->cells[algo * NCCL_PROTOS + proto] = 0; /* 2.21 asks nothing further */
	else if (algo != -1 || proto != -1)
		*channels = GARBAGE_INT;
	return result;
}

static void choose(const struct question *q, const struct flat *flat, struct answer *a)
{
	float least = __FLT_MAX__;

	a->algo = a->proto = -1;
	memcpy(a->cells, flat->cells, sizeof a->cells);
	for (int i = 0; i < q->algos * NCCL_PROTOS; i++)
		if (flat->cells[i] >= 0 && flat->cells[i] < least) {
			least = flat->cells[i];
			a->algo = i / NCCL_PROTOS;
			a->proto = i % NCCL_PROTOS;
		}
}

#define RULE(condition, ...) \
	do { \
		if (!(condition)) { \
			snprintf(error, size, __VA_ARGS__); \
			return false; \
		} \
	} while (0)

bool tuner_ask(const struct tuner *tuner, void *ctx, const struct question *q, struct answer *a, char *error,
               size_t size)
{
	const float *before = &q->cells[0][0];
	bool possible = false;
	struct flat flat;
	ncclResult_t result;

	memcpy(flat.cells, q->cells, sizeof flat.cells);
	for (int i = 0; i < GUARD; i++)
		flat.guard[i] = 77;
	a->channels = GARBAGE_INT;
	result = ask(tuner, ctx, q, &flat, &a->channels);
	RULE(result == ncclSuccess, "getCollInfo returned %s (%d), and NCCL would abort", result_name(result), (int)result);
	RULE(a->channels != GARBAGE_INT, "an output is as it was");
	RULE(a->channels >= 0 && a->channels <= 64, "%d channels", a->channels);
	/* From 2.29 on a group of broadcasts is asked about as an all-gather, and the number is used uncapped. */
	RULE(tuner->version < 5 || q->coll != NCCL_ALLGATHER || a->channels <= 1,
	     "%d channels for an all-gather, and the communicator may have fewer", a->channels);
	for (int i = 0; i < GUARD; i++)
		RULE(flat.guard[i] == 77, "memory behind the table of costs was written");
	for (int i = 0; i < NCCL_ALGOS * NCCL_PROTOS; i++) {
		bool known = i < q->algos * NCCL_PROTOS;

		RULE(known || flat.cells[i] == before[i], "a cell of an algorithm that NCCL lacks was written");
		RULE(!known || before[i] >= 0 || !(flat.cells[i] >= 0), "the cell of algorithm %d and protocol %d is not possible, "
		     "and became %g", i / NCCL_PROTOS, i % NCCL_PROTOS, (double)flat.cells[i]);
		possible |= known && before[i] >= 0;
	}
	choose(q, &flat, a);
	RULE(!possible || a->algo >= 0, "nothing that was possible is left, and NCCL would abort");
	return true;
}

void tuner_price(struct question *q, int nranks)
{
	bool reduces = q->coll == NCCL_ALLREDUCE, shards = q->coll == 2 || q->coll == 3;

	for (int a = 0; a < NCCL_ALGOS; a++)
		for (int p = 0; p < NCCL_PROTOS; p++) {
			bool there = a == NCCL_RING || (a == NCCL_TREE && reduces) || (a == NCCL_PAT && shards && p == NCCL_SIMPLE);

			q->cells[a][p] = -1;
			if (there && p != NCCL_LL128 && a < q->algos)
				q->cells[a][p] = (float)((p == NCCL_LL ? 5 : 14) * (a == NCCL_RING ? nranks : 3)) +
				                 (float)q->bytes / (p == NCCL_LL ? 5000.f : 20000.f);
		}
}
