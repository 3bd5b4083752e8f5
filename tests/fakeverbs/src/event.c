/* Asynchronous events and completion events: real descriptors that a program can poll.
 *
 * A descriptor is an eventfd that counts the events waiting in a list. Destroying an object takes its unread events back; the token
 * that remains in the descriptor then finds the list empty, and the reader waits on. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void fd_raise(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		return; /* closed, or more than anybody will read */
}

/* Takes one token: waits unless the program made the descriptor non-blocking. */
static int fd_take(int fd)
{
	uint64_t one;

	return read(fd, &one, sizeof(one)) == sizeof(one) ? 0 : -1;
}

static void fd_untake(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0)
		return;
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	fd_take(fd);
	fcntl(fd, F_SETFL, flags);
}

int async_open(struct context *c)
{
	c->verbs.context.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	return c->verbs.context.async_fd < 0 ? -1 : 0;
}

void async_close(struct context *c)
{
	close(c->verbs.context.async_fd);
	while (c->first) {
		struct pending_event *e = c->first;

		c->first = e->next;
		free(e);
	}
}

static void queue(struct context *c, const struct ibv_async_event *event, uint32_t *read)
{
	struct pending_event *e = calloc(1, sizeof(*e));

	if (!e)
		return;
	e->event = *event;
	e->read = read;
	pthread_mutex_lock(&c->lock);
	*c->last = e;
	c->last = &e->next;
	pthread_mutex_unlock(&c->lock);
	fd_raise(c->verbs.context.async_fd);
}

static bool names_qp(uint32_t type)
{
	switch (type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return true;
	}
	return false;
}

/* Hands an event from the process's box to whom it concerns. */
void async_deliver(const struct shm_event *e)
{
	struct ibv_async_event out = {.event_type = e->type};

	pthread_mutex_lock(&fake.objects);
	if (names_qp(e->type)) {
		struct qp *qp = fake.qp[e->object];

		if (qp && atomic_load(&qp->s->generation) == e->generation) {
			out.element.qp = &qp->ibv;
			queue(to_context(qp->ibv.context), &out, &qp->async_read);
		}
	} else if (e->type == IBV_EVENT_CQ_ERR) {
		struct cq *cq = fake.cq[e->object];

		if (cq && atomic_load(&cq->s->generation) == e->generation) {
			out.element.cq = &cq->ibv;
			queue(to_context(cq->ibv.context), &out, &cq->async_read);
		}
	} else {
		out.element.port_num = e->port;
		for (struct context *c = fake.contexts; c; c = c->next)
			if (c->device == e->device)
				queue(c, &out, NULL);
	}
	pthread_mutex_unlock(&fake.objects);
}

/* Takes back the unread events of an object. */
void async_forget(struct context *c, const void *element)
{
	pthread_mutex_lock(&c->lock);
	for (struct pending_event **p = &c->first; *p;) {
		struct pending_event *e = *p;

		if (e->read && e->event.element.qp == element) {
			*p = e->next;
			free(e);
			fd_untake(c->verbs.context.async_fd);
		} else {
			p = &e->next;
		}
	}
	c->last = &c->first;
	while (*c->last)
		c->last = &(*c->last)->next;
	pthread_mutex_unlock(&c->lock);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct context *c = to_context(context);
	struct pending_event *e;

	do {
		if (fd_take(context->async_fd))
			return -1;
		pthread_mutex_lock(&c->lock);
		e = c->first;
		if (e) {
			c->first = e->next;
			if (!c->first)
				c->last = &c->first;
			if (e->read)
				__atomic_fetch_add(e->read, 1, __ATOMIC_SEQ_CST);
		}
		pthread_mutex_unlock(&c->lock);
	} while (!e);
	*event = e->event;
	free(e);
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (names_qp(event->event_type)) {
		struct ibv_qp *qp = event->element.qp;

		pthread_mutex_lock(&qp->mutex);
		qp->events_completed++;
		pthread_cond_broadcast(&qp->cond);
		pthread_mutex_unlock(&qp->mutex);
	} else if (event->event_type == IBV_EVENT_CQ_ERR) {
		struct ibv_cq *cq = event->element.cq;

		pthread_mutex_lock(&cq->mutex);
		cq->async_events_completed++;
		pthread_cond_broadcast(&cq->cond);
		pthread_mutex_unlock(&cq->mutex);
	}
}

/* Waits until every event that was read has been acknowledged: destroy_qp and destroy_cq do. */
void async_settle(pthread_mutex_t *m, pthread_cond_t *c, const uint32_t *completed, const uint32_t *read)
{
	pthread_mutex_lock(m);
	while (*completed != __atomic_load_n(read, __ATOMIC_SEQ_CST))
		pthread_cond_wait(c, m);
	pthread_mutex_unlock(m);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *ch;
	int err = foreign(to_context(context)->epoch) ? EIO : fault_verb(VERB_create_comp_channel, NONE);

	if (err) {
		errno = err;
		return NULL;
	}
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return NULL;
	ch->ibv.context = context;
	ch->ibv.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (ch->ibv.fd < 0) {
		free(ch);
		return NULL;
	}
	ch->last = &ch->first;
	pthread_mutex_init(&ch->lock, NULL);
	return &ch->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (channel->refcnt)
		return EBUSY;
	close(channel->fd);
	free(channel);
	return 0;
}

/* A completion event of `cq`, which has a channel. */
void cq_event_deliver(struct cq *cq)
{
	struct channel *ch = (struct channel *)cq->ibv.channel;

	pthread_mutex_lock(&ch->lock);
	if (cq->queued++ == 0) {
		cq->next = NULL;
		*ch->last = cq;
		ch->last = &cq->next;
	}
	pthread_mutex_unlock(&ch->lock);
	fd_raise(ch->ibv.fd);
}

void cq_event_forget(struct cq *cq)
{
	struct channel *ch = (struct channel *)cq->ibv.channel;

	pthread_mutex_lock(&ch->lock);
	for (struct cq **p = &ch->first; *p; p = &(*p)->next)
		if (*p == cq) {
			*p = cq->next;
			break;
		}
	ch->last = &ch->first;
	while (*ch->last)
		ch->last = &(*ch->last)->next;
	for (; cq->queued; cq->queued--)
		fd_untake(ch->ibv.fd);
	pthread_mutex_unlock(&ch->lock);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **out, void **cq_context)
{
	struct channel *ch = (struct channel *)channel;
	struct cq *cq;

	do {
		if (fd_take(channel->fd))
			return -1;
		pthread_mutex_lock(&ch->lock);
		cq = ch->first;
		if (cq) {
			__atomic_fetch_add(&cq->events_read, 1, __ATOMIC_SEQ_CST);
			if (--cq->queued == 0) {
				ch->first = cq->next;
				if (!ch->first)
					ch->last = &ch->first;
			}
		}
		pthread_mutex_unlock(&ch->lock);
	} while (!cq);
	*out = &cq->ibv;
	*cq_context = cq->ibv.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += n;
	pthread_cond_broadcast(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
