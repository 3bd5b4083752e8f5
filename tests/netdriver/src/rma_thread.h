/*
 * NCCL's threads that call an RMA plugin: that of its host RMA, which issues the operations of a rank in their order, tests the oldest
 * one and never calls rmaProgress; and that of its GIN proxy, which tests all that are outstanding and calls rmaProgress each time
 * around. The user's thread queues operations, as kernels do.
 */
#ifndef NETDRIVER_RMA_THREAD_H
#define NETDRIVER_RMA_THREAD_H

#include <pthread.h>
#include <stdatomic.h>

#include "rma.h"

enum rma_verb { RMA_PUT, RMA_GET, RMA_FLUSH };

struct rma_entry {
	enum rma_verb verb;
	struct rma_call call;
	void *request;
	bool done; /* by the thread, before it counts the entry as completed */
};

/* A queue of operations to one rank in one context. The indices only grow. */
struct rma_queue {
	struct rma_entry *entries;
	atomic_ulong queued;    /* by the user's thread */
	unsigned long issued;   /* by the thread, as tested */
	atomic_ulong completed; /* in order, by the thread */
	_Atomic int result;     /* the first error; the thread leaves the queue alone then */
	const char *_Atomic call;
	_Atomic uint64_t failed_ns;
};

struct rma_thread {
	struct rma *rma;
	bool gin;
	void *coll, *ctx;
	void *flush_mhandle;
	int nranks, contexts, depth; /* depth: a power of two */
	struct rma_queue *queues;    /* [context][rank] */
	atomic_bool stop;
	atomic_ulong operations;
	pthread_t thread;
};

/* Operations of a thread whose coll, ctx, nranks, contexts and depth are set. */
void rma_thread_start(struct rma_thread *t, const char *name);
void rma_thread_stop(struct rma_thread *t);
void rma_thread_free(struct rma_thread *t);

struct rma_queue *rma_thread_queue(struct rma_thread *t, int context, int rank);

/* rma_thread_push queues an operation, and returns its number in its queue, from 1; 0: the queue is full. */
unsigned long rma_thread_push(struct rma_thread *t, enum rma_verb verb, const struct rma_call *call);

/* rma_thread_done: the operation of that number has completed, as all before it. */
bool rma_thread_done(struct rma_thread *t, const struct rma_call *call, unsigned long number);

#endif
