/* Queue pairs: their making, their numbers and their end. */
#include "fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A number holds the slot (14 bits) and ten bits of its generation, spread over all 24 bits by a multiplication that can be undone.
 * A number is therefore not met again soon, and high bits are in use from the first queue pair on. */
#define QPN_BITS 0xffffffu
static uint32_t spread(uint32_t v) { return v * 0x3779b1u & QPN_BITS; }

static uint32_t gather(uint32_t qpn)
{
	uint32_t inverse = 0x3779b1u; /* Newton: each step doubles the bits that are right */

	for (int i = 0; i < 4; i++)
		inverse *= 2 - 0x3779b1u * inverse;
	return qpn * inverse & QPN_BITS;
}

int qpn_index(uint32_t qpn)
{
	return (int)(gather(qpn) & (MAX_QPS - 1));
}

static uint32_t next_number(struct shm_qp *s, int index)
{
	uint32_t qpn;

	for (;;) {
		uint32_t g = atomic_load(&s->generation) >> 1;

		qpn = spread((g << 14 | (uint32_t)index) & QPN_BITS);
		if (qpn > 1 && qpn != QPN_BITS) /* those are special */
			return qpn;
		atomic_fetch_add(&s->generation, 2);
	}
}

static bool busy(uint32_t at) { return live(shm->qp[at].generation); }

static struct shm_qp *allocate(const struct ibv_pd *pd, const struct ibv_qp_init_attr *a, int *index)
{
	struct shm_qp *s = NULL;

	shm_lock(&shm->table);
	*index = (int)rota_take(&shm->qps, MAX_QPS, busy);
	if (*index < MAX_QPS)
		s = &shm->qp[*index];
	if (s) {
		s->rq_offset = arena_alloc(a->cap.max_recv_wr * recv_size(a->cap.max_recv_sge) + 1, fake.proc);
		if (!s->rq_offset)
			s = NULL;
	}
	if (s) {
		s->qpn = next_number(s, *index);
		s->proc = fake.proc;
		s->device = to_context(pd->context)->device;
		s->pd = pd->handle;
		s->port = s->dest_port = NONE;
		s->rq_depth = a->cap.max_recv_wr;
		s->rq_sge = a->cap.max_recv_sge;
		s->send_cq = to_cq(a->send_cq)->index;
		s->recv_cq = to_cq(a->recv_cq)->index;
		atomic_store(&s->state, IBV_QPS_RESET);
		atomic_store(&s->rq_head, 0);
		atomic_store(&s->rq_tail, 0);
		atomic_fetch_add(&s->generation, 1);
	}
	shm_unlock(&shm->table);
	return s;
}

static void release(struct shm_qp *s)
{
	shm_lock(&shm->table);
	arena_free(s->rq_offset, s->rq_depth * recv_size(s->rq_sge) + 1);
	atomic_fetch_add(&s->generation, 1);
	shm_unlock(&shm->table);
}

static int check_init(const struct context *c, const struct ibv_qp_init_attr *a)
{
	const struct ibv_qp_cap *cap = &a->cap;

	if (a->qp_type != IBV_QPT_RC || a->srq)
		return EOPNOTSUPP;
	if (!a->send_cq || !a->recv_cq || to_context(a->send_cq->context) != c || to_context(a->recv_cq->context) != c)
		return EINVAL;
	if (cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR || cap->max_send_sge > MAX_SGE || cap->max_recv_sge > MAX_SGE ||
	    cap->max_inline_data > shm->device[c->device].max_inline)
		return EINVAL;
	return 0;
}

static void qp_free(struct qp *qp)
{
	free(qp->sq);
	free(qp->sges);
	free(qp->inline_data);
	free(qp);
}

static struct qp *make(const struct ibv_qp_init_attr *a)
{
	size_t n = a->cap.max_send_wr ? a->cap.max_send_wr : 1, sges = a->cap.max_send_sge ? a->cap.max_send_sge : 1;
	struct qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->sq = calloc(n, sizeof(*qp->sq));
	qp->sges = calloc(n * sges, sizeof(*qp->sges));
	qp->inline_data = calloc(n, a->cap.max_inline_data ? a->cap.max_inline_data : 1);
	if (!qp->sq || !qp->sges || !qp->inline_data) {
		qp_free(qp);
		return NULL;
	}
	for (size_t i = 0; i < n; i++) {
		qp->sq[i].sge = qp->sges + i * sges;
		qp->sq[i].data = qp->inline_data + i * a->cap.max_inline_data;
	}
	return qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct context *c = to_context(pd->context);
	int err = foreign(c->epoch) ? EIO : fault_verb(VERB_create_qp, NONE);
	struct qp *qp = NULL;

	if (!err)
		err = check_init(c, a);
	if (!err) {
		qp = make(a);
		if (qp)
			qp->s = allocate(pd, a, &qp->index);
		if (!qp || !qp->s)
			err = ENOMEM;
	}
	if (err) {
		if (qp)
			qp_free(qp);
		errno = err;
		return NULL;
	}
	qp->epoch = c->epoch;
	qp->cap = a->cap;
	qp->sig_all = a->sq_sig_all;
	qp->attr.qp_state = IBV_QPS_RESET;
	ece_reset(qp);
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = a->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = a->send_cq;
	qp->ibv.recv_cq = a->recv_cq;
	qp->ibv.handle = (uint32_t)qp->index;
	qp->ibv.qp_num = qp->s->qpn;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.qp_type = a->qp_type;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	pthread_mutex_init(&qp->lock, NULL);
	pthread_mutex_init(&qp->rq_lock, NULL);
	atomic_fetch_add(&to_pd(pd)->users, 1);
	atomic_fetch_add(&to_cq(a->send_cq)->users, 1);
	atomic_fetch_add(&to_cq(a->recv_cq)->users, 1);
	pthread_mutex_lock(&fake.objects);
	fake.qp[qp->index] = qp;
	if (qp->index >= fake.qp_end)
		fake.qp_end = qp->index + 1;
	pthread_mutex_unlock(&fake.objects);
	return &qp->ibv;
}

struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *ex)
{
	struct ibv_qp_init_attr a = {
		.qp_context = ex->qp_context, .send_cq = ex->send_cq, .recv_cq = ex->recv_cq, .srq = ex->srq,
		.cap = ex->cap, .qp_type = ex->qp_type, .sq_sig_all = ex->sq_sig_all,
	};
	struct ibv_qp *qp;

	if (ex->comp_mask != IBV_QP_INIT_ATTR_PD || ex->pd->context != context) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	qp = ibv_create_qp(ex->pd, &a);
	ex->cap = a.cap;
	return qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp;
	return NULL;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct qp *qp = to_qp(ibv);
	int err = foreign(qp->epoch) ? EIO : fault_verb(VERB_destroy_qp, NONE);

	if (err)
		return err;
	work_remove(qp);
	qp_lock(qp->s); /* no peer writes through it from here on */
	atomic_store(&qp->s->state, IBV_QPS_RESET);
	qp_unlock(qp->s);
	cq_purge(to_cq(ibv->send_cq), ibv->qp_num);
	cq_purge(to_cq(ibv->recv_cq), ibv->qp_num);
	pthread_mutex_lock(&fake.objects);
	fake.qp[qp->index] = NULL;
	async_forget(to_context(ibv->context), ibv);
	pthread_mutex_unlock(&fake.objects);
	async_settle(&ibv->mutex, &ibv->cond, &ibv->events_completed, &qp->async_read);
	release(qp->s);
	atomic_fetch_sub(&to_cq(ibv->send_cq)->users, 1);
	atomic_fetch_sub(&to_cq(ibv->recv_cq)->users, 1);
	atomic_fetch_sub(&to_pd(ibv->pd)->users, 1);
	qp_free(qp);
	return 0;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *qp = to_qp(ibv);
	int err = foreign(qp->epoch) ? EIO : fault_verb(VERB_query_qp, NONE);

	(void)mask; /* which fields must be filled: all are */
	if (err)
		return err;
	pthread_mutex_lock(&qp->lock);
	*a = qp->attr;
	a->qp_state = a->cur_qp_state = (enum ibv_qp_state)atomic_load(&qp->s->state);
	a->cap = qp->cap;
	pthread_mutex_unlock(&qp->lock);
	ibv->state = a->qp_state;
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context, .send_cq = ibv->send_cq, .recv_cq = ibv->recv_cq, .cap = qp->cap,
		.qp_type = ibv->qp_type, .sq_sig_all = qp->sig_all,
	};
	return 0;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp;
	(void)op;
	(void)flags;
	return 0;
}
