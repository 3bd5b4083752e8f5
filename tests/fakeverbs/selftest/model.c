/* Speed: what the fabric does on its own, and how well it keeps to what a link is said to do. Other programs may take the processors at
 * any time, so that a figure may be worse than the fabric's in any round, and better in none: rounds go on until one shows the fabric's
 * own, and what the fabric has no model for is held against the same done without it, in the same run. */
#include "selftest.h"

#include <sched.h>

static double number_of(const char *name)
{
	const char *s = getenv(name);

	return s ? atof(s) : 0;
}

/* Seconds for `count` writes of `n` bytes, `depth` of them under way. */
static double seconds(struct end *e, int count, size_t n, int depth)
{
	uint64_t start = now_ns();
	int posted = 0, done = 0;

	while (done < count) {
		struct ibv_wc wc[16];
		int got;

		for (; posted < count && posted - done < depth; posted++)
			EQUAL(post(e, IBV_WR_RDMA_WRITE, 1, 0, n, 0, IBV_SEND_SIGNALED), 0);
		got = ibv_poll_cq(e->cq, 16, wc);
		for (int i = 0; i < got; i++)
			EQUAL(wc[i].status, IBV_WC_SUCCESS);
		done += got;
	}
	return (double)(now_ns() - start) / 1e9;
}

/* Seconds to copy as much within the process. */
static double copying(struct end *e, int count, size_t n)
{
	uint64_t start = now_ns();

	for (int i = 0; i < count; i++) {
		memcpy(e->buf + n, e->buf, n);
		__asm__ volatile("" ::"r"(e->buf) : "memory");
	}
	return (double)(now_ns() - start) / 1e9;
}

/* Writes of 1 MiB on a link that has a rate, which is MODEL_RATE after it was given CHANGE: never more, and that much. Requests are all
 * posted at once, so that only the last completion may be seen late. */
static void rate(void)
{
	enum { DEPTH = 64 };
	double want = number_of("MODEL_RATE"), got = 0;
	int count = want / 1e7 < DEPTH ? (int)(want / 1e7) : DEPTH;
	struct end e;

	connect_end(&e, &(struct wish){.max_wr = DEPTH});
	if (is_a) {
		if (getenv("CHANGE"))
			fakefault("rate a:rdma0 %s", getenv("CHANGE"));
		memset(e.buf, 1, BUF);
		do {
			got = (double)count * (1 << 20) / seconds(&e, count, 1 << 20, count);
			CHECK(got <= want * 1.03, "%.4f GB/s over a link of %.3f", got / 1e9, want / 1e9);
		} while (got < want * 0.97); /* for ever is not good enough for the alarm */
		printf("rate %.4f GB/s\n", got / 1e9);
	}
	meet();
	close_end(&e);
}

/* Without a rate it is about as fast as memory. */
static void speed(void)
{
	double best = 0, memory = 0;
	struct end e;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		const int count = 128;

		memset(e.buf, 1, BUF);
		for (int round = 0; round < 3 || best < memory / 4; round++) {
			double copied = (double)count * (1 << 20) / copying(&e, count, 1 << 20);
			double got = (double)count * (1 << 20) / seconds(&e, count, 1 << 20, 8);

			best = got > best ? got : best;
			memory = copied > memory ? copied : memory;
		}
		printf("speed %.3f GB/s, of memory %.3f\n", best / 1e9, memory / 1e9);
	}
	meet();
	close_end(&e);
}

/* A processor for each side, where there are two: the figures are those of two. */
static void part(void)
{
	cpu_set_t all, one;
	int skip = !is_a;

	EQUAL(sched_getaffinity(0, sizeof(all), &all), 0);
	for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&all) > 1; i++)
		if (CPU_ISSET(i, &all) && skip-- == 0) {
			CPU_ZERO(&one);
			CPU_SET(i, &one);
			EQUAL(sched_setaffinity(0, sizeof(one), &one), 0);
		}
}

/* One way of an 8-byte write, in seconds: half a round between two processes that poll memory. */
static double bounce(struct end *e, uint64_t r)
{
	volatile uint64_t *in = (uint64_t *)(e->buf + 64), *out = (uint64_t *)e->buf;
	uint64_t start = now_ns();
	struct ibv_wc wc;

	for (int turn = 0; turn < 2; turn++)
		if ((turn == 0) == is_a) {
			*out = r;
			EQUAL(post(e, IBV_WR_RDMA_WRITE, 0, 0, 8, 64, IBV_SEND_SIGNALED), 0);
		} else {
			while (*in != r)
				ibv_poll_cq(e->cq, 1, &wc);
		}
	ibv_poll_cq(e->cq, 1, &wc);
	return (double)(now_ns() - start) / 2e9;
}

/* The same through a socket. */
static double bounce_socket(void)
{
	uint64_t start = now_ns();
	char c = 'x';

	if (is_a)
		tell(&c, 1);
	hear(&c, 1);
	if (!is_a)
		tell(&c, 1);
	return (double)(now_ns() - start) / 2e9;
}

/* Both sides are told whether a has seen enough. */
static bool enough(bool seen)
{
	if (is_a)
		tell(&seen, sizeof(seen));
	else
		hear(&seen, sizeof(seen));
	return seen;
}

/* A link's latency is MODEL_LATENCY: never less, and that much. */
static void latency(void)
{
	double want = number_of("MODEL_LATENCY"), best = 1;
	uint64_t r = 0;
	struct end e;

	part();
	connect_end(&e, &(struct wish){0});
	do {
		for (int i = 0; i < 50; i++) {
			double got = bounce(&e, ++r);

			CHECK(got > want * 0.9 || !is_a, "%.2f us over a link of %.2f", got * 1e6, want * 1e6);
			best = got < best ? got : best;
		}
	} while (!enough(best < want * 1.1));
	if (is_a)
		printf("latency %.2f us, in %llu rounds\n", best * 1e6, (unsigned long long)r);
	meet();
	close_end(&e);
}

/* Without one it takes no longer than a byte through a socket. */
static void quickness(void)
{
	double best = 1, socket = 1;
	uint64_t r = 0;
	struct end e;

	part();
	connect_end(&e, &(struct wish){0});
	do {
		for (int i = 0; i < 500; i++) {
			double got = bounce(&e, ++r), other = bounce_socket();

			best = got < best ? got : best;
			socket = other < socket ? other : socket;
		}
	} while (!enough(r >= 1000 && best < socket));
	if (is_a)
		printf("quickness %.2f us, of a socket %.2f\n", best * 1e6, socket * 1e6);
	meet();
	close_end(&e);
}

/* A large write on one queue pair does not hold a small one on another up until it is through. */
static void fair(void)
{
	struct end big, small;

	connect_end(&big, &(struct wish){0});
	connect_end(&small, &(struct wish){0});
	for (int held = is_a; held;) {
		struct ibv_wc wc;

		EQUAL(post(&big, IBV_WR_RDMA_WRITE, 1, 0, 2 << 20, 0, IBV_SEND_SIGNALED), 0);
		EQUAL(post(&small, IBV_WR_RDMA_WRITE, 2, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		want_wc(&small, 2, IBV_WC_SUCCESS);
		held = ibv_poll_cq(big.cq, 1, &wc); /* or only seen late */
		if (!held)
			want_wc(&big, 1, IBV_WC_SUCCESS);
	}
	meet();
	close_end(&big);
	close_end(&small);
}

/* Two writes, of which one call moves all but the end. */
static void post_two(struct end *e)
{
	struct ibv_sge s = {.addr = (uint64_t)e->buf, .length = 5 << 19, .lkey = e->mr->lkey};
	struct ibv_send_wr *bad, second = {
		.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED, .sg_list = &s, .num_sge = 1,
		.wr.rdma = {.remote_addr = e->peer.addr, .rkey = e->peer.rkey},
	}, first = second;

	first.wr_id = 1;
	first.opcode = IBV_WR_RDMA_WRITE;
	first.next = &second;
	EQUAL(ibv_post_send(e->qp, &first, &bad), 0);
}

/* A receive of what the other side sent, and does not look after. */
static void want_unseen(struct end *e, uint64_t id)
{
	uint64_t limit = now_ns() + 60000000000u; /* no measure: other programs take the processors */
	struct ibv_wc wc;

	while (ibv_poll_cq(e->cq, 1, &wc) == 0)
		CHECK(now_ns() < limit, "receive %llu has not come: what a program posts that does not poll stays where it is", (unsigned long long)id);
	CHECK(wc.wr_id == id && wc.status == IBV_WC_SUCCESS, "got id %llu %s", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
}

/* Requests go on though their program does not poll. While the fabric moves the last of a large one, the program may get a small one
 * through that waited for the peer, by posting another behind it: neither wants a look then, and the next ones do. */
static void unseen(void)
{
	enum { ROUNDS = 1500, DELAYS = 250, STEP = 10 /* us */ };
	struct end big, small;

	connect_end(&big, &(struct wish){0});
	connect_end(&small, &(struct wish){.max_wr = ROUNDS}); /* of b's, which asks for no completion, none is reclaimed */
	for (uint64_t r = 1; r <= ROUNDS; r++) {
		volatile uint64_t *ready = (uint64_t *)small.buf;

		if (is_a) {
			meet();
			post_two(&big);
			EQUAL(post(&small, IBV_WR_SEND, 1, 8, 8, 0, IBV_SEND_SIGNALED), 0);
			while (*ready != r)
				;
			EQUAL(post(&small, IBV_WR_SEND, 2, 8, 8, 0, IBV_SEND_SIGNALED), 0);
			meet();
			for (uint64_t id = 1; id <= 2; id++) {
				want_wc(&big, id, IBV_WC_SUCCESS);
				want_wc(&small, id, IBV_WC_SUCCESS);
			}
		} else {
			EQUAL(post_recv(&big, 3, 0, 0), 0);
			meet();
			usleep(r % DELAYS * STEP); /* with a processor for the fabric's thread, where there are two */
			EQUAL(post_recv(&small, 1, 8, 8), 0);
			EQUAL(post_recv(&small, 2, 8, 8), 0);
			*ready = r;
			EQUAL(post(&small, IBV_WR_RDMA_WRITE, 4, 0, 8, 0, 0), 0);
			usleep(500);
			want_unseen(&small, 1);
			want_unseen(&small, 2);
			want_unseen(&big, 3);
			meet();
		}
	}
	meet();
	close_end(&big);
	close_end(&small);
}

const struct test model_tests[] = {
	{"rate", rate}, {"speed", speed}, {"latency", latency}, {"quickness", quickness}, {"fair", fair}, {"unseen", unseen}, {NULL, NULL},
};
