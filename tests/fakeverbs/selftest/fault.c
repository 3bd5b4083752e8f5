/* Faults that the command switches on. */
#include "selftest.h"

static void work_request(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		fakefault("wr status=IBV_WC_REM_OP_ERR qpn=%u skip=3", e.qp->qp_num);
		for (int i = 0; i < 6; i++)
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, (uint64_t)i, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		for (int i = 0; i < 3; i++)
			want_wc(&e, (uint64_t)i, IBV_WC_SUCCESS);
		want_wc(&e, 3, IBV_WC_REM_OP_ERR);
		want_wc(&e, 4, IBV_WC_WR_FLUSH_ERR);
		want_wc(&e, 5, IBV_WC_WR_FLUSH_ERR);
		fakefault("clear");
	}
	meet();
	close_end(&e);
}

static void stall(void)
{
	struct end e;
	struct ibv_port_attr p;

	connect_end(&e, &(struct wish){.timeout = 16, .retry = 7});
	if (is_a) {
		fakefault("stall port=b:rdma0");
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		no_wc(&e, 20);
		EQUAL(ibv_query_port(e.ctx, 1, &p), 0);
		EQUAL(p.state, IBV_PORT_ACTIVE);
		fakefault("clear");
		want_wc(&e, 1, IBV_WC_SUCCESS);
	}
	meet();
	close_end(&e);
}

static void registration(void)
{
	struct end e;
	struct ibv_mr *mr;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		fakefault("reg node=a bytes=%d", BUF + 8192);
		mr = ibv_reg_mr(e.pd, e.buf, 8192, ALL);
		CHECK(mr);
		CHECK(!ibv_reg_mr(e.pd, e.buf, 1, ALL) && errno == ENOMEM);
		EQUAL(ibv_dereg_mr(mr), 0);
		mr = ibv_reg_mr(e.pd, e.buf, 1, ALL);
		CHECK(mr);
		EQUAL(ibv_dereg_mr(mr), 0);
		fakefault("clear");
	}
	meet();
	close_end(&e);
}

static void verb(void)
{
	struct end e;
	struct ibv_wc wc;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		fakefault("verb name=create_cq errno=ENOMEM times=1 node=a");
		CHECK(!ibv_create_cq(e.ctx, 1, NULL, NULL, 0) && errno == ENOMEM);
		fakefault("verb name=set_ece errno=ENOMEM times=1 node=a");
		EQUAL(ibv_set_ece(e.qp, &(struct ibv_ece){.vendor_id = 0x15b3, .options = 1}), ENOMEM);
		fakefault("verb name=query_ece errno=EIO times=1 node=a");
		EQUAL(ibv_query_ece(e.qp, &(struct ibv_ece){0}), EIO);
		fakefault("verb name=reg_dmabuf_mr errno=EPROTONOSUPPORT times=1 node=a");
		CHECK(!ibv_reg_dmabuf_mr(e.pd, 0, 0, 0, -1, 0) && errno == EPROTONOSUPPORT);
		CHECK(!ibv_reg_dmabuf_mr(e.pd, 0, 0, 0, -1, 0) && errno == EBADF);
		fakefault("verb name=post_send errno=%d times=1 node=a", EAGAIN);
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, IBV_SEND_SIGNALED), EAGAIN);
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 2, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		fakefault("verb name=poll_cq errno=EIO times=1 node=a");
		EQUAL(ibv_poll_cq(e.cq, 1, &wc), -1);
		want_wc(&e, 2, IBV_WC_SUCCESS);
		fakefault("clear");
	}
	meet();
	close_end(&e);
}

static void slow(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		uint64_t start;

		fakefault("slow port=a:rdma0 time=20ms");
		start = now_ns();
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 1, IBV_WC_SUCCESS);
		CHECK(now_ns() - start >= 20000000);
		fakefault("clear");
	}
	meet();
	close_end(&e);
}

/* A process is killed at its third call of a verb. */
static void die(void)
{
	struct end e;

	connect_end(&e, &(struct wish){.timeout = 8, .retry = 1});
	if (is_a) {
		fakefault("die name=alloc_pd node=b skip=2");
		tell("", 1);
		for (int i = 0; i < 2; i++)
			hear(&(char){0}, 1);
		do
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		while (next_wc(&e).status == IBV_WC_SUCCESS);
		fakefault("clear");
		close_end(&e);
	} else {
		hear(&(char){0}, 1);
		for (int i = 0; i < 3; i++) {
			CHECK(ibv_alloc_pd(e.ctx));
			CHECK(i < 2, "alive after the third call");
			tell("", 1);
		}
	}
}

const struct test fault_tests[] = {
	{"work_request", work_request}, {"stall", stall}, {"registration", registration},
	{"verb", verb},                 {"slow", slow},         {"die", die},     {NULL, NULL},
};
