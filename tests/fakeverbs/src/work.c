/* Queue pairs with requests under way. Every poll moves them on; the service thread does where nobody polls. */
#include "fake.h"

_Atomic uint32_t work_pending;

/* Order of locks: a queue pair's, then this one; the other way round only with trylock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct qp *list;

void work_reset(void)
{
	pthread_mutex_init(&lock, NULL);
	list = NULL;
	atomic_store(&work_pending, 0);
}

/* Called with the queue pair's lock held. */
void work_add(struct qp *qp)
{
	pthread_mutex_lock(&lock);
	qp->pending = true;
	qp->next_pending = list;
	list = qp;
	atomic_fetch_add(&work_pending, 1);
	pthread_mutex_unlock(&lock);
	service_wake(qp_next(qp));
}

static void unlink_at(struct qp **p)
{
	struct qp *qp = *p;

	*p = qp->next_pending;
	qp->pending = false;
	atomic_fetch_sub(&work_pending, 1);
}

void work_remove(struct qp *qp)
{
	pthread_mutex_lock(&qp->lock);
	pthread_mutex_lock(&lock);
	for (struct qp **p = &list; *p; p = &(*p)->next_pending)
		if (*p == qp) {
			unlink_at(p);
			break;
		}
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&qp->lock);
}

/* One step for each; whoever finds the list taken leaves the work to the holder. */
void work_all(void)
{
	struct qp **p = &list;

	if (pthread_mutex_trylock(&lock))
		return;
	while (*p) {
		struct qp *qp = *p;

		if (pthread_mutex_trylock(&qp->lock)) {
			p = &qp->next_pending;
			continue;
		}
		if (qp_step(qp, SEGMENT))
			unlink_at(p);
		else
			p = &qp->next_pending;
		pthread_mutex_unlock(&qp->lock);
	}
	pthread_mutex_unlock(&lock);
}

uint64_t work_next(void)
{
	uint64_t t = 0;

	pthread_mutex_lock(&lock);
	for (struct qp *qp = list; qp; qp = qp->next_pending) {
		uint64_t next = 1;

		if (pthread_mutex_trylock(&qp->lock) == 0) {
			next = qp_next(qp);
			pthread_mutex_unlock(&qp->lock);
		}
		if (next == 0 || next == UINT64_MAX) /* whoever posted to it has finished it: the next step takes it out */
			next = 1;
		if (!t || next < t)
			t = next;
	}
	pthread_mutex_unlock(&lock);
	return t;
}
