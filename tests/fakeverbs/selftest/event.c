/* Completion channels and asynchronous events. */
#include "selftest.h"

#include <fcntl.h>
#include <poll.h>

static bool readable(int fd, int ms)
{
	struct pollfd f = {.fd = fd, .events = POLLIN};

	return poll(&f, 1, ms) == 1;
}

static void want_cq_event(struct end *e)
{
	struct ibv_cq *cq;
	void *context;

	EQUAL(ibv_get_cq_event(e->channel, &cq, &context), 0);
	CHECK(cq == e->cq && context == e);
	ibv_ack_cq_events(cq, 1);
}

/* A process that sleeps in its channel is woken by the peer's send, once for each time it asked. */
static void channel(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	EQUAL(post_recv(&e, 1, 0, 8), 0);
	EQUAL(post_recv(&e, 2, 0, 8), 0);
	meet();
	if (is_a) {
		meet();
		EQUAL(post(&e, IBV_WR_SEND, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		EQUAL(post(&e, IBV_WR_SEND, 2, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 1, IBV_WC_SUCCESS);
		want_wc(&e, 2, IBV_WC_SUCCESS);
		meet();
	} else {
		CHECK(!readable(e.channel->fd, 0));
		EQUAL(ibv_req_notify_cq(e.cq, 0), 0);
		meet();
		want_cq_event(&e);
		meet();
		CHECK(!readable(e.channel->fd, 20)); /* not asked again */
		want_wc(&e, 1, IBV_WC_SUCCESS);
		want_wc(&e, 2, IBV_WC_SUCCESS);
		fcntl(e.channel->fd, F_SETFL, O_NONBLOCK);
		CHECK(ibv_get_cq_event(e.channel, &(struct ibv_cq *){NULL}, &(void *){NULL}) == -1 && errno == EAGAIN);
	}
	meet();
	close_end(&e);
}

/* A queue that holds completions when it is armed raises the event at once, as mlx5 does, and once for each time; an empty one waits. */
static void armed_late(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	EQUAL(post_recv(&e, 1, 0, 8), 0);
	EQUAL(post_recv(&e, 2, 0, 8), 0);
	meet();
	if (is_a) {
		EQUAL(post(&e, IBV_WR_SEND, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 1, IBV_WC_SUCCESS);
		EQUAL(ibv_req_notify_cq(e.cq, 0), 0);
		CHECK(!readable(e.channel->fd, 0)); /* all were taken */
		meet();
		meet();
		EQUAL(post(&e, IBV_WR_SEND, 2, 0, 8, 0, IBV_SEND_SOLICITED), 0);
	} else {
		meet();
		EQUAL(ibv_req_notify_cq(e.cq, 1), 0);
		CHECK(!readable(e.channel->fd, 0)); /* what is there was not solicited */
		EQUAL(ibv_req_notify_cq(e.cq, 0), 0);
		CHECK(readable(e.channel->fd, 0));
		want_cq_event(&e);
		CHECK(!readable(e.channel->fd, 0));
		meet();
	}
	meet();
	if (!is_a) {
		CHECK(!readable(e.channel->fd, 0)); /* not asked again */
		EQUAL(ibv_req_notify_cq(e.cq, 1), 0);
		CHECK(readable(e.channel->fd, 0));
		want_cq_event(&e);
		want_wc(&e, 1, IBV_WC_SUCCESS);
		want_wc(&e, 2, IBV_WC_SUCCESS);
		EQUAL(ibv_req_notify_cq(e.cq, 0), 0);
		CHECK(!readable(e.channel->fd, 0));
	}
	meet();
	close_end(&e);
}

/* Asked for solicited completions, only those wake it. */
static void solicited(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	EQUAL(post_recv(&e, 1, 0, 8), 0);
	EQUAL(post_recv(&e, 2, 0, 8), 0);
	EQUAL(ibv_req_notify_cq(e.cq, 1), 0);
	meet();
	if (is_a) {
		EQUAL(post(&e, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
		meet();
		meet();
		EQUAL(post(&e, IBV_WR_SEND, 2, 0, 8, 0, IBV_SEND_SOLICITED), 0);
	} else {
		meet();
		CHECK(!readable(e.channel->fd, 20));
		meet();
		want_cq_event(&e);
	}
	meet();
	close_end(&e);
}

/* Events nobody read do not stand in the way of an end. */
static void unread(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	EQUAL(post_recv(&e, 1, 0, 8), 0);
	EQUAL(ibv_req_notify_cq(e.cq, 0), 0);
	meet();
	EQUAL(post(&e, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
	CHECK(readable(e.channel->fd, 10000));
	fakefault("qp-error 0x%x", e.qp->qp_num);
	CHECK(readable(e.ctx->async_fd, 10000));
	meet();
	EQUAL(ibv_destroy_qp(e.qp), 0);
	CHECK(!readable(e.ctx->async_fd, 0));
	EQUAL(ibv_destroy_cq(e.cq), 0);
	CHECK(!readable(e.channel->fd, 0));
	EQUAL(ibv_destroy_comp_channel(e.channel), 0);
	EQUAL(ibv_dereg_mr(e.mr), 0);
	EQUAL(ibv_dealloc_pd(e.pd), 0);
	EQUAL(ibv_close_device(e.ctx), 0);
	free(e.buf);
}

static void want_async(struct end *e, enum ibv_event_type type)
{
	struct ibv_async_event ev;

	CHECK(readable(e->ctx->async_fd, 10000), "no event, want %s", ibv_event_type_str(type));
	EQUAL(ibv_get_async_event(e->ctx, &ev), 0);
	CHECK(ev.event_type == type, "%s, want %s", ibv_event_type_str(ev.event_type), ibv_event_type_str(type));
	if (type == IBV_EVENT_QP_FATAL)
		CHECK(ev.element.qp == e->qp);
	else if (type == IBV_EVENT_CQ_ERR)
		CHECK(ev.element.cq == e->cq);
	else
		EQUAL(ev.element.port_num, 1);
	ibv_ack_async_event(&ev);
}

/* More completions than the queue has room for. */
static void overrun(void)
{
	struct end e;

	connect_end(&e, &(struct wish){.cqe = 4});
	if (is_a) {
		struct ibv_wc wc[8];

		for (int i = 0; i < 5; i++)
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, (uint64_t)i, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		want_async(&e, IBV_EVENT_CQ_ERR);
		EQUAL(ibv_poll_cq(e.cq, 8, wc), 4);
	}
	meet();
	close_end(&e);
}

/* The cable out and in again, seen from both ends. */
static void cable(void)
{
	struct end e;
	struct ibv_port_attr p;

	connect_end(&e, &(struct wish){.timeout = 8, .retry = 1});
	if (is_a)
		fakefault("unplug a:rdma0");
	want_async(&e, IBV_EVENT_PORT_ERR);
	EQUAL(ibv_query_port(e.ctx, 1, &p), 0);
	EQUAL(p.state, IBV_PORT_DOWN);
	meet();
	if (is_a) {
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, 0), 0);
		want_wc(&e, 1, IBV_WC_RETRY_EXC_ERR);
		fakefault("plug a:rdma0");
	}
	want_async(&e, IBV_EVENT_PORT_ACTIVE);
	EQUAL(ibv_query_port(e.ctx, 1, &p), 0);
	EQUAL(p.state, IBV_PORT_ACTIVE);
	meet();
	close_end(&e);
}

/* A break that ends before the attempts do is not noticed. */
static void short_break(void)
{
	struct end e;

	connect_end(&e, &(struct wish){.timeout = 16, .retry = 7}); /* 2 s in all */
	if (is_a) {
		fakefault("down a:rdma0");
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		no_wc(&e, 10);
		fakefault("up a:rdma0");
		want_wc(&e, 1, IBV_WC_SUCCESS);
	}
	meet();
	close_end(&e);
}

static void any_event(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		fakefault("event GID_CHANGE a:rdma0");
		want_async(&e, IBV_EVENT_GID_CHANGE);
		fakefault("event IBV_EVENT_DEVICE_FATAL a:rdma0");
		CHECK(readable(e.ctx->async_fd, 10000));
		fakefault("qp-error 0x%x", e.qp->qp_num);
		EQUAL(ibv_get_async_event(e.ctx, &(struct ibv_async_event){0}), 0);
		want_async(&e, IBV_EVENT_QP_FATAL);
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, 0), 0);
		want_wc(&e, 1, IBV_WC_WR_FLUSH_ERR);
	}
	meet();
	close_end(&e);
}

const struct test event_tests[] = {
	{"channel", channel}, {"armed_late", armed_late}, {"solicited", solicited},     {"unread", unread},
	{"overrun", overrun}, {"cable", cable},           {"short_break", short_break}, {"any_event", any_event},
	{NULL, NULL},
};
