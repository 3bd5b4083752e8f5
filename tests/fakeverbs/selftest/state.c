/* The state machine: what each transition needs, allows and refuses. */
#include "selftest.h"

static const int init_mask = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
static const int rtr_mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
static const int rts_mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

static struct ibv_qp_attr full(struct end *e, enum ibv_qp_state to)
{
	return (struct ibv_qp_attr){
		.qp_state = to, .port_num = 1, .qp_access_flags = ALL, .path_mtu = IBV_MTU_1024, .dest_qp_num = e->peer.qpn,
		.rq_psn = e->peer.psn, .max_dest_rd_atomic = 1, .min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.sq_psn = e->self.psn, .max_rd_atomic = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = e->peer.gid, .sgid_index = 3, .hop_limit = 64}},
	};
}

static int state_of(struct end *e)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;

	EQUAL(ibv_query_qp(e->qp, &a, IBV_QP_STATE, &i), 0);
	return a.qp_state;
}

/* Every transition with each needed attribute missing, and with a foreign one too many, then right. */
static void masks(void)
{
	const struct {
		enum ibv_qp_state from, to;
		int need, foreign;
	} steps[] = {
		{IBV_QPS_RESET, IBV_QPS_INIT, init_mask, IBV_QP_TIMEOUT | IBV_QP_AV | IBV_QP_SQ_PSN | IBV_QP_MIN_RNR_TIMER},
		{IBV_QPS_INIT, IBV_QPS_RTR, rtr_mask, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN | IBV_QP_PORT | IBV_QP_RETRY_CNT},
		{IBV_QPS_RTR, IBV_QPS_RTS, rts_mask, IBV_QP_AV | IBV_QP_RQ_PSN | IBV_QP_PORT | IBV_QP_PATH_MTU},
	};
	struct end e;

	make_end(&e, &(struct wish){0});
	swap(&e);
	for (size_t i = 0; i < 3; i++) {
		struct ibv_qp_attr a = full(&e, steps[i].to);

		EQUAL(state_of(&e), steps[i].from);
		for (int bit = 1; bit <= IBV_QP_RATE_LIMIT; bit <<= 1) {
			if (steps[i].need & bit)
				EQUAL(ibv_modify_qp(e.qp, &a, (IBV_QP_STATE | steps[i].need) & ~bit), EINVAL);
			if (steps[i].foreign & bit)
				EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | steps[i].need | bit), EINVAL);
		}
		for (enum ibv_qp_state to = IBV_QPS_INIT; to <= IBV_QPS_SQE; to++)
			if (to != steps[i].to && to != steps[i].from) {
				a.qp_state = to;
				EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | init_mask), EINVAL);
				EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | rtr_mask), EINVAL);
				EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | rts_mask), EINVAL);
			}
		a.qp_state = steps[i].to;
		EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | steps[i].need), 0);
		EQUAL(e.qp->state, steps[i].to);
	}
	EQUAL(state_of(&e), IBV_QPS_RTS);
	meet();
	close_end(&e);
}

/* Values that no device takes. */
static void values(void)
{
	struct end e;
	struct ibv_qp_attr a;

	make_end(&e, &(struct wish){0});
	swap(&e);
#define REFUSED(mask, change, error) \
	do { \
		a = full(&e, a.qp_state); \
		change; \
		EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | (mask)), error); \
	} while (0)
	a.qp_state = IBV_QPS_INIT;
	REFUSED(init_mask, a.port_num = 0, EINVAL);
	REFUSED(init_mask, a.port_num = 2, EINVAL);
	REFUSED(init_mask, a.pkey_index = 1, EINVAL);
	REFUSED(init_mask, (void)0, 0);
	a.qp_state = IBV_QPS_RTR;
	REFUSED(rtr_mask, a.ah_attr.is_global = 0, EINVAL);
	REFUSED(rtr_mask, a.ah_attr.port_num = 2, EINVAL);
	REFUSED(rtr_mask, a.ah_attr.grh.sgid_index = 4, EINVAL);
	REFUSED(rtr_mask, a.path_mtu = IBV_MTU_2048, EINVAL); /* the interface has 1500 */
	REFUSED(rtr_mask, a.path_mtu = 0, EINVAL);
	REFUSED(rtr_mask, a.dest_qp_num = 1 << 24, EINVAL);
	REFUSED(rtr_mask, a.rq_psn = 1 << 24, EINVAL);
	REFUSED(rtr_mask, a.max_dest_rd_atomic = 255, EINVAL);
	REFUSED(rtr_mask, a.min_rnr_timer = 32, EINVAL);
	REFUSED(rtr_mask, a.ah_attr.grh.dgid.raw[15] ^= 0x40, ETIMEDOUT); /* nobody has that address */
	REFUSED(rtr_mask, (void)0, 0);
	a.qp_state = IBV_QPS_RTS;
	REFUSED(rts_mask, a.timeout = 32, EINVAL);
	REFUSED(rts_mask, a.retry_cnt = 8, EINVAL);
	REFUSED(rts_mask, a.rnr_retry = 8, EINVAL);
	REFUSED(rts_mask, a.sq_psn = 1 << 24, EINVAL);
	REFUSED(rts_mask, a.max_rd_atomic = 255, EINVAL);
	REFUSED(rts_mask | IBV_QP_CUR_STATE, a.cur_qp_state = IBV_QPS_INIT, EINVAL);
	REFUSED(rts_mask | IBV_QP_CUR_STATE, a.cur_qp_state = IBV_QPS_RTR, 0);
	meet();
	close_end(&e);
}

/* Which states take which requests. */
static void posting(void)
{
	struct end e;
	struct wish w = {0};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

	make_end(&e, &w);
	swap(&e);
	EQUAL(post_recv(&e, 1, 0, 8), EINVAL);
	EQUAL(post(&e, IBV_WR_SEND, 1, 0, 8, 0, 0), EINVAL);
	EQUAL(to_init(&e, ALL), 0);
	EQUAL(post_recv(&e, 1, 0, 8), 0);
	EQUAL(post(&e, IBV_WR_SEND, 1, 0, 8, 0, 0), EINVAL);
	EQUAL(to_rtr(&e, &w), 0);
	EQUAL(post(&e, IBV_WR_SEND, 1, 0, 8, 0, 0), EINVAL);
	EQUAL(to_rts(&e, &w), 0);
	meet();
	EQUAL(post(&e, IBV_WR_SEND, 2, 0, 8, 0, IBV_SEND_SIGNALED), 0);
	for (int i = 0; i < 2; i++)
		EQUAL(next_wc(&e).status, IBV_WC_SUCCESS);
	meet();
	EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE), 0);
	EQUAL(state_of(&e), IBV_QPS_RESET);
	EQUAL(post_recv(&e, 1, 0, 8), EINVAL);
	no_wc(&e, 1);
	close_end(&e);
}

/* A queue pair that was reset connects again, with other sequence numbers. */
static void again(void)
{
	struct end e;
	struct wish w = {0};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};

	connect_end(&e, &w);
	for (int round = 0; round < 3; round++) {
		EQUAL(post_recv(&e, 1, 0, 8), 0);
		meet();
		EQUAL(post(&e, IBV_WR_SEND, 2, 8, 8, 0, IBV_SEND_SIGNALED), 0);
		for (int i = 0; i < 2; i++)
			EQUAL(next_wc(&e).status, IBV_WC_SUCCESS);
		EQUAL(post_recv(&e, 9, 0, 8), 0);
		meet();
		EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE), 0);
		no_wc(&e, 1); /* reset drops what waited, silently */
		meet();
		EQUAL(to_init(&e, ALL), 0);
		EQUAL(to_rtr(&e, &w), 0);
		EQUAL(to_rts(&e, &w), 0);
		meet();
	}
	close_end(&e);
}

/* Numbers have 24 bits, all in use, and do not come back soon. */
static void numbers(void)
{
	enum { N = 2000 };
	static uint32_t seen[N];
	struct end e;
	struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	uint32_t ones = 0, zeros = 0;

	make_end(&e, &(struct wish){0});
	a.send_cq = a.recv_cq = e.cq;
	for (int i = 0; i < N; i++) {
		struct ibv_qp *qp = ibv_create_qp(e.pd, &a);

		CHECK(qp, "%s", strerror(errno));
		seen[i] = qp->qp_num;
		CHECK(qp->qp_num > 1 && qp->qp_num < 0xffffff);
		ones |= qp->qp_num;
		zeros |= ~qp->qp_num;
		for (int j = 0; j < i; j++)
			CHECK(seen[j] != qp->qp_num, "number 0x%06x twice", qp->qp_num);
		EQUAL(ibv_destroy_qp(qp), 0);
	}
	EQUAL(ones, 0xffffff);
	EQUAL(zeros & 0xffffff, 0xffffff);
	close_end(&e);
	meet();
}

/* What is in use is not destroyed. */
static void busy(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	EQUAL(ibv_destroy_cq(e.cq), EBUSY);
	EQUAL(ibv_dealloc_pd(e.pd), EBUSY);
	EQUAL(ibv_destroy_comp_channel(e.channel), EBUSY);
	meet();
	close_end(&e);
}

/* The same addresses by every way to ask, and an end to them. */
static void gids(void)
{
	struct ibv_context *c = open_device("rdma0");
	struct ibv_gid_entry table[32], one;
	ssize_t n = ibv_query_gid_table(c, table, 32, 0);

	EQUAL(n, 4); /* link-local and IPv4, each as RoCE v1 and v2 */
	for (int i = 0; i < n; i++) {
		union ibv_gid gid;

		EQUAL(ibv_query_gid(c, 1, i, &gid), 0);
		EQUAL(ibv_query_gid_ex(c, 1, (uint32_t)i, &one, 0), 0);
		CHECK(memcmp(&gid, &table[i].gid, sizeof(gid)) == 0 && memcmp(&gid, &one.gid, sizeof(gid)) == 0, "entry %d", i);
		EQUAL(table[i].gid_index, i);
		EQUAL(table[i].gid_type, i % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1);
		EQUAL(one.gid_type, table[i].gid_type);
		EQUAL(one.port_num, 1);
	}
	EQUAL(table[3].gid.raw[15], is_a ? 1 : 2);
	EQUAL(ibv_query_gid_ex(c, 1, 4, &one, 0), ENODATA);
	EQUAL(ibv_query_gid_ex(c, 2, 0, &one, 0), EINVAL);
	EQUAL(ibv_close_device(c), 0);
	meet();
}

/* InfiniBand: a port is found by its LID, and a GID beside it does no harm. A LID that nobody has is no mistake of modify_qp. */
static void infiniband(void)
{
	const struct wish w = {.infiniband = true, .timeout = 4, .retry = 1};
	struct ibv_port_attr p;
	struct ibv_qp_attr a;
	struct end e;

	for (int round = 0; round < 3; round++) {
		make_end(&e, &w);
		EQUAL(ibv_query_port(e.ctx, 1, &p), 0);
		EQUAL(p.link_layer, IBV_LINK_LAYER_INFINIBAND);
		EQUAL(p.lid, is_a ? 1 : 7);
		EQUAL(p.sm_lid, 1);
		EQUAL(p.active_mtu, IBV_MTU_4096);
		CHECK(!(p.port_cap_flags & IBV_PORT_IP_BASED_GIDS));
		swap(&e);
		EQUAL(to_init(&e, ALL), 0);
		a = full(&e, IBV_QPS_RTR);
		a.ah_attr.grh.sgid_index = 1;
		a.ah_attr.dlid = e.peer.lid;
		EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | rtr_mask), EINVAL);
		a.ah_attr.grh.sgid_index = 0;
		a.ah_attr.dlid = 0;
		EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | rtr_mask), EINVAL);
		a.ah_attr.dlid = round == 2 ? 99 : e.peer.lid;
		a.ah_attr.is_global = round == 1;
		EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | rtr_mask), 0);
		EQUAL(to_rts(&e, &w), 0);
		meet();
		if (is_a) {
			memset(e.buf, 'x', 5000);
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 5000, 0, IBV_SEND_SIGNALED), 0);
			want_wc(&e, 1, round == 2 ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
		}
		meet();
		if (!is_a)
			EQUAL(e.buf[4999], round == 2 ? 0 : 'x');
		close_end(&e);
	}
}

const struct test state_tests[] = {
	{"infiniband", infiniband},
	{"masks", masks}, {"values", values}, {"posting", posting}, {"again", again}, {"numbers", numbers}, {"busy", busy}, {"gids", gids}, {NULL, NULL},
};
