/* The requester's half: a request is sent in segments, delivered, acknowledged and completed, in order.
 *
 *      posted --transmit--> on the wire --deliver--> at the peer --acknowledge--> completed
 *
 * On a link without rate and latency all of it happens in one call. Where the model, a fault or the peer holds a request up, times
 * are noted, and whoever calls next after them goes on. */
#include "fake.h"

#include <errno.h>

enum {
	FOREVER_STEP = 100 * 1000 * 1000, /* ns between looks where the time-out is switched off */
	HANDLING = 1000,                  /* ns that posting, noticing and copying take beside what is modelled */
};

static struct wqe *at(const struct qp *qp, uint32_t index)
{
	return &qp->sq[index % qp->cap.max_send_wr];
}

static struct shm_link *path_link(const struct qp *qp)
{
	const struct shm_qp *s = qp->s;

	return s->port < 0 || s->dest_port == s->port || shm->port[s->port].link < 0 ? NULL : &shm->link[shm->port[s->port].link];
}

bool path_modelled(const struct qp *qp)
{
	const struct shm_link *l = path_link(qp);

	return l && (l->rate || l->latency);
}

static bool is_read(const struct wqe *w) { return w->opcode == IBV_WR_RDMA_READ; }

/* Takes the link for `bytes`; returns when they have arrived. Data of a read comes back from the peer, a latency later. */
static uint64_t reserve(struct qp *qp, struct shm_link *l, const struct wqe *w, uint64_t bytes)
{
	int end = shm->port[qp->s->port].end;
	int from = is_read(w) ? !end : end;
	_Atomic uint64_t *busy = &l->busy[from];
	uint64_t earliest = qp->free_at + (is_read(w) ? l->latency : 0), seen = atomic_load(busy), rate = atomic_load(&l->rate), done;

	do {
		done = (seen > earliest ? seen : earliest) + (rate ? bytes * 1000000000u / rate : 0);
	} while (!atomic_compare_exchange_weak(busy, &seen, done));
	atomic_fetch_add(&l->carried[from], bytes);
	if (!is_read(w))
		qp->free_at = done;
	return done + (l->latency > HANDLING ? l->latency - HANDLING : 0);
}

static bool transmit(struct qp *qp)
{
	struct shm_link *l = path_modelled(qp) ? path_link(qp) : NULL;
	uint64_t now = l ? now_ns() : 0, size = l && l->rate ? MODEL_SEGMENT : SEGMENT;
	bool moved = false;

	while (qp->sent != qp->posted && qp->seg_tail - qp->seg_head < SEGMENTS) {
		struct wqe *w = at(qp, qp->sent);
		uint64_t left = w->length - w->sent, n = left < size ? left : size;

		if (atomic_load(&qp->s->state) == IBV_QPS_SQD && w->sent == 0)
			break;
		if (l && qp->free_at > now)
			break;
		qp->segment[qp->seg_tail++ % SEGMENTS] = (struct segment){
			.wqe = qp->sent, .from = w->sent, .to = w->sent + n, .arrives = l ? reserve(qp, l, w, n) : 0,
		};
		w->sent += n;
		if (w->sent == w->length)
			qp->sent++;
		moved = true;
	}
	return moved;
}

static void complete(struct qp *qp, enum ibv_wc_status status)
{
	static const enum ibv_wc_opcode done[] = {
		[IBV_WR_SEND] = IBV_WC_SEND, [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND, [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
		[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE, [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	};
	const struct wqe *w = at(qp, qp->completed);
	struct shm_cqe e = {.qp = qp->index, .sq_index = qp->completed};

	qp->completed++;
	if (status == IBV_WC_SUCCESS && !(w->flags & IBV_SEND_SIGNALED))
		return;
	e.wc.wr_id = w->wr_id;
	e.wc.status = status;
	e.wc.opcode = done[w->opcode];
	e.wc.qp_num = qp->ibv.qp_num;
	e.wc.byte_len = is_read(w) ? (uint32_t)w->length : 0;
	if (status)
		cqe_spoil(&e.wc);
	if (unlikely(atomic_load_explicit(&shm->rules, memory_order_relaxed))) {
		uint64_t slow = fault_slow(qp->s->port, qp->ibv.qp_num);

		e.ready = slow ? now_ns() + slow : 0;
	}
	cq_push(qp->s->send_cq, &e, status != IBV_WC_SUCCESS);
}

static void flush(struct qp *qp)
{
	qp->seg_head = qp->seg_tail;
	while (qp->completed != qp->posted)
		complete(qp, IBV_WC_WR_FLUSH_ERR);
	qp->sent = qp->delivered = qp->posted;
	qp->retry_at = 0;
}

void qp_error(struct qp *qp)
{
	qp_lock(qp->s);
	shm_qp_error(qp->s);
	qp_unlock(qp->s);
	flush(qp);
}

/* The oldest request fails. */
static void fail(struct qp *qp, enum ibv_wc_status status)
{
	complete(qp, status);
	qp_error(qp);
}

/* The next one to be delivered fails: what was delivered before it is thereby acknowledged. */
static void fail_next(struct qp *qp, enum ibv_wc_status status)
{
	while (qp->completed != qp->delivered)
		complete(qp, IBV_WC_SUCCESS);
	fail(qp, status);
}

/* Nothing came back: waits for the time-out, then the next attempt; false when the attempts are used up. */
static bool try_again(struct qp *qp, uint64_t now)
{
	if (qp->attr.timeout == 0) {
		qp->retry_at = now + FOREVER_STEP;
		return true;
	}
	if (qp->tries > qp->attr.retry_cnt)
		return false;
	qp->tries++;
	qp->retry_at = now + (4096ull << qp->attr.timeout);
	return true;
}

static bool not_yet(const struct qp *qp, uint64_t when, uint64_t *now)
{
	if (!when && !qp->retry_at)
		return false;
	if (!*now)
		*now = now_ns();
	return when > *now || qp->retry_at > *now;
}

static void delivered(struct qp *qp, const struct wqe *w, const struct segment *g)
{
	const struct shm_link *l = path_link(qp);

	if (qp->completed == qp->delivered)
		qp->tries = 0;
	qp->rnr_tries = 0;
	qp->retry_at = 0;
	qp->seg_head++;
	if (g->to == w->length) {
		at(qp, qp->delivered)->ack_at = g->arrives ? g->arrives + (is_read(w) ? 0 : l->latency) : 0;
		qp->delivered++;
	}
}

static bool deliver(struct qp *qp, uint64_t *budget)
{
	bool moved = false;
	uint64_t now = 0;

	while (qp->seg_head != qp->seg_tail && *budget) {
		const struct segment *g = &qp->segment[qp->seg_head % SEGMENTS];
		const struct wqe *w = at(qp, g->wqe);
		uint64_t bytes = g->to - g->from;
		struct answer a;

		if (not_yet(qp, g->arrives, &now))
			return moved;
		a = w->fault ? (struct answer){.reach = REFUSED, .status = w->fault} : respond(qp, w, g);
		switch (a.reach) {
		case REACHED:
			delivered(qp, w, g);
			*budget -= bytes < *budget ? bytes : *budget;
			moved = true;
			break;
		case NOT_READY:
			if (qp->attr.rnr_retry != 7 && qp->rnr_tries++ >= qp->attr.rnr_retry)
				fail_next(qp, IBV_WC_RNR_RETRY_EXC_ERR);
			else
				qp->retry_at = now_ns() + a.wait;
			return moved;
		case LOST:
			if (!try_again(qp, now_ns()))
				fail_next(qp, IBV_WC_RETRY_EXC_ERR);
			return moved;
		case REFUSED:
			fail_next(qp, a.status);
			return moved;
		}
	}
	return moved;
}

static bool ack_lost(const struct qp *qp, const struct wqe *w)
{
	return fault_hits(RULE_ACK, qp->s->port, qp->ibv.qp_num) || (w->ack_at && !path_open(qp));
}

static bool acknowledge(struct qp *qp)
{
	bool moved = false;
	uint64_t now = 0;

	while (qp->completed != qp->delivered) {
		const struct wqe *w = at(qp, qp->completed);

		if (not_yet(qp, w->ack_at, &now))
			return moved;
		if (ack_lost(qp, w)) {
			if (!try_again(qp, now_ns()))
				fail(qp, IBV_WC_RETRY_EXC_ERR);
			return moved;
		}
		qp->tries = 0;
		qp->retry_at = 0;
		complete(qp, IBV_WC_SUCCESS);
		moved = true;
	}
	return moved;
}

bool qp_step(struct qp *qp, uint64_t budget)
{
	bool moved = true;

	while (moved && budget) {
		if (atomic_load(&qp->s->state) == IBV_QPS_ERR) {
			flush(qp);
			break;
		}
		moved = transmit(qp);
		moved |= deliver(qp, &budget);
		moved |= acknowledge(qp);
	}
	return qp->completed == qp->posted;
}

/* Not exact where several things are under way: it may be early, and a look too many harms nobody. */
uint64_t qp_next(const struct qp *qp)
{
	uint64_t t = UINT64_MAX;

	if (qp->retry_at)
		return qp->retry_at;
	if (qp->seg_head != qp->seg_tail)
		t = qp->segment[qp->seg_head % SEGMENTS].arrives;
	else if (qp->sent != qp->posted)
		t = qp->free_at;
	if (qp->completed != qp->delivered && at(qp, qp->completed)->ack_at < t)
		t = at(qp, qp->completed)->ack_at;
	return t;
}

void qp_progress(struct qp *qp)
{
	if (!qp_step(qp, BUDGET) && !qp->pending)
		work_add(qp);
}
