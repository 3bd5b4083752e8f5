/* The limit of one-sided transfers: RDMA WRITEs that a C program posts, as ib_write_bw and ib_write_lat do. */
#include <stdlib.h>
#include <string.h>

#include "rdma.h"
#include "put.h"

enum { INLINE = 64, POLL = 32 };

/* What the two processes tell each other. */
struct told {
	struct rdma_end end;
	uint64_t data, flag;
	uint32_t rkey, flag_rkey;
};

static struct ibv_qp *qp;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static unsigned char *own;
static struct told peer;
static int depth, outstanding;

/* Of a loop with flags: the number of the last signal of this process, and of the other one, which writes it. */
static bool flags;
static struct {
	uint64_t sent, came, seen;
} flag;
static struct ibv_mr *flag_mr;

void net_init(const struct options *o) { rdma_open(o); }

void put_open(const struct options *o, unsigned char *data, size_t size)
{
	struct told told;

	own = data;
	depth = o->depth;
	flags = o->flag;
	cq = rdma_cq(depth + 1, false);
	qp = rdma_qp(cq, (struct ibv_qp_cap){
		.max_send_wr = (uint32_t)depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = INLINE,
	});
	mr = rdma_register(data, size);
	flag_mr = rdma_register(&flag, sizeof flag);
	told = (struct told){
		.end = rdma_end(qp), .data = (uint64_t)data, .rkey = mr->rkey, .flag = (uint64_t)&flag.came, .flag_rkey = flag_mr->rkey,
	};
	meet_exchange(&told, &peer, sizeof told);
	rdma_join(qp, &peer.end);
	meet_barrier();
}

static void poll(void)
{
	struct ibv_wc wc[POLL];
	int n = ibv_poll_cq(cq, POLL, wc);

	if (n < 0)
		die("poll_cq failed");
	for (int i = 0; i < n; i++)
		rdma_check(&wc[i]);
	outstanding -= n;
	if (n == 0)
		sched_yield();
}

static void write_to(uint64_t addr, uint32_t rkey, const void *data, size_t size, uint32_t lkey)
{
	struct ibv_sge sge = {.addr = (uint64_t)data, .length = (uint32_t)size, .lkey = lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
	int err;

	if (size <= INLINE)
		wr.send_flags |= IBV_SEND_INLINE;
	while (outstanding == depth)
		poll();
	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	if ((err = ibv_post_send(qp, &wr, &bad)))
		die("post_send: %s", strerror(err));
	outstanding++;
}

void put_write(size_t offset, size_t size) { write_to(peer.data + offset, peer.rkey, own + offset, size, mr->lkey); }

void put_flush(void)
{
	while (outstanding > 0)
		poll();
}

void put_signal(size_t offset, size_t size)
{
	put_write(offset, size);
	if (!flags)
		return;
	flag.sent++;
	write_to(peer.flag, peer.flag_rkey, &flag.sent, sizeof flag.sent, flag_mr->lkey);
}

void put_wait(const uint64_t *word, uint64_t before)
{
	if (flags)
		await_word(&flag.came, flag.seen++);
	else
		await_word(word, before);
}

void put_close(void)
{
	meet_barrier();
	ibv_destroy_qp(qp);
	ibv_destroy_cq(cq);
	ibv_dereg_mr(mr);
	ibv_dereg_mr(flag_mr);
	meet_barrier();
}
