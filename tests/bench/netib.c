/*
 * The measure: the calls that NCCL's own transport over verbs makes for each message, with its
 * defaults and one queue pair. A receive posts one receive of the queue pair and writes where the
 * buffer is into the sender's queue of 256 slots. A send reads its slot there, and is one write with
 * immediate. A test polls, four completions at a time, until its request is done or nothing is
 * left. All of them look at two counters of errors first. It is called as a plugin is.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "calls.h"
#include "rdma.h"

enum { REQUESTS = 256, GROUP = 8, SEND_WR = 512, CQ = 512, POLL = 4, DEVICES = 4 };

/* One buffer of a receive, clear to be sent into. */
struct clear {
	uint64_t addr, size;
	uint32_t rkeys[DEVICES];
	uint32_t group, tag;
	_Atomic uint64_t seq;
	uint64_t unused[2];
};

_Static_assert(sizeof(struct clear) == 64, "a slot's entry is a cache line");

enum kind { FREE, SEND, RECV };

struct request {
	struct comm *comm;
	enum kind kind;
	int events; /* completions that it waits for */
	int group;
	uint64_t size;
	void *data;
	uint32_t lkey;
};

struct comm {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	_Atomic int errors; /* stays 0 too */
	struct clear (*slots)[GROUP];     /* at the sender they come here; at the receiver, what is written there */
	struct ibv_mr *slots_mr;
	uint64_t peer_slots;
	uint32_t peer_rkey;
	uint64_t next;                    /* message */
	struct request *sends[REQUESTS][GROUP]; /* of a slot */
	struct request requests[REQUESTS];
};

/* What the two processes tell each other of a connection. */
struct told {
	struct rdma_end end;
	uint64_t slots;
	uint32_t rkey;
};

static _Atomic int device_errors; /* stays 0, as nothing counts here */

static bool broken(struct comm *c)
{
	return atomic_load_explicit(&c->errors, memory_order_relaxed) || atomic_load_explicit(&device_errors, memory_order_relaxed);
}

static struct request *take(struct comm *c, enum kind kind)
{
	for (int i = 0; i < REQUESTS; i++) {
		struct request *r = &c->requests[i];

		if (r->kind != FREE)
			continue;
		*r = (struct request){.comm = c, .kind = kind, .group = 1};
		return r;
	}
	return NULL;
}

static void post(struct comm *c, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(c->qp, wr, &bad);

	if (err)
		die("post_send: %s", strerror(err));
}

/* Writes the sends of a slot. */
static void write_all(struct comm *c, const struct clear *slot, struct request **sends)
{
	int n = (int)slot[0].group;
	struct ibv_send_wr wrs[GROUP];
	struct ibv_sge sges[GROUP];
	uint64_t id = 0;

	memset(wrs, 0, (size_t)n * sizeof *wrs);
	for (int i = 0; i < n; i++) {
		struct request *r = sends[i];

		sges[i] = (struct ibv_sge){.addr = (uint64_t)r->data, .length = (uint32_t)r->size, .lkey = r->lkey};
		wrs[i].opcode = IBV_WR_RDMA_WRITE;
		wrs[i].sg_list = &sges[i];
		wrs[i].num_sge = 1;
		wrs[i].wr.rdma.remote_addr = slot[i].addr;
		wrs[i].wr.rdma.rkey = slot[i].rkeys[0];
		wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
		id |= (uint64_t)(r - c->requests) << 8 * i;
	}
	wrs[n - 1].wr_id = id;
	wrs[n - 1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wrs[n - 1].imm_data = (uint32_t)sends[0]->size;
	wrs[n - 1].send_flags = IBV_SEND_SIGNALED;
	post(c, wrs);
}

static ncclResult_t isend(void *comm, void *data, size_t size, int tag, void *mhandle, void *phandle, void **request)
{
	struct comm *c = comm;
	struct clear *slot = c->slots[c->next % REQUESTS];
	struct request **sends = c->sends[c->next % REQUESTS];
	uint64_t seq = c->next + 1;
	uint32_t n;

	(void)phandle;
	if (broken(c))
		return ncclSystemError;
	*request = NULL;
	if (atomic_load_explicit(&slot[0].seq, memory_order_acquire) != seq)
		return ncclSuccess;
	n = slot[0].group;
	for (uint32_t i = 1; i < n; i++)
		while (atomic_load_explicit(&slot[i].seq, memory_order_acquire) != seq)
			;
	for (uint32_t i = 0; i < n; i++) {
		struct request *r;

		if (sends[i] || slot[i].tag != (uint32_t)tag)
			continue;
		if (!(r = take(c, SEND)))
			die("more than %d requests", REQUESTS);
		r->size = size < slot[i].size ? size : slot[i].size;
		r->data = data;
		r->lkey = ((struct ibv_mr *)mhandle)->lkey;
		r->group = (int)n;
		r->events = 1;
		sends[i] = r;
		*request = r;
		for (uint32_t k = 0; k < n; k++)
			if (!sends[k])
				return ncclSuccess; /* the rest of the group comes */
		write_all(c, slot, sends);
		memset(slot, 0, sizeof *c->slots);
		memset(sends, 0, sizeof *c->sends);
		c->next++;
		return ncclSuccess;
	}
	return ncclSuccess;
}

/* Only groups of one are received. */
static ncclResult_t irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **phandles, void **request)
{
	struct comm *c = comm;
	uint64_t at = c->next % REQUESTS;
	struct clear *slot = c->slots[at];
	struct request *r = take(c, RECV);
	struct ibv_recv_wr recv = {0}, *bad;
	struct ibv_sge sge = {.addr = (uint64_t)slot, .length = sizeof *slot, .lkey = c->slots_mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};

	(void)phandles;
	if (broken(c) || !r || n != 1)
		return ncclSystemError;
	r->events = 1;
	recv.wr_id = (uint64_t)(r - c->requests);
	if (ibv_post_recv(c->qp, &recv, &bad))
		die("post_recv failed");
	*slot = (struct clear){
		.addr = (uint64_t)data[0], .size = sizes[0], .rkeys = {((struct ibv_mr *)mhandles[0])->rkey},
		.group = (uint32_t)n, .tag = (uint32_t)tags[0], .seq = c->next + 1,
	};
	wr.wr.rdma.remote_addr = c->peer_slots + at * sizeof *c->slots;
	wr.wr.rdma.rkey = c->peer_rkey;
	if (at == 0) { /* one in a round, so that the send queue drains */
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.wr_id = recv.wr_id;
		r->events++;
	}
	post(c, &wr);
	c->next++;
	*request = r;
	return ncclSuccess;
}

static void completed(struct comm *c, const struct ibv_wc *wc)
{
	struct request *r = &c->requests[wc->wr_id & 0xff];

	rdma_check(wc);
	if (r->kind == SEND) {
		for (int i = 0, n = r->group; i < n; i++)
			c->requests[wc->wr_id >> 8 * i & 0xff].events--;
		return;
	}
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		r->size = wc->imm_data;
	r->events--;
}

static ncclResult_t test(void *request, int *done, int *sizes)
{
	struct request *r = request;
	struct comm *c = r->comm;

	*done = 0;
	for (;;) {
		struct ibv_wc wc[POLL];
		int n;

		if (broken(c))
			return ncclSystemError;
		if (r->events == 0) {
			*done = 1;
			if (sizes)
				*sizes = (int)r->size;
			r->kind = FREE;
			return ncclSuccess;
		}
		n = ibv_poll_cq(c->cq, POLL, wc);
		if (n < 0)
			return ncclSystemError;
		if (n == 0)
			return ncclSuccess;
		for (int i = 0; i < n; i++)
			completed(c, &wc[i]);
	}
}

static ncclResult_t reg_mr(void *comm, void *data, size_t size, int type, void **mhandle)
{
	(void)comm, (void)type;
	*mhandle = rdma_register(data, size);
	return ncclSuccess;
}

void net_init(const struct options *o)
{
	static const ncclNet_v12_t calls = {.isend = isend, .irecv = irecv, .test = test, .regMr = reg_mr};

	net = &calls;
	rdma_open(o);
}

void net_connect(struct conn *conns, int n)
{
	struct told *own = calloc((size_t)n, sizeof *own), *peer = calloc((size_t)n, sizeof *peer);

	for (int i = 0; i < n; i++) {
		struct half *h = conns[i].half = calloc(1, sizeof *h);
		struct comm *c = h->comm = calloc(1, sizeof *c);
		size_t size = REQUESTS * sizeof *c->slots;

		c->slots = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (c->slots == MAP_FAILED)
			die("no memory for the slots");
		c->slots_mr = rdma_register(c->slots, size);
		c->cq = rdma_cq(CQ, false);
		c->qp = rdma_qp(c->cq, (struct ibv_qp_cap){
			.max_send_wr = SEND_WR, .max_recv_wr = REQUESTS, .max_send_sge = 1, .max_recv_sge = 1,
		});
		own[i] = (struct told){.end = rdma_end(c->qp), .slots = (uint64_t)c->slots, .rkey = c->slots_mr->rkey};
	}
	meet_exchange(own, peer, (size_t)n * sizeof *own);
	for (int i = 0; i < n; i++) {
		struct comm *c = ((struct half *)conns[i].half)->comm;

		rdma_join(c->qp, &peer[i].end);
		c->peer_slots = peer[i].slots;
		c->peer_rkey = peer[i].rkey;
	}
	meet_barrier();
	free(own);
	free(peer);
}

void net_close(struct conn *conns, int n)
{
	meet_barrier();
	for (int i = 0; i < n; i++) {
		struct comm *c = ((struct half *)conns[i].half)->comm;

		ibv_destroy_qp(c->qp);
		ibv_destroy_cq(c->cq);
	}
	meet_barrier();
}

size_t net_beside(void) { return sizeof(struct half) + sizeof(struct comm) + REQUESTS * GROUP * sizeof(struct clear); }
