/*
 * One communicator of the RMA interface, as NCCL's host RMA or its GIN proxy has it, with the thread that calls the plugin. The user's
 * thread plays the kernels: it makes messages flow between all ranks, itself included, in each context, and checks them. A flow is a
 * ring of slots: a message is put into one with a signal, and a signal comes back when its receiver has checked it.
 */
#ifndef NETDRIVER_RMA_SIDE_H
#define NETDRIVER_RMA_SIDE_H

#include "comm.h"
#include "rma_thread.h"

enum {
	PHASES = 3,     /* each with a window of its own, which is registered while the thread before is at work */
	SLOTS = 4,      /* of a flow: messages that the receiver has not seen yet */
	GIN_CONTEXTS = 2,
	STILL = 65536,  /* bytes to get */
	MAX_SLOT = 1 << 20,
};

/* A window, with its part on this rank. */
struct window {
	struct region region;
	void *mhandle;
};

/* What flows in one context to and from one rank. */
struct flow {
	int context, peer;
	unsigned long sent, acknowledged, received, owed; /* owed: acknowledgements to send */
	unsigned long numbers[SLOTS];                     /* in the queue, of the last operation that uses the slot */
	unsigned long get;                                /* number of a get that is outstanding; 0: none */
	struct rma_call got;
};

/* One of the two communicators. */
struct side {
	struct job *job;
	struct rma *rma;
	bool gin;
	int contexts;
	size_t slot;
	void *init, *coll, *ctx;
	struct rma_thread thread;
	struct window words, source, still, landing, phases[PHASES];
	int phase, registered;
	struct flow *flows; /* [context][rank] */
	long messages;
	double bytes;
};

int side_ranks(const struct side *s);
int side_rank(const struct side *s);
const char *side_name(const struct side *s);

/* side_need dies unless the plugin returned ncclSuccess. */
void side_need(const struct side *s, ncclResult_t result, const char *call);

/* side_connect listens, exchanges handles and connects; connect gets wrong_ctx, unless that is NULL, in the place of the context. It
 * returns the listener, which is still open if listening. */
void *side_connect(struct side *s, void *wrong_ctx, bool listening);

/* side_open connects, starts the thread and registers the windows of the first phase. side_close is in NCCL's order. */
void side_open(struct side *s, int depth, void *wrong_ctx);
void side_close(struct side *s);

/* Windows: all ranks open the same ones in the same order. With flags the memory holds zeros, else canary. */
void window_open(struct side *s, struct window *w, size_t size, bool in_host, uint64_t flags);
void window_close(struct side *s, struct window *w);
void side_register_phase(struct side *s);

/* side_word reads a word of signals; side_shared is the offset of the one that all ranks add to, side_judged of the one that counts the ranks
 * that have judged a death. */
uint64_t side_word(const struct side *s, size_t offset);
size_t side_shared(const struct side *s);
size_t side_judged(const struct side *s);

/* side_push queues an operation; false: the queue is full. */
bool side_push(struct side *s, enum rma_verb verb, const struct rma_call *call, unsigned long *number);
struct rma_call flow_signal(const struct side *s, const struct flow *f, size_t offset, uint64_t value);

/* flow_step moves a flow on, up to goal messages each way. side_step moves all on, and reports whether they are there. */
bool flow_step(struct side *s, struct flow *f, unsigned long goal);
bool side_step(struct side *s, unsigned long goal, bool *moved);

/* side_check dies if a queue has failed; side_check_end checks what is left when all flows have ended. */
void side_check(struct side *s);
void side_check_end(struct side *s);

#endif
