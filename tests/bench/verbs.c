/*
 * The limit: the same writes as the plugin's, posted by a C program. A receive is a write of 64
 * bytes into the sender's ring, a send a write with immediate into the buffer named there. Queues
 * are as deep as the plugin's, and receives are posted again in chains like its own.
 */
#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rdma.h"

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
	bool armed;
	uint64_t vain; /* since when nothing has come */
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
	struct rdma_end end;
	uint64_t ring;
	uint32_t rkey;
};

static bool sleeps;

void net_init(const struct options *o)
{
	rdma_open(o);
	sleeps = o->sleep;
}

static void fill_recvs(struct half *h)
{
	while (h->recvs < RECV_DEPTH) {
		int n = RECV_DEPTH - h->recvs < RECV_BATCH ? RECV_DEPTH - h->recvs : RECV_BATCH;
		struct ibv_recv_wr *bad, *next = h->recv[n - 1].next;

		h->recv[n - 1].next = NULL;
		if (ibv_post_recv(h->qp, h->recv, &bad))
			die("post_recv failed");
		h->recv[n - 1].next = next;
		h->recvs += n;
	}
}

static struct half *create(bool sending)
{
	struct half *h = calloc(1, sizeof *h);

	h->sending = sending;
	h->credits = sending ? SEND_DEPTH : GRANT_DEPTH;
	h->cq = rdma_cq((sending ? SEND_DEPTH : GRANT_DEPTH + RECV_DEPTH) + 2, sleeps && !sending);
	h->qp = rdma_qp(h->cq, (struct ibv_qp_cap){
		.max_send_wr = (uint32_t)h->credits, .max_recv_wr = sending ? 1 : RECV_DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
		.max_inline_data = sizeof(struct grant),
	});
	if (!sending) {
		for (int i = 0; i < RECV_BATCH; i++)
			h->recv[i] = (struct ibv_recv_wr){
				.wr_id = ID_RECV, .next = i + 1 < RECV_BATCH ? &h->recv[i + 1] : NULL,
			};
		fill_recvs(h);
	}
	return h;
}

void net_connect(struct conn *conns, int n)
{
	size_t size = (size_t)n * RING * sizeof(struct grant);
	struct grant *rings = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct told *own = calloc((size_t)n, sizeof *own), *peer = calloc((size_t)n, sizeof *peer);
	struct ibv_mr *mr = rdma_register(rings, size);

	for (int i = 0; i < n; i++) {
		struct half *h = create(conns[i].sending);

		conns[i].half = h;
		h->ring = rings + (size_t)i * RING;
		own[i] = (struct told){.end = rdma_end(h->qp), .ring = (uint64_t)h->ring, .rkey = mr->rkey};
	}
	meet_exchange(own, peer, (size_t)n * sizeof *own);
	for (int i = 0; i < n; i++) {
		struct half *h = conns[i].half;

		rdma_join(h->qp, &peer[i].end);
		h->peer_ring = peer[i].ring;
		h->peer_rkey = peer[i].rkey;
	}
	meet_barrier();
	free(own);
	free(peer);
}

void net_register(struct conn *c, void *data, size_t size)
{
	struct half *h = c->half;

	h->mr = rdma_register(data, size);
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

/* Has a receiver that nothing comes for sleep, as a relay does that has nothing to carry. */
static void rest(struct half *h)
{
	enum { AWAKE = 1000000 };

	if (h->armed) {
		rdma_sleep(h->cq);
		h->armed = false;
		h->vain = 0;
	} else if (h->vain == 0) {
		h->vain = now_ns();
	} else if (now_ns() - h->vain >= AWAKE) {
		rdma_arm(h->cq);
		h->armed = true;
	}
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
	if (n > 0)
		h->vain = 0;
	else if (sleeps && !h->sending)
		rest(h);
	for (int i = 0; i < n; i++) {
		rdma_check(&wc[i]);
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
