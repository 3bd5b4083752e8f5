// How NCCL lays out what its host half hands to its kernels: all that differs between versions is in this file. Names of
// members are ours. Only versions that are tested are here.
#pragma once
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <nccl.h>

#if NCCL_VERSION_CODE == 22203
#define LAYOUT_2_22 1
#define LAYOUT_2_29 0
#elif NCCL_VERSION_CODE == 22907
#define LAYOUT_2_22 0
#define LAYOUT_2_29 1
#else
#error "the layouts of this version of NCCL are not known: read them in its src/include/device.h and add them here"
#endif

enum {
	STEPS = 8, // of a connection's buffer
	PEERS = 2, // connections to a peer on a channel: 0 for collectives, 1 for send and receive
	TREE_DOWN = 3,
	CHANNELS = LAYOUT_2_22 ? 32 : 64,
};

enum protocol { LL, LL128, SIMPLE, PROTOCOLS };

// What a slot of a connection holds, said beside its buffer to the thread that drives the network.
struct slot {
	int mode, offset;
	ssize_t size;
	void *ptr;
};
enum { MODE_OFFSET = 1 }; // the slot's data is at this offset, not at its number times the step

struct connection {
	char *buffers[PROTOCOLS];
	void *handles[PROTOCOLS];
	uint64_t *tail, *head; // how many steps have been filled, and how many are free again
	int flags, shared;
	int step_size;
	void **pointers;
	uint64_t *op_args;
	struct slot *slots;
	uint64_t step; // how far this side has come
	uint64_t cleaned;
	char device_handle[32];
};
static_assert(sizeof(struct connection) == 152, "struct ncclConnInfo");

struct peer {
	struct connection send[PEERS], recv[PEERS];
};

struct ring {
	int prev, next;
	int *ranks; // in the order of the ring, from this one
#if LAYOUT_2_29
	int *index_of;
#endif
	int index;
};

struct tree {
	int depth, up, down[TREE_DOWN];
};

struct channel {
	struct peer **peers;
	struct ring ring;
	struct tree tree, chain;
	int direct[5 + 8 + 7 + 7];
	int nvls[3 + 32 + 1 + 1 + 3 + (LAYOUT_2_22 ? 2 : 0)];
	uint32_t *done;
#if LAYOUT_2_29
	uint64_t work_counter;
#endif
} __attribute__((aligned(16)));

struct comm {
	int rank, ranks, node, nodes;
	int buffer_sizes[PROTOCOLS];
	int p2p_chunk;
#if LAYOUT_2_22
	uint32_t *consumed; // by channel: how far the queue of work has been read
#else
	int all_nvlink;
#endif
	int *dense_to_rank;
	volatile uint32_t *abort;
	struct channel *channels;
#if LAYOUT_2_29
	int *local_rank;
	void *started, *completed;
#endif
};

struct p2p_work {
	char *send, *recv;
	size_t send_bytes, recv_bytes;
	int send_rank, recv_rank;
	uint8_t channels, base;
	uint8_t send_channels, recv_channels;
	uint8_t send_chunk, recv_chunk; // as chunk_bytes reads it
	uint8_t send_ll : 1, recv_ll : 1, registered : 4;
} __attribute__((aligned(16)));

struct coll_work {
	uint32_t first : 8, last : 8, warps : 8;
	uint32_t arg_is_pointer : 1;
#if LAYOUT_2_22
	uint32_t registered : 2, one_node : 1, direct : 4;
#else
	uint32_t registered : 2, one_node : 1, direct : 2, one_rank : 1, profiled : 1;
#endif
	uint32_t root;
	char *recv, *send;
#if LAYOUT_2_29
	uint64_t offsets[2], *remotes[2];
#endif
	size_t count_first, count_middle, count_last;
	uint64_t grains_first : 21, grains_middle : 21, grains_last : 21;
	uint64_t arg;
} __attribute__((aligned(16)));
static_assert(sizeof(struct coll_work) == (LAYOUT_2_22 ? 64 : 96), "struct ncclDevWorkColl");

struct bcast_work { // of a group of broadcasts with several roots, 2.29
	int depth, chunk;
	char *send, *recv;
	size_t bytes, done;
	uint8_t pad[8];
} __attribute__((aligned(16)));

enum work_type { WORK_P2P, WORK_COLL, WORK_COLL_REGISTERED, WORK_BCAST };

// Some works of one kernel on one channel: those of the array at offset whose bits are set.
struct batch {
	uint32_t jump : 14, extends : 1, type : 2, function : 15;
	uint32_t offset;
	uint64_t bits;
};
static_assert(sizeof(struct batch) == 16, "struct ncclDevWorkBatch");

enum { STORED_IN_ARGS, STORED_IN_QUEUE, STORED_FOR_GOOD };

// The kernel's argument; the batches follow it, first the first of each channel.
struct args {
	struct comm *comm;
	uint64_t channels;
	uint8_t storage;
	uint32_t mask;
	char *works;
} __attribute__((aligned(16)));
static_assert(sizeof(struct args) == 32, "struct ncclDevKernelArgs");

// Channels follow their comm at once.
struct comm_and_channels {
	struct comm comm;
	struct channel channels[CHANNELS];
} __attribute__((aligned(16)));

enum operation { SUM, PROD, MIN_MAX, PRE_MUL_SUM, SUM_POST_DIV, OPERATIONS };

// Which share of a send or receive a channel carries.
static inline int p2p_part(const struct p2p_work *w, int channel) {
	int delta = (channel - w->base) & (w->channels - 1);
	if (LAYOUT_2_29) return delta;
	int part = 0; // 2.22 deals the parts out in bit-reversed order
	for (int bit = 1, top = w->channels >> 1; top; bit <<= 1, top >>= 1)
		if (delta & bit) part |= top;
	return part;
}

// The argument of an average of integers.
static inline uint64_t average_divisor(uint64_t arg) {
	return LAYOUT_2_22 ? (uint32_t)arg : (uint32_t)arg >> 1;
}

static inline int average_signed(uint64_t arg, ncclDataType_t type) {
	return LAYOUT_2_22 ? type == ncclInt8 || type == ncclInt32 || type == ncclInt64 : arg & 1;
}

// How the table of kernel functions is counted: by collective, then operation, type, algorithm, protocol.
enum algorithm { TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT };
enum {
	TYPES = LAYOUT_2_22 ? 10 : 12,
	ALGORITHMS_ALL_REDUCE = 6,
	ALGORITHMS_GATHER_SCATTER = LAYOUT_2_22 ? 3 : 4, // ring, two that are not emulated, PAT
	HAS_GROUPED_BCAST = LAYOUT_2_29,
};
extern const int ncclDevFuncRowToId[];
