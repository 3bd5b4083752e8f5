// What NCCL has in device code beside its kernels, by the names its C++ gives them.
#include <stdlib.h>
#include <string.h>
#include "kernel.h"
#include "../gpu/gpu.h"

struct full_operation {
	enum operation operation;
	int proxy;
	bool pointer;
	uint64_t arg;
};

struct one_rank {
	char *to;
	const char *from;
	size_t n;
	struct full_operation operation;
	ncclDataType_t type;
};

static void run(void *data) {
	struct one_rank *o = data;
	uint64_t arg = o->operation.pointer ? type_load(o->type, (const void *)o->operation.arg) : o->operation.arg;
	combine(&(struct reduction){o->operation.operation, o->type, arg}, &o->to, 1, &o->from, 1, o->n, true, false);
}

// A collective of one rank: a copy, scaled by the operations that scale.
ncclResult_t one_rank(char *to, const char *from, size_t n, struct full_operation operation, ncclDataType_t type, cudaStream_t stream)
	__asm__("_Z17ncclLaunchOneRankPvPKvm16ncclDevRedOpFull14ncclDataType_tP11CUstream_st");

ncclResult_t one_rank(char *to, const char *from, size_t n, struct full_operation operation, ncclDataType_t type, cudaStream_t stream) {
	struct one_rank *o = malloc(sizeof *o);
	*o = (struct one_rank){to, from, n, operation, type};
	stream_run(stream, run, o);
	return ncclSuccess;
}

ncclResult_t reset_signals(void *comm, const void *device_comm) __asm__("_Z30ncclGinResetSignalsAndCountersP8ncclCommPK11ncclDevComm");

ncclResult_t reset_signals(void *comm, const void *device_comm) {
	(void)comm, (void)device_comm;
	return ncclInternalError;
}
