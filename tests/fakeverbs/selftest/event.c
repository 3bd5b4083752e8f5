/* Completion channels and asynchronous events. */
#include "selftest.h"

#include <poll.h>

static bool readable(int fd, int ms)
{
	struct pollfd f = {.fd = fd, .events = POLLIN};

	return poll(&f, 1, ms) == 1;
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
	else
		EQUAL(ev.element.port_num, 1);
	ibv_ack_async_event(&ev);
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
	{"unread", unread}, {"short_break", short_break}, {"any_event", any_event}, {NULL, NULL},
};
