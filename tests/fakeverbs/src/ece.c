/* Enhanced connection establishment (ECE): options that both ends of a connection agree on. As with mlx5, a queue pair first tells what
 * its adapter can do. What the program sets takes effect with the next change of state up to RTR, reduced to that; from then on the queue
 * pair tells what it has. Packets between ends that have not the same options are lost. */
#include "fake.h"

#include <errno.h>

int ibv_query_ece(struct ibv_qp *ibv, struct ibv_ece *ece)
{
	struct qp *qp = to_qp(ibv);
	const struct shm_device *d = &shm->device[qp->s->device];
	int err = foreign(qp->epoch) ? EIO : fault_verb(VERB_query_ece, qp->s->port);

	if (!err && !d->ece_vendor)
		err = EOPNOTSUPP;
	if (err)
		return err;
	pthread_mutex_lock(&qp->lock);
	*ece = (struct ibv_ece){.vendor_id = d->ece_vendor, .options = qp->ece};
	pthread_mutex_unlock(&qp->lock);
	return 0;
}

int ibv_set_ece(struct ibv_qp *ibv, struct ibv_ece *ece)
{
	struct qp *qp = to_qp(ibv);
	const struct shm_device *d = &shm->device[qp->s->device];
	int err = foreign(qp->epoch) ? EIO : fault_verb(VERB_set_ece, qp->s->port);

	if (!err && (!ece->vendor_id || !d->ece_vendor))
		err = EOPNOTSUPP;
	if (!err && (ece->comp_mask || ece->vendor_id != d->ece_vendor))
		err = EINVAL;
	if (!err && !d->ece_options) /* the provider knows the call, the adapter does not */
		err = EOPNOTSUPP;
	if (err)
		return err;
	pthread_mutex_lock(&qp->lock);
	qp->ece = 0;
	qp->ece_wanted = ece->options;
	qp->ece_pending = true;
	pthread_mutex_unlock(&qp->lock);
	return 0;
}

/* Called with the queue pair's lock and the shared one held. */
void ece_apply(struct qp *qp, enum ibv_qp_state to)
{
	if (!qp->ece_pending || (to != IBV_QPS_INIT && to != IBV_QPS_RTR))
		return;
	qp->ece = qp->s->ece = qp->ece_wanted & shm->device[qp->s->device].ece_options;
	qp->ece_pending = false;
}

/* A queue pair in RESET knows of no agreement. */
void ece_reset(struct qp *qp)
{
	qp->s->ece = 0;
	qp->ece = shm->device[qp->s->device].ece_options;
	qp->ece_pending = false;
}
