// The table of kernel functions, inverted: NCCL counts rows and has a number for each; here a number finds its row.
#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
#include "kernel.h"
#include "../gpu/gpu.h"

enum { FUNCTIONS = 1 << 15 }; // a batch has 15 bits for the number

static struct function functions[FUNCTIONS];
static bool known[FUNCTIONS];

static int row;

// add gives the next row to a function.
static void add(struct function f) {
	int id = ncclDevFuncRowToId[row++];
	if (id < 0 || id >= FUNCTIONS || known[id]) return; // not built, or the same as one with another signedness
	functions[id] = f;
	known[id] = true;
}

static void add_protocols(struct function f) {
	for (int p = 0; p < PROTOCOLS; p++) {
		f.protocol = p;
		add(f);
	}
}

static const enum algorithm all_reduce[] = {TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE};
static const enum algorithm gather_scatter[] = {RING, COLLNET_DIRECT, NVLS, PAT};
static const enum algorithm ring_only[] = {RING};

static void add_algorithms(struct function f, const enum algorithm *algorithms, int count) {
	for (int a = 0; a < count; a++) {
		f.algorithm = algorithms[a];
		add_protocols(f);
	}
}

static void add_reductions(enum collective c, const enum algorithm *algorithms, int count) {
	for (int o = 0; o < OPERATIONS; o++)
		for (int t = 0; t < TYPES; t++) add_algorithms((struct function){.collective = c, .operation = o, .type = t}, algorithms, count);
}

static void fill(void) {
	add((struct function){.collective = SEND_RECV, .type = ncclInt8, .algorithm = RING, .protocol = SIMPLE});
	add_algorithms((struct function){.collective = ALL_GATHER, .type = ncclInt8}, gather_scatter, ALGORITHMS_GATHER_SCATTER);
	add_algorithms((struct function){.collective = BROADCAST, .type = ncclInt8}, ring_only, 1);
	if (HAS_GROUPED_BCAST) add_algorithms((struct function){.collective = BCASTS, .type = ncclInt8}, ring_only, 1);
	add_reductions(ALL_REDUCE, all_reduce, ALGORITHMS_ALL_REDUCE);
	add_reductions(REDUCE, ring_only, 1);
	add_reductions(REDUCE_SCATTER, gather_scatter, ALGORITHMS_GATHER_SCATTER);
}

const struct function *function_of(unsigned id) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, fill);
	if (id >= FUNCTIONS || !known[id]) gpu_panic("NCCL launches kernel function %u, which its table does not have", id);
	return &functions[id];
}

const char *function_text(const struct function *f, char *text, size_t size) {
	static const char *const collectives[] = {"SendRecv", "AllGather", "Broadcast", "Broadcasts", "AllReduce", "Reduce", "ReduceScatter"};
	static const char *const algorithms[] = {"tree", "ring", "CollNet direct", "CollNet chain", "NVLS", "NVLS tree", "PAT"};
	static const char *const protocols[] = {"LL", "LL128", "Simple"};
	snprintf(text, size, "%s %s %s", collectives[f->collective], algorithms[f->algorithm], protocols[f->protocol]);
	return text;
}
