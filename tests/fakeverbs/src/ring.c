/* What any process does to a queue pair's receives and a completion queue's entries, its own or a peer's. */
#include "shm.h"

/* An entry too many: the queue reports an error once, and what comes later is lost. */
static void overrun(struct shm_cq *s, int index)
{
	struct shm_event e = {
		.type = IBV_EVENT_CQ_ERR, .device = s->device, .object = (uint32_t)index, .generation = atomic_load(&s->generation),
	};

	if (!s->overrun)
		proc_event(s->proc, &e);
	s->overrun = true;
}

/* Adds a completion; the caller holds a queue pair of this queue, which keeps the queue in being. */
void cq_push(int index, const struct shm_cqe *e, bool solicited)
{
	struct shm_cq *s = &shm->cq[index];
	bool ring = false;
	uint32_t tail;

	shm_lock(&s->lock);
	tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
	if (s->overrun || tail - atomic_load(&s->head) >= s->depth) {
		overrun(s, index);
	} else {
		*cqe_at(s, tail) = *e;
		cqe_at(s, tail)->solicited = solicited;
		atomic_store(&s->tail, tail + 1);
		if (atomic_load(&s->armed) == ARMED_NEXT || (atomic_load(&s->armed) == ARMED_SOLICITED && solicited)) {
			atomic_store(&s->armed, ARMED_NOT);
			atomic_store(&s->rung, 1);
			ring = true;
		}
	}
	shm_unlock(&s->lock);
	if (ring)
		proc_ring(s->proc);
}

/* Completes the waiting receives as flushed. Called with the shared lock held. */
void shm_qp_flush(struct shm_qp *s)
{
	uint32_t head = atomic_load(&s->rq_head);

	for (; head != atomic_load(&s->rq_tail); head++) {
		struct shm_cqe e = {.qp = NONE};

		e.wc.wr_id = recv_at(s, head)->wr_id;
		e.wc.status = IBV_WC_WR_FLUSH_ERR;
		e.wc.qp_num = s->qpn;
		cqe_spoil(&e.wc);
		if (!shm_holds(&s->lock))
			return;
		cq_push(s->recv_cq, &e, true);
		atomic_store(&s->rq_head, head + 1);
	}
}

void shm_qp_error(struct shm_qp *s)
{
	atomic_store(&s->state, IBV_QPS_ERR);
	shm_qp_flush(s);
}
