#include "rma_thread.h"

#include <sched.h>
#include <stdlib.h>

#include "log.h"
#include "watchdog.h"

struct rma_queue *rma_thread_queue(struct rma_thread *t, int context, int rank)
{
	return &t->queues[context * t->nranks + rank];
}

static struct rma_entry *entry(const struct rma_thread *t, struct rma_queue *q, unsigned long i)
{
	return &q->entries[i & (unsigned long)(t->depth - 1)];
}

static bool fail(struct rma_queue *q, ncclResult_t result, const char *call)
{
	if (result == ncclSuccess)
		return false;
	atomic_store(&q->call, call);
	atomic_store(&q->failed_ns, now_ns());
	atomic_store(&q->result, (int)result);
	watchdog_fed();
	return true;
}

/* complete tests what is outstanding: the host RMA's thread the oldest only, until one is not done. */
static void complete(struct rma_thread *t, struct rma_queue *q)
{
	for (unsigned long i = atomic_load(&q->completed); i < q->issued; i++) {
		struct rma_entry *e = entry(t, q, i);
		int done = 0;

		if (!e->done) {
			if (fail(q, rma_test(t->rma, t->coll, e->request, &done), "test"))
				return;
			e->done = done != 0;
		}
		if (e->done && i == atomic_load(&q->completed)) {
			atomic_store(&q->completed, i + 1);
			atomic_fetch_add(&t->operations, 1);
			watchdog_fed();
		} else if (!t->gin) {
			return;
		}
	}
}

static ncclResult_t issue(struct rma_thread *t, struct rma_entry *e)
{
	switch (e->verb) {
	case RMA_PUT:
		return rma_put(t->rma, t->ctx, &e->call, &e->request);
	case RMA_GET:
		return rma_get(t->rma, t->ctx, &e->call, &e->request);
	case RMA_FLUSH:
		break;
	}
	return rma_flush(t->rma, t->ctx, e->call.context, t->flush_mhandle, e->call.rank, &e->request);
}

/* begin issues what is queued: the GIN proxy's thread one operation each time around. */
static void begin(struct rma_thread *t, struct rma_queue *q)
{
	static const char *const names[] = {[RMA_PUT] = "iput", [RMA_GET] = "iget", [RMA_FLUSH] = "iflush"};

	while (q->issued < atomic_load(&q->queued)) {
		struct rma_entry *e = entry(t, q, q->issued);

		e->request = NULL;
		if (fail(q, issue(t, e), names[e->verb]))
			return;
		e->done = !e->request;
		q->issued++;
		if (t->gin)
			return;
	}
}

static void *loop(void *arg)
{
	struct rma_thread *t = arg;

	while (!atomic_load(&t->stop)) {
		for (int i = 0; i < t->contexts * t->nranks; i++) {
			struct rma_queue *q = &t->queues[i];

			if (atomic_load(&q->result) == ncclSuccess)
				complete(t, q);
			if (atomic_load(&q->result) == ncclSuccess)
				begin(t, q);
		}
		if (t->gin && t->rma->table->rmaProgress)
			t->rma->table->rmaProgress(t->ctx);
		sched_yield();
	}
	return NULL;
}

void rma_thread_start(struct rma_thread *t, const char *name)
{
	size_t n = (size_t)t->contexts * (size_t)t->nranks;

	t->queues = calloc(n, sizeof *t->queues);
	for (size_t i = 0; i < n; i++)
		t->queues[i].entries = calloc((size_t)t->depth, sizeof *t->queues[i].entries);
	if (pthread_create(&t->thread, NULL, loop, t))
		die("cannot start a thread");
	pthread_setname_np(t->thread, name);
}

void rma_thread_stop(struct rma_thread *t)
{
	atomic_store(&t->stop, true);
	pthread_join(t->thread, NULL);
}

void rma_thread_free(struct rma_thread *t)
{
	for (int i = 0; i < t->contexts * t->nranks; i++)
		free(t->queues[i].entries);
	free(t->queues);
}

unsigned long rma_thread_push(struct rma_thread *t, enum rma_verb verb, const struct rma_call *call)
{
	struct rma_queue *q = rma_thread_queue(t, call->context, (int)call->rank);
	unsigned long i = atomic_load(&q->queued);

	if (i - atomic_load(&q->completed) == (unsigned long)t->depth)
		return 0;
	*entry(t, q, i) = (struct rma_entry){.verb = verb, .call = *call};
	atomic_store(&q->queued, i + 1);
	return i + 1;
}

bool rma_thread_done(struct rma_thread *t, const struct rma_call *call, unsigned long number)
{
	return atomic_load(&rma_thread_queue(t, call->context, (int)call->rank)->completed) >= number;
}
