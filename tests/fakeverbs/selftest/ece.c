/* Enhanced connection establishment: options that both ends agree on. */
#include "selftest.h"

enum { VENDOR = 0x15b3, OF_A = 0x10000007, OF_B = 0x1000000d, OF_BOTH = OF_A & OF_B };

static uint32_t options(struct end *e)
{
	struct ibv_ece ece = {.vendor_id = 1, .options = 1, .comp_mask = 1};

	EQUAL(ibv_query_ece(e->qp, &ece), 0);
	EQUAL(ece.vendor_id, VENDOR);
	EQUAL(ece.comp_mask, 0);
	return ece.options;
}

static int set(struct end *e, uint32_t vendor, uint32_t wanted, uint32_t comp_mask)
{
	return ibv_set_ece(e->qp, &(struct ibv_ece){.vendor_id = vendor, .options = wanted, .comp_mask = comp_mask});
}

/* a offers, b answers, and a takes what remains; late says that a takes it only after RTR. */
static void agree(bool late)
{
	struct wish w = {.timeout = 1, .retry = 1};
	uint32_t offered, left;
	struct end e;

	make_end(&e, &w);
	swap(&e);
	EQUAL(to_init(&e, ALL), 0);
	EQUAL(options(&e), is_a ? OF_A : OF_B);
	if (is_a) {
		offered = OF_A;
		tell(&offered, sizeof(offered));
		hear(&left, sizeof(left));
		EQUAL(left, OF_BOTH);
		if (!late)
			EQUAL(set(&e, VENDOR, left, 0), 0);
		EQUAL(to_rtr(&e, &w), 0);
		if (late)
			EQUAL(set(&e, VENDOR, left, 0), 0);
	} else {
		hear(&offered, sizeof(offered));
		EQUAL(set(&e, VENDOR, offered, 0), 0);
		EQUAL(options(&e), 0);
		EQUAL(to_rtr(&e, &w), 0);
	}
	EQUAL(to_rts(&e, &w), 0);
	EQUAL(options(&e), late && is_a ? 0 : OF_BOTH);
	if (!is_a) {
		left = options(&e);
		tell(&left, sizeof(left));
	}
	meet();
	EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 100, BUF / 2, IBV_SEND_SIGNALED), 0);
	want_wc(&e, 1, late ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
	meet();
	close_end(&e);
}

static void agreed(void) { agree(false); }
static void too_late(void) { agree(true); }

/* A queue pair that is reset has to agree again. */
static void reset(void)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	struct wish w = {0};
	struct end e;

	make_end(&e, &w);
	swap(&e);
	EQUAL(set(&e, VENDOR, 1, 0), 0);
	EQUAL(to_init(&e, ALL), 0);
	EQUAL(options(&e), 1);
	EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE), 0);
	EQUAL(options(&e), is_a ? OF_A : OF_B);
	meet();
	close_end(&e);
}

static void refused(void)
{
	struct ibv_ece ece;
	struct wish ib = {.infiniband = true};
	struct end e;

	make_end(&e, &(struct wish){0});
	EQUAL(set(&e, VENDOR, 1, 1), EINVAL);
	EQUAL(set(&e, VENDOR + 1, 1, 0), EINVAL);
	EQUAL(set(&e, 0, 0, 0), EOPNOTSUPP);
	if (is_a) {
		fakefault("verb name=set_ece errno=ENOMEM node=a times=1");
		EQUAL(set(&e, VENDOR, 1, 0), ENOMEM);
		fakefault("verb name=query_ece errno=EIO node=a times=1");
		EQUAL(ibv_query_ece(e.qp, &ece), EIO);
		fakefault("clear");
	}
	meet();
	close_end(&e);

	make_end(&e, &ib); /* a device without them */
	EQUAL(ibv_query_ece(e.qp, &ece), EOPNOTSUPP);
	EQUAL(set(&e, VENDOR, 1, 0), EOPNOTSUPP);
	close_end(&e);
}

const struct test ece_tests[] = {
	{"ece-agreed", agreed},
	{"ece-late", too_late},
	{"ece-reset", reset},
	{"ece-refused", refused},
	{0},
};
