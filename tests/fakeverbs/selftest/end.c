/* Setting up one end of a connection, and the few requests that most cases use. */
#include "selftest.h"

struct ibv_context *open_device(const char *name)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = NULL;

	CHECK(list, "%s", strerror(errno));
	for (int i = 0; i < n; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			c = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	CHECK(c, "device %s: %s", name, strerror(errno));
	return c;
}

void make_end(struct end *e, const struct wish *w)
{
	int depth = w->max_wr ? w->max_wr : 64;
	struct ibv_qp_init_attr a = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 4, .max_recv_sge = 4},
	};

	memset(e, 0, sizeof(*e));
	e->ctx = open_device(w->infiniband ? "ib0" : "rdma0");
	e->pd = ibv_alloc_pd(e->ctx);
	e->channel = ibv_create_comp_channel(e->ctx);
	CHECK(e->pd && e->channel);
	e->cq = ibv_create_cq(e->ctx, 256, e, e->channel, 0);
	CHECK(e->cq);
	a.send_cq = a.recv_cq = e->cq;
	e->qp = ibv_create_qp(e->pd, &a);
	CHECK(e->qp, "%s", strerror(errno));
	CHECK(posix_memalign((void **)&e->buf, 4096, BUF) == 0);
	memset(e->buf, 0, BUF);
	e->mr = ibv_reg_mr(e->pd, e->buf, BUF, ALL);
	CHECK(e->mr, "%s", strerror(errno));
}

void swap(struct end *e)
{
	struct ibv_port_attr port;

	e->self = (struct address){.qpn = e->qp->qp_num, .psn = is_a ? 0xfffffe : 77, .rkey = e->mr->rkey, .addr = (uint64_t)e->buf};
	EQUAL(ibv_query_port(e->ctx, 1, &port), 0);
	e->self.lid = port.lid;
	EQUAL(ibv_query_gid(e->ctx, 1, port.lid ? 0 : 3, &e->self.gid), 0);
	tell(&e->self, sizeof(e->self));
	hear(&e->peer, sizeof(e->peer));
}

int to_init(struct end *e)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL};

	return ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_rtr(struct end *e)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = e->peer.qpn,
		.rq_psn = e->peer.psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = e->peer.gid, .sgid_index = 3, .hop_limit = 64}},
	};

	if (e->peer.lid)
		a.ah_attr = (struct ibv_ah_attr){.dlid = e->peer.lid, .port_num = 1};
	return ibv_modify_qp(e->qp, &a,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

int to_rts(struct end *e, const struct wish *w)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = w->timeout ? w->timeout : 14,
		.retry_cnt = w->retry ? w->retry : 7,
		.rnr_retry = 7,
		.sq_psn = e->self.psn,
		.max_rd_atomic = 4,
	};

	return ibv_modify_qp(e->qp, &a,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

void connect_end(struct end *e, const struct wish *w)
{
	make_end(e, w);
	swap(e);
	EQUAL(to_init(e), 0);
	EQUAL(to_rtr(e), 0);
	EQUAL(to_rts(e, w), 0);
	meet();
}

void close_end(struct end *e)
{
	EQUAL(ibv_destroy_qp(e->qp), 0);
	EQUAL(ibv_destroy_cq(e->cq), 0);
	EQUAL(ibv_destroy_comp_channel(e->channel), 0);
	EQUAL(ibv_dereg_mr(e->mr), 0);
	EQUAL(ibv_dealloc_pd(e->pd), 0);
	EQUAL(ibv_close_device(e->ctx), 0);
	free(e->buf);
}

int post(struct end *e, enum ibv_wr_opcode op, uint64_t id, size_t at, size_t n, size_t remote, int flags)
{
	struct ibv_sge s = {.addr = (uint64_t)e->buf + at, .length = (uint32_t)n, .lkey = e->mr->lkey};
	struct ibv_send_wr *bad, wr = {
		.wr_id = id, .opcode = op, .send_flags = flags, .sg_list = &s, .num_sge = 1, .imm_data = 0x01020304,
		.wr.rdma = {.remote_addr = e->peer.addr + remote, .rkey = e->peer.rkey},
	};

	return ibv_post_send(e->qp, &wr, &bad);
}

int post_recv(struct end *e, uint64_t id, size_t at, size_t n)
{
	struct ibv_sge s = {.addr = (uint64_t)e->buf + at, .length = (uint32_t)n, .lkey = e->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};

	return ibv_post_recv(e->qp, &wr, &bad);
}

struct ibv_wc next_wc(struct end *e)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(e->cq, 1, &wc);
	while (n == 0);
	EQUAL(n, 1);
	EQUAL(wc.qp_num, e->qp->qp_num);
	return wc;
}

void want_wc(struct end *e, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = next_wc(e);

	CHECK(wc.wr_id == id && wc.status == status, "got id %llu %s, want id %llu %s", (unsigned long long)wc.wr_id,
	      ibv_wc_status_str(wc.status), (unsigned long long)id, ibv_wc_status_str(status));
}

void no_wc(struct end *e, int ms)
{
	struct ibv_wc wc;

	for (uint64_t end = now_ns() + (uint64_t)ms * 1000000; now_ns() < end;)
		EQUAL(ibv_poll_cq(e->cq, 1, &wc), 0);
}
