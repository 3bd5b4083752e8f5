/* The state machine: what each transition needs, allows and refuses. */
#include "selftest.h"

static const int rtr_mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

static struct ibv_qp_attr full(struct end *e, enum ibv_qp_state to)
{
	return (struct ibv_qp_attr){
		.qp_state = to, .port_num = 1, .qp_access_flags = ALL, .path_mtu = IBV_MTU_1024, .dest_qp_num = e->peer.qpn,
		.rq_psn = e->peer.psn, .max_dest_rd_atomic = 1, .min_rnr_timer = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.sq_psn = e->self.psn, .max_rd_atomic = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = e->peer.gid, .sgid_index = 3, .hop_limit = 64}},
	};
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
		EQUAL(ibv_query_ece(e.qp, &(struct ibv_ece){0}), EOPNOTSUPP); /* the port has no line of it */
		EQUAL(ibv_set_ece(e.qp, &(struct ibv_ece){.vendor_id = 0x15b3, .options = 1}), EOPNOTSUPP);
		swap(&e);
		EQUAL(to_init(&e), 0);
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
	{"numbers", numbers}, {"busy", busy}, {"gids", gids}, {NULL, NULL},
};
