/* Completion queues. The ring lies in the shared state: a peer's request completes a receive here. */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool busy(uint32_t at) { return live(shm->cq[at].generation); }

static struct shm_cq *allocate(int device, uint32_t depth, int *index)
{
	struct shm_cq *found = NULL;

	shm_lock(&shm->table);
	*index = (int)rota_take(&shm->cqs, MAX_CQS, busy);
	if (*index < MAX_CQS)
		found = &shm->cq[*index];
	if (found) {
		found->ring_offset = arena_alloc(depth * sizeof(struct shm_cqe), fake.proc);
		if (!found->ring_offset)
			found = NULL;
	}
	if (found) {
		found->proc = fake.proc;
		found->device = device;
		found->depth = depth;
		found->overrun = false;
		atomic_store(&found->head, 0);
		atomic_store(&found->tail, 0);
		atomic_store(&found->armed, ARMED_NOT);
		atomic_store(&found->rung, 0);
		atomic_fetch_add(&found->generation, 1);
	}
	shm_unlock(&shm->table);
	return found;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	struct context *c = to_context(context);
	int err = foreign(c->epoch) ? EIO : fault_verb(VERB_create_cq, NONE);
	struct cq *cq = NULL;

	if (!err && (cqe < 1 || cqe > MAX_CQE || vector < 0 || vector >= context->num_comp_vectors))
		err = EINVAL;
	if (!err) {
		cq = calloc(1, sizeof(*cq));
		if (cq)
			cq->s = allocate(c->device, (uint32_t)cqe, &cq->index);
		if (!cq || !cq->s)
			err = ENOMEM;
	}
	if (err) {
		free(cq);
		errno = err;
		return NULL;
	}
	cq->epoch = c->epoch;
	cq->ibv.context = context;
	cq->ibv.channel = channel;
	cq->ibv.cq_context = cq_context;
	cq->ibv.handle = (uint32_t)cq->index;
	cq->ibv.cqe = cqe;
	pthread_mutex_init(&cq->ibv.mutex, NULL);
	pthread_cond_init(&cq->ibv.cond, NULL);
	pthread_mutex_lock(&fake.objects);
	fake.cq[cq->index] = cq;
	if (cq->index >= fake.cq_end)
		fake.cq_end = cq->index + 1;
	if (channel)
		channel->refcnt++;
	pthread_mutex_unlock(&fake.objects);
	return &cq->ibv;
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct cq *cq = to_cq(ibv);
	int err = foreign(cq->epoch) ? EIO : fault_verb(VERB_destroy_cq, NONE);

	if (err)
		return err;
	if (atomic_load(&cq->users))
		return EBUSY;
	pthread_mutex_lock(&fake.objects);
	fake.cq[cq->index] = NULL;
	if (ibv->channel) {
		cq_event_forget(cq);
		ibv->channel->refcnt--;
	}
	async_forget(to_context(ibv->context), ibv);
	pthread_mutex_unlock(&fake.objects);
	async_settle(&ibv->mutex, &ibv->cond, &ibv->comp_events_completed, &cq->events_read);
	async_settle(&ibv->mutex, &ibv->cond, &ibv->async_events_completed, &cq->async_read);
	shm_lock(&shm->table);
	arena_free(cq->s->ring_offset, cq->s->depth * sizeof(struct shm_cqe));
	atomic_fetch_add(&cq->s->generation, 1);
	shm_unlock(&shm->table);
	free(cq);
	return 0;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	(void)cq;
	(void)cqe;
	return EOPNOTSUPP;
}

/* Takes out what a queue pair left, as a driver does when the queue pair is reset or destroyed. */
void cq_purge(struct cq *cq, uint32_t qpn)
{
	struct shm_cq *s = cq->s;
	uint32_t keep;

	shm_lock(&s->lock);
	keep = atomic_load(&s->tail);
	for (uint32_t at = keep; at != atomic_load(&s->head);) {
		at--;
		if (cqe_at(s, at)->wc.qp_num != qpn)
			*cqe_at(s, --keep) = *cqe_at(s, at);
	}
	atomic_store(&s->head, keep);
	shm_unlock(&s->lock);
}

static void reclaim(const struct shm_cqe *e)
{
	struct qp *qp = e->qp >= 0 ? fake.qp[e->qp] : NULL;

	if (qp)
		atomic_store(&qp->reclaimed, e->sq_index + 1);
}

/* A real card works while the processor spins; here the peer that is waited for may need this processor. */
static void idle(struct cq *cq)
{
	uint32_t n = atomic_load_explicit(&cq->empty_polls, memory_order_relaxed) + 1;

	atomic_store_explicit(&cq->empty_polls, n, memory_order_relaxed);
	if (n % 1024 == 0)
		sched_yield();
}

int poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct cq *cq = to_cq(ibv);
	struct shm_cq *s = cq->s;
	int got = 0;

	if (foreign(cq->epoch) || (unlikely(atomic_load_explicit(&shm->rules, memory_order_relaxed)) && fault_verb(VERB_poll_cq, NONE)))
		return -1;
	if (atomic_load_explicit(&work_pending, memory_order_relaxed))
		service_polled();
	if (atomic_load_explicit(&s->head, memory_order_relaxed) == atomic_load_explicit(&s->tail, memory_order_acquire)) {
		idle(cq);
		return 0;
	}
	shm_lock(&s->lock);
	for (uint32_t at = atomic_load(&s->head); got < n && at != atomic_load(&s->tail); at++) {
		const struct shm_cqe *e = cqe_at(s, at);

		if (e->ready && e->ready > now_ns())
			break;
		wc[got++] = e->wc;
		reclaim(e);
		atomic_store(&s->head, at + 1);
	}
	shm_unlock(&s->lock);
	return got;
}

/* Whether the queue holds a completion of the kind that is asked for. The caller holds the queue's lock. */
static bool waiting(const struct shm_cq *s, bool solicited_only)
{
	for (uint32_t at = atomic_load(&s->head); at != atomic_load(&s->tail); at++)
		if (!solicited_only || cqe_at(s, at)->solicited)
			return true;
	return false;
}

/* The driver of mlx5 writes the number of completions taken so far beside the request, and the adapter raises the event at once when
 * there are more. The standard, and rxe, count only completions that are added later. */
int req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct cq *cq = to_cq(ibv);
	bool now;
	int err = foreign(cq->epoch) ? EIO : fault_verb(VERB_req_notify_cq, NONE);

	if (err)
		return err;
	if (!ibv->channel)
		return EINVAL;
	/* A call for the next completion is not weakened by a later one for solicited completions. */
	shm_lock(&cq->s->lock);
	if (!solicited_only || atomic_load(&cq->s->armed) == ARMED_NOT)
		atomic_store(&cq->s->armed, solicited_only ? ARMED_SOLICITED : ARMED_NEXT);
	now = waiting(cq->s, atomic_load(&cq->s->armed) == ARMED_SOLICITED);
	if (now)
		atomic_store(&cq->s->armed, ARMED_NOT);
	shm_unlock(&cq->s->lock);
	if (now)
		cq_event_deliver(cq);
	return 0;
}
