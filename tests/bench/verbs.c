/*
 * The limit: the same writes as the plugin's, posted by a C program. A receive is a write of 64
 * bytes into the sender's ring, a send a write with immediate into the buffer named there. Queues
 * are as deep as the plugin's, and receives are posted again in chains like its own.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"

enum {
	RING = 256,
	SEND_DEPTH = 2 * (RING + 1),
	GRANT_DEPTH = 2 * RING,
	RECV_DEPTH = 2 * RING + 64,
	RECV_BATCH = 64,
	GRANT_SIGNAL = 64,
	POLL = 32,
};

enum { ID_SEND = 1, ID_GRANT, ID_RECV };

struct grant {
	uint64_t addr;
	uint32_t length, rkey;
	uint64_t unused[5];
	_Atomic uint64_t seq;
};

struct half {
	bool sending;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr; /* of the buffer */
	struct grant *ring; /* at the sender */
	uint64_t peer_ring; /* at the receiver: where it is, and its key */
	uint32_t peer_rkey;
	uint64_t next, done; /* messages posted, and completed */
	int credits, recvs;
	struct ibv_recv_wr recv[RECV_BATCH];
};

/* What the two processes tell each other of a connection. */
struct told {
	union ibv_gid gid;
	uint64_t ring;
	uint32_t qpn, rkey;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int gid_index;

void net_init(const struct options *o)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (struct ibv_device **d = list; d && *d && !context; d++)
		if (!o->device || strcmp(ibv_get_device_name(*d), o->device) == 0)
			context = ibv_open_device(*d);
	if (list)
		ibv_free_device_list(list);
	gid_index = o->gid_index;
	if (!context)
		die("no RDMA device%s%s", o->device ? " " : "", o->device ? o->device : "");
	if (!(pd = ibv_alloc_pd(context)) || ibv_query_port(context, 1, &port) || ibv_query_gid(context, 1, gid_index, &gid))
		die("%s: %s", ibv_get_device_name(context->device), strerror(errno));
}

static void fill_recvs(struct half *h)
{
	while (h->recvs < RECV_DEPTH) {
		int n = RECV_DEPTH - h->recvs < RECV_BATCH ? RECV_DEPTH - h->recvs : RECV_BATCH;
		struct ibv_recv_wr *bad, *next = h->recv[n - 1].next;

		h->recv[n - 1].next = NULL;
		if (ibv_post_recv(h->qp, h->recv, &bad))
			die("post_recv: %s", strerror(errno));
		h->recv[n - 1].next = next;
		h->recvs += n;
	}
}

static void modify(struct half *h, struct ibv_qp_attr *attr, int mask)
{
	int err = ibv_modify_qp(h->qp, attr, mask);

	if (err)
		die("modify_qp to state %d: %s", attr->qp_state, strerror(err));
}

static struct half *create(bool sending)
{
	struct half *h = calloc(1, sizeof *h);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};

	h->sending = sending;
	h->credits = sending ? SEND_DEPTH : GRANT_DEPTH;
	h->cq = ibv_create_cq(context, (sending ? SEND_DEPTH : GRANT_DEPTH + RECV_DEPTH) + 2, NULL, NULL, 0);
	if (!h->cq)
		die("create_cq: %s", strerror(errno));
	init.send_cq = init.recv_cq = h->cq;
	init.cap = (struct ibv_qp_cap){
		.max_send_wr = (uint32_t)h->credits, .max_recv_wr = sending ? 1 : RECV_DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
		.max_inline_data = sizeof(struct grant),
	};
	if (!(h->qp = ibv_create_qp(pd, &init)))
		die("create_qp: %s", strerror(errno));
	modify(h, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (!sending) {
		for (int i = 0; i < RECV_BATCH; i++)
			h->recv[i] = (struct ibv_recv_wr){
				.wr_id = ID_RECV, .next = i + 1 < RECV_BATCH ? &h->recv[i + 1] : NULL,
			};
		fill_recvs(h);
	}
	return h;
}

static void join(struct half *h, const struct told *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = peer->qpn, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = {.dgid = peer->gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 255},
		},
	};

	modify(h, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .max_rd_atomic = 1};
	modify(h, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                         IBV_QP_MAX_QP_RD_ATOMIC);
	h->peer_ring = peer->ring;
	h->peer_rkey = peer->rkey;
}

void net_connect(struct conn *conns, int n)
{
	size_t size = (size_t)n * RING * sizeof(struct grant);
	struct grant *rings = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct told *own = calloc((size_t)n, sizeof *own), *peer = calloc((size_t)n, sizeof *peer);
	struct ibv_mr *mr = ibv_reg_mr(pd, rings, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		die("reg_mr: %s", strerror(errno));
	for (int i = 0; i < n; i++) {
		struct half *h = create(conns[i].sending);

		conns[i].half = h;
		h->ring = rings + (size_t)i * RING;
		own[i] = (struct told){.gid = gid, .ring = (uint64_t)h->ring, .qpn = h->qp->qp_num, .rkey = mr->rkey};
	}
	meet_exchange(own, peer, (size_t)n * sizeof *own);
	for (int i = 0; i < n; i++)
		join(conns[i].half, &peer[i]);
	meet_barrier();
	free(own);
	free(peer);
}

void net_register(struct conn *c, void *data, size_t size)
{
	struct half *h = c->half;

	h->mr = ibv_reg_mr(pd, data, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!h->mr)
		die("reg_mr: %s", strerror(errno));
}

static void post(struct half *h, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(h->qp, wr, &bad);

	if (err)
		die("post_send: %s", strerror(err));
	h->credits--;
}

bool net_isend(struct conn *c, void *data, size_t size, uint64_t *request)
{
	struct half *h = c->half;
	const struct grant *g = &h->ring[h->next % RING];
	struct ibv_sge sge = {.addr = (uint64_t)data, .length = (uint32_t)size, .lkey = h->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = ID_SEND, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htonl((uint32_t)h->next),
	};

	if (h->credits == 0 || atomic_load_explicit(&g->seq, memory_order_acquire) != h->next + 1)
		return false;
	wr.wr.rdma.remote_addr = g->addr;
	wr.wr.rdma.rkey = g->rkey;
	post(h, &wr);
	*request = h->next++;
	return true;
}

bool net_irecv(struct conn *c, void *data, size_t size, uint64_t *request)
{
	struct half *h = c->half;
	struct grant g = {.addr = (uint64_t)data, .length = (uint32_t)size, .rkey = h->mr->rkey, .seq = h->next + 1};
	struct ibv_sge sge = {.addr = (uint64_t)&g, .length = sizeof g};
	struct ibv_send_wr wr = {
		.wr_id = ID_GRANT, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE,
	};

	if (h->credits == 0)
		return false;
	if (h->recvs <= RECV_DEPTH - RECV_BATCH)
		fill_recvs(h);
	if (h->next % GRANT_SIGNAL == GRANT_SIGNAL - 1)
		wr.send_flags |= IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = h->peer_ring + h->next % RING * sizeof g;
	wr.wr.rdma.rkey = h->peer_rkey;
	post(h, &wr);
	*request = h->next++;
	return true;
}

bool net_test(struct conn *c, uint64_t request)
{
	struct half *h = c->half;
	struct ibv_wc wc[POLL];
	int n;

	if (request < h->done)
		return true;
	n = ibv_poll_cq(h->cq, POLL, wc);
	if (n < 0)
		die("poll_cq failed");
	for (int i = 0; i < n; i++) {
		if (wc[i].status)
			die("completion with status %d, %s", wc[i].status, ibv_wc_status_str(wc[i].status));
		switch (wc[i].wr_id) {
		case ID_SEND: h->credits++; h->done++; break;
		case ID_RECV: h->recvs--; h->done++; break;
		case ID_GRANT: h->credits += GRANT_SIGNAL; break;
		}
	}
	return request < h->done;
}

void net_close(struct conn *conns, int n)
{
	meet_barrier();
	for (int i = 0; i < n; i++) {
		struct half *h = conns[i].half;

		ibv_destroy_qp(h->qp);
		ibv_destroy_cq(h->cq);
	}
	meet_barrier();
}

size_t net_beside(void) { return sizeof(struct half) + RING * sizeof(struct grant); }
