/* ibv_modify_qp for reliable connections: which attributes each transition needs and allows, and which values. */
#include "fake.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
	FOR_AV = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	FOR_SEND = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
	FOR_INIT = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
	RUNNING = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER,
};

static const struct transition {
	enum ibv_qp_state from, to;
	int required, optional;
} transitions[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, FOR_INIT, 0},
	{IBV_QPS_INIT, IBV_QPS_INIT, 0, FOR_INIT},
	{IBV_QPS_INIT, IBV_QPS_RTR, FOR_AV, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPS_RTR, IBV_QPS_RTS, FOR_SEND, RUNNING},
	{IBV_QPS_RTS, IBV_QPS_RTS, 0, RUNNING},
	{IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPS_SQD, IBV_QPS_RTS, 0, RUNNING},
	{IBV_QPS_SQD, IBV_QPS_SQD, 0,
	 IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
	 IBV_QP_MAX_DEST_RD_ATOMIC | RUNNING},
};

static bool allowed(enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int rest = mask & ~IBV_QP_STATE;

	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return (rest & ~IBV_QP_CUR_STATE) == 0;
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		const struct transition *t = &transitions[i];

		if (t->from == from && t->to == to)
			return (rest & t->required) == t->required && (rest & ~(t->required | t->optional)) == 0;
	}
	return false;
}

static bool valid_address(const struct qp *qp, const struct ibv_ah_attr *ah)
{
	const struct shm_port *p = &shm->port[qp->s->port];

	if (ah->port_num != p->num || (ah->is_global && ah->grh.sgid_index >= p->gids))
		return false;
	/* RoCE has no addresses but GIDs; InfiniBand packets go by LID, with a GID or without. */
	return p->infiniband ? ah->dlid != 0 : ah->is_global;
}

static bool valid(const struct qp *qp, const struct ibv_qp_attr *a, int mask)
{
	const struct context *c = to_context(qp->ibv.context);

	if (mask & IBV_QP_CUR_STATE && a->cur_qp_state != (enum ibv_qp_state)atomic_load(&qp->s->state))
		return false;
	if (mask & IBV_QP_PORT && context_port(c, a->port_num) < 0)
		return false;
	if (mask & IBV_QP_PKEY_INDEX && a->pkey_index != 0)
		return false;
	if (mask & IBV_QP_AV && !valid_address(qp, &a->ah_attr))
		return false;
	if (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > port_mtu(&shm->port[qp->s->port])))
		return false;
	if (mask & IBV_QP_DEST_QPN && a->dest_qp_num > 0xffffff)
		return false;
	if ((mask & IBV_QP_RQ_PSN && a->rq_psn > 0xffffff) || (mask & IBV_QP_SQ_PSN && a->sq_psn > 0xffffff))
		return false;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > MAX_RD_ATOMIC) ||
	    (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > MAX_RD_ATOMIC))
		return false;
	if ((mask & IBV_QP_TIMEOUT && a->timeout > 31) || (mask & IBV_QP_MIN_RNR_TIMER && a->min_rnr_timer > 31))
		return false;
	if ((mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7) || (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7))
		return false;
	return !(mask & (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE));
}

/* Whose port the address leads to. On Ethernet the kernel asks the neighbours and gives up after a while; so do we. A LID is not asked
 * for: packets to one that nobody has are lost. */
static int resolve(const struct qp *qp, const struct ibv_ah_attr *ah, int *port)
{
	const struct shm_gid *own = &shm->port[qp->s->port].gid[ah->grh.sgid_index];
	uint64_t end = now_ns() + shm->resolve;

	if (shm->port[qp->s->port].infiniband) {
		*port = port_with_lid(qp->s->port, ah->dlid);
		return 0;
	}
	for (;;) {
		*port = port_with_gid(qp->s->port, &ah->grh.dgid, own->type);
		if (*port >= 0)
			return 0;
		if (now_ns() >= end)
			return ETIMEDOUT;
		usleep(5000);
	}
}

static void keep(struct qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *q = &qp->attr;

#define take(bit, field) \
	if (mask & (bit)) \
		q->field = a->field
	take(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	take(IBV_QP_PKEY_INDEX, pkey_index);
	take(IBV_QP_PORT, port_num);
	take(IBV_QP_AV, ah_attr);
	take(IBV_QP_PATH_MTU, path_mtu);
	take(IBV_QP_TIMEOUT, timeout);
	take(IBV_QP_RETRY_CNT, retry_cnt);
	take(IBV_QP_RNR_RETRY, rnr_retry);
	take(IBV_QP_RQ_PSN, rq_psn);
	take(IBV_QP_SQ_PSN, sq_psn);
	take(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	take(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	take(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	take(IBV_QP_DEST_QPN, dest_qp_num);
#undef take
}

/* What the peers need to know. Called with the shared lock held. */
static void show(struct qp *qp, int mask, int dest_port)
{
	struct shm_qp *s = qp->s;
	const struct ibv_qp_attr *q = &qp->attr;

	if (mask & IBV_QP_PORT)
		s->port = shm->device[s->device].first_port + q->port_num - 1;
	if (mask & IBV_QP_AV)
		s->dest_port = dest_port;
	if (mask & IBV_QP_RQ_PSN)
		s->rq_psn = q->rq_psn;
	s->access = (uint32_t)q->qp_access_flags;
	s->mtu = (uint32_t)q->path_mtu;
	s->dest_qpn = q->dest_qp_num;
	s->rd_atomic = q->max_dest_rd_atomic;
	s->min_rnr_timer = q->min_rnr_timer;
}

static void reset(struct qp *qp)
{
	struct shm_qp *s = qp->s;

	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->posted = qp->sent = qp->delivered = qp->completed = 0;
	atomic_store(&qp->reclaimed, 0);
	qp->seg_head = qp->seg_tail = 0;
	qp->free_at = qp->retry_at = 0;
	qp->tries = qp->rnr_tries = 0;
	qp_lock(s);
	s->port = s->dest_port = NONE;
	ece_reset(qp);
	atomic_store(&s->state, IBV_QPS_RESET);
	atomic_store(&s->rq_head, 0);
	atomic_store(&s->rq_tail, 0);
	qp_unlock(s);
	cq_purge(to_cq(qp->ibv.send_cq), qp->ibv.qp_num);
	cq_purge(to_cq(qp->ibv.recv_cq), qp->ibv.qp_num);
}

static int modify(struct qp *qp, const struct ibv_qp_attr *a, int mask)
{
	enum ibv_qp_state from = (enum ibv_qp_state)atomic_load(&qp->s->state);
	enum ibv_qp_state to = mask & IBV_QP_STATE ? a->qp_state : from;
	int err, dest_port = NONE;

	if (!allowed(from, to, mask) || !valid(qp, a, mask))
		return EINVAL;
	if (to == IBV_QPS_RESET) {
		reset(qp);
		return 0;
	}
	if (to == IBV_QPS_ERR) {
		qp_error(qp);
		return 0;
	}
	if (mask & IBV_QP_AV) {
		err = resolve(qp, &a->ah_attr, &dest_port);
		if (err)
			return err;
	}
	keep(qp, a, mask);
	if (mask & IBV_QP_SQ_PSN)
		qp->psn = a->sq_psn;
	qp_lock(qp->s);
	/* A peer's fault may have put the queue pair into the error state meanwhile: it stays there. */
	if (atomic_load(&qp->s->state) != from)
		err = EINVAL;
	else {
		show(qp, mask, dest_port);
		ece_apply(qp, to);
		atomic_store(&qp->s->state, to);
		err = 0;
	}
	qp_unlock(qp->s);
	if (!err && from == IBV_QPS_SQD && to == IBV_QPS_RTS)
		qp_progress(qp);
	return err;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *a, int mask)
{
	struct qp *qp = to_qp(ibv);
	int err = foreign(qp->epoch) ? EIO : fault_verb(VERB_modify_qp, qp->s->port);

	if (err)
		return err;
	pthread_mutex_lock(&qp->lock);
	err = modify(qp, a, mask);
	if (!err && mask & IBV_QP_STATE)
		ibv->state = a->qp_state;
	pthread_mutex_unlock(&qp->lock);
	return err;
}
