/* Posting: requests are checked and copied here, and moved on at once where nothing holds them up. */
#include "fake.h"

#include <errno.h>
#include <string.h>

static int check_send(const struct qp *qp, const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		break;
	case IBV_WR_RDMA_READ:
		if (wr->send_flags & IBV_SEND_INLINE || qp->attr.max_rd_atomic == 0)
			return EINVAL;
		break;
	default:
		return EOPNOTSUPP;
	}
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	/* As in a real queue, room returns when a completion is polled: of this request or of a later one. */
	return qp->posted - atomic_load(&qp->reclaimed) >= qp->cap.max_send_wr ? ENOMEM : 0;
}

static int fill(struct qp *qp, struct wqe *w, const struct ibv_send_wr *wr)
{
	uint64_t length = 0;

	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (wr->send_flags & IBV_SEND_INLINE) {
		unsigned char *to = w->data;

		if (length > qp->cap.max_inline_data)
			return EINVAL;
		for (int i = 0; i < wr->num_sge; to += wr->sg_list[i++].length)
			memcpy(to, (void *)wr->sg_list[i].addr, wr->sg_list[i].length);
	} else {
		memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*wr->sg_list));
	}
	w->wr_id = wr->wr_id;
	w->opcode = wr->opcode;
	w->flags = wr->send_flags | (qp->sig_all ? IBV_SEND_SIGNALED : 0);
	w->imm = wr->imm_data;
	w->remote_addr = wr->wr.rdma.remote_addr;
	w->rkey = wr->wr.rdma.rkey;
	w->num_sge = (uint32_t)wr->num_sge;
	w->length = length;
	w->sent = w->ack_at = 0;
	w->fault = fault_wr(qp->s->port, qp->ibv.qp_num);
	return 0;
}

static int post(struct qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	enum ibv_qp_state state = (enum ibv_qp_state)atomic_load(&qp->s->state);
	int err = state == IBV_QPS_RTS || state == IBV_QPS_SQD || state == IBV_QPS_ERR ? 0 : EINVAL;

	for (; wr && !err; wr = wr->next) {
		err = fault_verb(VERB_post_send, qp->s->port);
		if (!err)
			err = check_send(qp, wr);
		if (!err)
			err = fill(qp, &qp->sq[qp->posted % qp->cap.max_send_wr], wr);
		if (err)
			break;
		if (qp->sent == qp->posted) { /* an idle port takes it from now on, not from when it fell idle */
			uint64_t now = path_modelled(qp) ? now_ns() : 0;

			if (qp->free_at < now)
				qp->free_at = now;
		}
		qp->posted++;
	}
	*bad = wr;
	return err;
}

int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *qp = to_qp(ibv);
	int err;

	if (foreign(qp->epoch)) {
		*bad = wr;
		return EIO;
	}
	pthread_mutex_lock(&qp->lock);
	err = post(qp, wr, bad);
	qp_progress(qp);
	pthread_mutex_unlock(&qp->lock);
	return err;
}

static int post_one_recv(struct qp *qp, const struct ibv_recv_wr *wr)
{
	struct shm_qp *s = qp->s;
	uint32_t tail = atomic_load_explicit(&s->rq_tail, memory_order_relaxed);
	struct shm_recv *r;
	int err = fault_verb(VERB_post_recv, s->port);

	if (err)
		return err;
	if (atomic_load(&s->state) == IBV_QPS_RESET || wr->num_sge < 0 || (uint32_t)wr->num_sge > s->rq_sge)
		return EINVAL;
	if (tail - atomic_load(&s->rq_head) >= s->rq_depth)
		return ENOMEM;
	r = recv_at(s, tail);
	r->wr_id = wr->wr_id;
	r->num_sge = (uint32_t)wr->num_sge;
	memcpy(r->sge, wr->sg_list, (size_t)wr->num_sge * sizeof(*wr->sg_list));
	atomic_store(&s->rq_tail, tail + 1);
	return 0;
}

int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *qp = to_qp(ibv);
	int err = foreign(qp->epoch) ? EIO : 0;

	pthread_mutex_lock(&qp->rq_lock);
	for (; wr && !err; wr = wr->next) {
		err = post_one_recv(qp, wr);
		if (err)
			break;
	}
	*bad = wr;
	/* Whoever set the error state flushed what was posted before; this comes after. */
	if (!foreign(qp->epoch) && atomic_load(&qp->s->state) == IBV_QPS_ERR) {
		qp_lock(qp->s);
		if (atomic_load(&qp->s->state) == IBV_QPS_ERR)
			shm_qp_flush(qp->s);
		qp_unlock(qp->s);
	}
	pthread_mutex_unlock(&qp->rq_lock);
	return err;
}
