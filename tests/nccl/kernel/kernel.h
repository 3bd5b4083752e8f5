// The kernels: what a GPU would do with the work that NCCL's host half hands over, done by one thread a launch. A strand is
// one sequence of moves on a channel; all strands of a launch are moved on in turn, none ever waits.
//
// Emulated: ring and tree, Simple and LL; PAT, where NCCL has it; all-reduce, all-gather, reduce-scatter, broadcast, reduce, send
// and receive. Not emulated: LL128, NVLS, CollNet, registered buffers, graphs, symmetric memory.
//
// Pointers in what NCCL hands over are of the device: they are followed through gpu_reach.
#pragma once
#include <stdbool.h>
#include "layout.h"
#include "../gpu/reach.h"

enum collective { SEND_RECV, ALL_GATHER, BROADCAST, BCASTS, ALL_REDUCE, REDUCE, REDUCE_SCATTER };

// What a kernel function does.
struct function {
	enum collective collective;
	enum operation operation;
	ncclDataType_t type;
	enum algorithm algorithm;
	enum protocol protocol;
};

// function_of is the function with this number.
const struct function *function_of(unsigned id);

// function_text names it for people.
const char *function_text(const struct function *f, char *text, size_t size);

// A reduction of elements.
struct reduction {
	enum operation operation;
	ncclDataType_t type;
	uint64_t arg;
};

size_t type_size(ncclDataType_t type);

// type_load is the element there, in the low bytes.
uint64_t type_load(ncclDataType_t type, const void *p);

// combine makes out of n elements of each source one result and writes it to each destination. pre: the first source is the
// caller's own and is scaled by operations that do so; post: the result is final and divided by those.
void combine(const struct reduction *r, char *const *to, int tos, const char *const *from, int froms, size_t n, bool pre, bool post);

// A place is where a chunk lies on a connection, of those that share its slots in PAT.
struct place {
	int end;        // of the strand's; -1 is none
	uint64_t ahead; // slots after the end's step
	size_t offset;  // elements in the slot
	bool post;      // the slot is done with
};

// A move is what one primitive of the device code does: takes from peers, combines with the own, gives to peers and keeps.
struct move {
	const char *from; // own data, or NULL
	char *to;         // where the result is kept, or NULL
	ssize_t n;        // elements; negative counts as 0
	bool recv, send;
	bool own;  // from is the user's input
	bool post; // the result is final
	struct place in, out; // PAT's only: one peer each, instead of all
};

enum { FAN = 6 }; // a tree has 3, PAT one for each bit of a rank

struct end { // of a connection
	struct connection *connection;
	uint64_t step;
	uint64_t filled; // by PAT: bytes, from the connection's first step on
};

// What PAT does next: the round of distances base, base + stride and so on.
struct pat {
	bool reduces;
	int whole;  // the power of two that has all ranks
	int near;   // rounds of distances below have it as their stride
	int shared; // chunks in a slot
	int base, stride, at;
	bool leaves;   // of these the chunk itself is moved, not its parent
	uint64_t kept; // address up to which the output has sums
};

enum progress { IDLE, MOVED, FINISHED };

struct strand {
	bool (*next)(struct strand *, struct move *); // false when there is no more
	enum progress (*advance)(struct strand *);    // with the move under way; FINISHED is that move
	const struct comm *comm;
	struct channel *channel;
	struct reduction reduction;
	size_t element;
	enum protocol protocol;
	int slices, steps; // of a move, of a slice
	size_t step_bytes;
	struct end in[FAN], out[FAN];
	int ins, outs;

	// The move under way.
	struct move move;
	bool opened, moving, announced;
	int slice;
	size_t offset; // elements of Simple, lines of LL

	// The program's own.
	union {
		struct {
			struct coll_work work;
			size_t count, offset, n, chunk; // all ranks' share, and this channel's
			size_t at;
			int stage;
			bool up;
			struct pat pat;
		} coll;
		struct {
			char *buffer;
			size_t bytes, at, chunk;
			bool send, begun;
		} p2p;
		struct {
			struct bcast_work *works;
			int count, at;
		} bcasts;
	};
};

// strand_advance does what can be done now.
enum progress strand_advance(struct strand *s);

// The protocols.
enum progress simple_advance(struct strand *s);
enum progress ll_advance(struct strand *s);

static inline uint64_t load(const uint64_t *p) {
	return __atomic_load_n((const uint64_t *)gpu_reach(p), __ATOMIC_ACQUIRE);
}

static inline void store(uint64_t *p, uint64_t v) {
	__atomic_store_n((uint64_t *)gpu_reach(p), v, __ATOMIC_RELEASE);
}

// ring_rank is a rank of the channel's ring, counted from this one.
static inline int ring_rank(const struct strand *s, int i) {
	return ((const int *)gpu_reach(s->channel->ring.ranks))[i];
}

// slot_of is what is said of the slot of a step; NULL where nobody asks.
static inline struct slot *slot_of(const struct connection *c, uint64_t step) {
	return c->slots ? (struct slot *)gpu_reach(c->slots) + step % STEPS : NULL;
}

static inline size_t least(size_t a, size_t b) {
	return a < b ? a : b;
}

// The programs. Each fills strands for one work on one channel and says how many.
enum { STRANDS = 2 };
int coll_strands(struct strand *s, const struct function *f, const struct coll_work *w, const struct comm *comm, struct channel *channel, int number);
int pat_strand(struct strand *s, bool reduces); // of one that has all but its program
int p2p_strands(struct strand *s, const struct p2p_work *w, const struct comm *comm, struct channel *channel, int number);
int bcasts_strands(struct strand *s, const struct function *f, struct bcast_work *works, int count, const struct comm *comm, struct channel *channel);

// strand_init sets what all programs need.
void strand_init(struct strand *s, const struct comm *comm, struct channel *channel, enum protocol protocol, int slices, int steps);
void strand_from(struct strand *s, int rank, int index);
void strand_to(struct strand *s, int rank, int index);
