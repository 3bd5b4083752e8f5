/* Messages over an NCCL network, called as NCCL calls it: through its table of functions, and with nothing between. */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include "abi.h"
#include "bench.h"

struct half {
	void *comm, *mhandle;
};

extern const ncclNet_v12_t *net;

void ok(ncclResult_t result, const char *call);

#endif
