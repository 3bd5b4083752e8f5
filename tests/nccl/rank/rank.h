// The rank program: one rank of a job that does what its arguments say, a step each, and checks every result.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>
#include <nccl.h>

struct job {
	int rank, ranks;
	const char *id; // file by which the ranks meet
	int meetings;
	double patience; // seconds to wait for a collective; 0 is for ever
};

// A group is a communicator with the stream that its work runs on.
struct group {
	ncclComm_t comm;
	cudaStream_t stream;
	int rank, ranks;
};

// fail ends the process with a line that says what is wrong.
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// say prints a line for the test to read.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

double now(void);

#define NCCL(call) \
	do { \
		ncclResult_t r_ = (call); \
		if (r_ != ncclSuccess) fail("%s: %s (%s)", #call, ncclGetErrorString(r_), ncclGetLastError(NULL)); \
	} while (0)
#define CUDA(call) \
	do { \
		cudaError_t e_ = (call); \
		if (e_ != cudaSuccess) fail("%s: %s", #call, cudaGetErrorString(e_)); \
	} while (0)

// meet gives all ranks the identifier that rank 0 made.
void meet(struct job *j, ncclUniqueId *id);

// group_open makes a communicator of all ranks, group_close ends it.
void group_open(struct job *j, struct group *g);
void group_close(const struct job *j, struct group *g);

// group_wait waits for the stream. An error that NCCL notes meanwhile is returned.
ncclResult_t group_wait(const struct job *j, struct group *g);

// An order is one collective: what, on which elements, how many of them.
struct order {
	const char *name; // of the collective
	const struct collective *collective;
	ncclDataType_t type;
	ncclRedOp_t op;
	size_t count; // elements of a rank: of what it sends, or of what it gets where that is less
	int root;
	bool in_place;
	int seed;
};

// order_parse reads "COLLECTIVE TYPE OP COUNT [root=N] [inplace]".
void order_parse(struct order *o, char *text);

const char *order_text(const struct order *o, char *text, size_t size);

// A collective: how much each rank sends and gets, in units of count, and the call.
struct collective {
	const char *name;
	bool sends_all, gets_all; // ranks times as much
	bool reduces;
	ncclResult_t (*call)(const struct order *o, const struct group *g, const void *from, void *to);
	// source is the rank and the element whose data element i of what this rank gets is; -1 where it gets nothing
	int (*source)(const struct order *o, const struct group *g, size_t i, size_t *element);
};
const struct collective *collective_named(const char *name);

// Types. Those of 8 bits begin with 2.24.
enum { TYPES = NCCL_VERSION_CODE >= 22400 ? 12 : 10 };
size_t type_bytes(ncclDataType_t type);
void type_put(ncclDataType_t type, void *at, size_t i, double v);
double type_get(ncclDataType_t type, const void *at, size_t i);
double type_tolerance(ncclDataType_t type);

// order_check does it once and compares all that it wrote; order_try returns NCCL's error, if it has one, and wrong bytes are
// a failure all the same. order_time says how long it takes.
ncclResult_t order_try(const struct job *j, struct group *g, const struct order *o);
void order_check(const struct job *j, struct group *g, const struct order *o);
void order_time(const struct job *j, struct group *g, const struct order *o, int iterations);

// The cases that are more than one collective after another.
void case_split(struct job *j, struct group *g, bool share);    // a part of a communicator beside it
void case_abort(struct job *j, struct group *g, double after);  // with collectives in flight
void case_cycles(struct job *j, int cycles, double rest);       // made and ended, and what that leaves behind
void case_until_error(struct job *j, struct group *g, const char *until); // collectives until NCCL says that one fails, or so long, or a file is there
void case_killed(const struct job *j, int rank, double after);  // that rank, while the next step is done
