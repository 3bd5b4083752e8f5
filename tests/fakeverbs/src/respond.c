/* The responder's half of a request, carried out by the requester's process on the peer's queue pair and memory.
 *
 * The peer's shared lock is held from the look at its state to the end of the copy, so that a queue pair that has left its state is
 * not written through any more. */
#include "fake.h"

#include <errno.h>
#include <string.h>

enum { SPANS = MAX_SGE };

static struct answer reached(void) { return (struct answer){.reach = REACHED}; }
static struct answer lost(void) { return (struct answer){.reach = LOST}; }
static struct answer refused(enum ibv_wc_status s) { return (struct answer){.reach = REFUSED, .status = s}; }

bool path_open(const struct qp *qp)
{
	const struct shm_qp *s = qp->s;

	if (s->dest_port < 0 || port_state(s->port) != IBV_PORT_ACTIVE) /* a loopback needs the port too */
		return false;
	return !fault_hits(RULE_STALL, s->port, s->qpn) && !fault_hits(RULE_STALL, s->dest_port, s->dest_qpn);
}

/* Registered memory, as a list. */
struct list {
	struct span span[SPANS];
	int n;
	bool gpu; /* the first is device memory */
};

/* Adds the part of bytes [from, to) of a scatter-gather list; false where a key does not cover its entry. */
static bool gather(struct list *l, const struct ibv_sge *sge, uint32_t n, int proc, uint32_t pd, uint64_t from, uint64_t to,
		   uint32_t access)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < n && at < to; at += sge[i++].length) {
		uint64_t skip = from > at ? from - at : 0, end = to - at < sge[i].length ? to - at : sge[i].length;
		const struct shm_mr *m;

		if (skip >= end)
			continue;
		m = mr_find(sge[i].lkey, proc, pd, sge[i].addr, sge[i].length, access);
		if (!m)
			return false;
		if (l->n == 0)
			l->gpu = m->gpu;
		l->span[l->n++] = (struct span){m->addr + (sge[i].addr - m->iova) + skip, end - skip};
	}
	return true;
}

static bool local(struct list *l, const struct qp *qp, const struct wqe *w, const struct segment *g)
{
	if (w->flags & IBV_SEND_INLINE) {
		if (g->to > g->from)
			l->span[l->n++] = (struct span){(uint64_t)w->data + g->from, g->to - g->from};
		return true;
	}
	return gather(l, w->sge, w->num_sge, fake.proc, qp->ibv.pd->handle, g->from, g->to,
		      w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0);
}

static uint64_t rnr_wait(uint32_t timer)
{
	static const uint32_t us[32] = {
		655360, 10,   20,   30,   40,   60,   80,    120,   160,   240,   320,   480,   640,    960,    1280,   1920,
		2560,   3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	};

	return us[timer & 31] * 1000ull;
}

/* The peer broke down on this request: its queue pair goes to the error state, and its program is told. */
static struct answer break_peer(struct shm_qp *peer, int index, uint32_t event, enum ibv_wc_status status)
{
	struct shm_event e = {
		.type = event, .device = peer->device, .object = (uint32_t)index, .generation = atomic_load(&peer->generation),
	};

	if (!shm_holds(&peer->lock)) /* it was the owner who left, while we were stopped */
		return lost();
	shm_qp_error(peer);
	proc_event(peer->proc, &e);
	return refused(status);
}

static void complete_recv(struct shm_qp *peer, const struct wqe *w, uint32_t src, enum ibv_wc_status status)
{
	uint32_t head = atomic_load(&peer->rq_head);
	struct shm_cqe e = {.qp = NONE};

	e.wc.wr_id = recv_at(peer, head)->wr_id;
	e.wc.status = status;
	e.wc.qp_num = peer->qpn;
	e.wc.src_qp = src;
	e.wc.opcode = w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	e.wc.byte_len = (uint32_t)w->length;
	if (w->opcode != IBV_WR_SEND) {
		e.wc.imm_data = w->imm;
		e.wc.wc_flags = IBV_WC_WITH_IMM;
	}
	if (status)
		cqe_spoil(&e.wc);
	e.ready = 0;
	if (atomic_load_explicit(&shm->rules, memory_order_relaxed)) {
		uint64_t slow = fault_slow(peer->port, peer->qpn);

		e.ready = slow ? now_ns() + slow : 0;
	}
	if (!shm_holds(&peer->lock))
		return;
	/* Out of the queue before it shows in the completion queue: the owner may post the next in its place at once. */
	atomic_store(&peer->rq_head, head + 1);
	cq_push(peer->recv_cq, &e, w->flags & IBV_SEND_SOLICITED || status);
}

/* Failure to copy: the peer is gone, or memory is not there that was when it was registered. */
static struct answer copied(int err, struct shm_qp *peer, int index)
{
	if (err == ESRCH || !shm_holds(&peer->lock)) /* gone, or it went on without us while we were stopped */
		return lost();
	if (err == 0)
		return reached();
	if (err == EPERM)
		fake_say("process %d may not copy to or from process %d: both need the same user and user namespace, "
			 "and a kernel that lets them (kernel.yama.ptrace_scope, seccomp)", shm->proc[fake.proc].pid, shm->proc[peer->proc].pid);
	return break_peer(peer, index, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_OP_ERR);
}

static uint64_t lateness(int port, uint32_t qpn)
{
	return unlikely(atomic_load_explicit(&shm->rules, memory_order_relaxed)) ? fault_late(port, qpn) : 0;
}

/* Writes to a region of the peer's; the first bytes for a GPU may show later. */
static int write_region(struct shm_qp *peer, const struct shm_mr *m, const struct list *mine, struct span at)
{
	struct span from[SPANS];
	unsigned char first[LATE_BYTES];
	uint64_t delay = m->gpu && at.length ? lateness(peer->port, peer->qpn) : 0, skip;
	uint32_t n = 0;
	int k = 0;

	if (m->gpu)
		late_overwrite(peer->proc, at.addr, at.length);
	if (!delay)
		return copy_write(peer, mine->span, mine->n, &at, 1);
	while (n < LATE_BYTES && k < mine->n) {
		uint32_t some = mine->span[k].length < LATE_BYTES - n ? (uint32_t)mine->span[k].length : LATE_BYTES - n;

		memcpy(first + n, (void *)mine->span[k++].addr, some);
		n += some;
	}
	if (!late_hold(peer->proc, peer->device, at.addr, first, n, delay))
		return copy_write(peer, mine->span, mine->n, &at, 1);
	skip = n;
	for (k = 0; k < mine->n; k++) {
		uint64_t less = skip < mine->span[k].length ? skip : mine->span[k].length;

		from[k] = (struct span){mine->span[k].addr + less, mine->span[k].length - less};
		skip -= less;
	}
	at = (struct span){at.addr + n, at.length - n};
	return copy_write(peer, from, mine->n, &at, 1);
}

/* Reads from the peer, which makes all that its device wrote there before show; what is read into a GPU's memory may show later. */
static int read_region(const struct qp *qp, struct shm_qp *peer, const struct list *mine, struct span at)
{
	uint64_t delay = mine->gpu && at.length ? lateness(qp->s->port, qp->s->qpn) : 0;
	unsigned char before[LATE_BYTES], after[LATE_BYTES], *first;
	uint32_t n = 0;
	int err;

	late_read(peer->proc, peer->device);
	for (int i = 0; i < mine->n && mine->gpu; i++)
		late_overwrite(fake.proc, mine->span[i].addr, mine->span[i].length);
	if (!delay)
		return copy_read(peer, mine->span, mine->n, &at, 1);
	first = (unsigned char *)mine->span[0].addr;
	n = mine->span[0].length < LATE_BYTES ? (uint32_t)mine->span[0].length : LATE_BYTES;
	memcpy(before, first, n);
	err = copy_read(peer, mine->span, mine->n, &at, 1);
	memcpy(after, first, n);
	if (err)
		return err;
	memcpy(first, before, n); /* first, because another thread's read may show what is held */
	if (!late_hold(fake.proc, qp->s->device, (uint64_t)first, after, n, delay))
		memcpy(first, after, n);
	return 0;
}

static struct answer one_sided(const struct qp *qp, const struct wqe *w, const struct segment *g, const struct list *mine,
			       struct shm_qp *peer, int index)
{
	bool read = w->opcode == IBV_WR_RDMA_READ;
	uint32_t access = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	const struct shm_mr *m;
	int err;
	struct span at;

	if (read && peer->rd_atomic == 0)
		return break_peer(peer, index, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
	if (w->length == 0)
		return reached(); /* key and address of an empty request are not looked at */
	m = peer->access & access ? mr_find(w->rkey, peer->proc, peer->pd, w->remote_addr, w->length, access) : NULL;
	if (!m)
		return break_peer(peer, index, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR);
	at = (struct span){m->addr + (w->remote_addr - m->iova) + g->from, g->to - g->from};
	err = read ? read_region(qp, peer, mine, at) : write_region(peer, m, mine, at);
	return copied(err, peer, index);
}

static struct answer two_sided(const struct qp *qp, const struct wqe *w, const struct segment *g, const struct list *mine,
			       struct shm_qp *peer, int index)
{
	const struct shm_recv *r = recv_at(peer, atomic_load(&peer->rq_head));
	struct list theirs = {.n = 0};
	uint64_t room = 0;
	struct answer a;

	for (uint32_t i = 0; i < r->num_sge; i++)
		room += r->sge[i].length;
	if (room < w->length) {
		complete_recv(peer, w, qp->ibv.qp_num, IBV_WC_LOC_LEN_ERR);
		return break_peer(peer, index, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
	}
	if (!gather(&theirs, r->sge, r->num_sge, peer->proc, peer->pd, g->from, g->to, IBV_ACCESS_LOCAL_WRITE)) {
		complete_recv(peer, w, qp->ibv.qp_num, IBV_WC_LOC_PROT_ERR);
		return break_peer(peer, index, IBV_EVENT_QP_ACCESS_ERR, IBV_WC_REM_OP_ERR);
	}
	a = theirs.n ? copied(copy_write(peer, mine->span, mine->n, theirs.span, theirs.n), peer, index) : reached();
	return a;
}

static uint32_t packets(const struct qp *qp, const struct wqe *w)
{
	uint64_t mtu = 128ull << qp->attr.path_mtu;

	return w->length ? (uint32_t)((w->length + mtu - 1) / mtu) : 1;
}

static bool listens(const struct qp *qp, const struct shm_qp *peer, bool first)
{
	uint32_t state = atomic_load(&peer->state);

	if (!live(atomic_load(&peer->generation)) || peer->qpn != qp->s->dest_qpn || peer->port != qp->s->dest_port)
		return false;
	if (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD)
		return false;
	if (peer->dest_qpn != qp->s->qpn || peer->dest_port != qp->s->port || peer->ece != qp->s->ece)
		return false;
	return !first || peer->rq_psn == qp->psn;
}

static struct answer at_peer(struct qp *qp, const struct wqe *w, const struct segment *g, const struct list *mine, struct shm_qp *peer,
			     int index)
{
	bool first = g->from == 0, last = g->to == w->length;
	bool takes_recv = w->opcode != IBV_WR_RDMA_WRITE && w->opcode != IBV_WR_RDMA_READ;
	struct answer a;

	if (!listens(qp, peer, first) || !proc_alive(peer->proc, atomic_load(&shm->proc[peer->proc].generation)))
		return lost();
	if (peer->mtu != (uint32_t)qp->attr.path_mtu && w->length > 128ull << (peer->mtu < qp->s->mtu ? peer->mtu : qp->s->mtu))
		return break_peer(peer, index, IBV_EVENT_QP_REQ_ERR, IBV_WC_REM_INV_REQ_ERR);
	if (takes_recv && (w->opcode != IBV_WR_RDMA_WRITE_WITH_IMM ? first : last) && atomic_load(&peer->rq_head) == atomic_load(&peer->rq_tail))
		return (struct answer){.reach = NOT_READY, .wait = rnr_wait(peer->min_rnr_timer)};
	if (w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM)
		a = two_sided(qp, w, g, mine, peer, index);
	else
		a = one_sided(qp, w, g, mine, peer, index);
	if (a.reach != REACHED || !last)
		return a;
	peer->rq_psn = (peer->rq_psn + packets(qp, w)) & 0xffffff;
	qp->psn = peer->rq_psn;
	if (takes_recv)
		complete_recv(peer, w, qp->ibv.qp_num, IBV_WC_SUCCESS);
	return a;
}

struct answer respond(struct qp *qp, const struct wqe *w, const struct segment *g)
{
	struct list mine = {.n = 0};
	struct answer a;
	int index = qpn_index(qp->s->dest_qpn);
	struct shm_qp *peer = &shm->qp[index];

	if (w->length > shm->device[qp->s->device].max_msg_sz)
		return refused(IBV_WC_LOC_LEN_ERR);
	if (!local(&mine, qp, w, g))
		return refused(IBV_WC_LOC_PROT_ERR);
	if (!path_open(qp) || !live(atomic_load(&peer->generation)))
		return lost();
	qp_lock(peer);
	a = at_peer(qp, w, g, &mine, peer, index);
	qp_unlock(peer);
	return a;
}
