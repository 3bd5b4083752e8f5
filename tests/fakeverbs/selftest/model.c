/* Speed: what the fabric does on its own, and how well it keeps to what a link is said to do. The best of several rounds counts, since
 * other programs may take the processors at any time. */
#include "selftest.h"

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

/* Bytes a second with writes of 1 MiB; MODEL_RATE says what the link has, FLOOR what it must at least have. */
static void rate(void)
{
	double want = number_of("MODEL_RATE"), floor = number_of("FLOOR"), best = 0, off = 1;
	struct end e;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		memset(e.buf, 1, BUF);
		for (int round = 0; round < 20 && (want ? off > 0.03 : best < floor || round < 3); round++) {
			int count = want ? (int)(want / (1 << 20) / 10) + 8 : 512;
			double got = (double)count * (1 << 20) / seconds(&e, count, 1 << 20, 8);

			if (got > best)
				best = got;
			if (want && (got > want ? got - want : want - got) / want < off)
				off = (got > want ? got - want : want - got) / want;
		}
		printf("rate %.3f GB/s", best / 1e9);
		if (want)
			printf(", %.2f %% off %.3f", off * 100, want / 1e9);
		putchar('\n');
		CHECK(!want || off <= 0.03, "%.1f %% off", off * 100);
		CHECK(best >= floor, "%.2f GB/s, want at least %.2f", best / 1e9, floor / 1e9);
	}
	meet();
	close_end(&e);
}

/* One way of an 8-byte write, of half a round between two processes that poll memory. MODEL_LATENCY says what the link has, CEILING
 * what it may have at most, in seconds. */
static void latency(void)
{
	enum { ROUNDS = 200, TRIES = 20 };
	double want = number_of("MODEL_LATENCY"), ceiling = number_of("CEILING"), best = 1;
	struct end e;
	struct ibv_wc wc;
	volatile uint64_t *in, *out;
	uint64_t r = 0;

	connect_end(&e, &(struct wish){0});
	out = (uint64_t *)e.buf;
	in = (uint64_t *)(e.buf + 64);
	for (int try = 0; try < TRIES; try++) {
		uint64_t start = now_ns();
		double got;

		for (int i = 0; i < ROUNDS; i++) {
			r++;
			if (!is_a)
				while (*in != r)
					ibv_poll_cq(e.cq, 1, &wc);
			*out = r;
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, r, 0, 8, 64, IBV_SEND_SIGNALED), 0);
			if (is_a)
				while (*in != r)
					ibv_poll_cq(e.cq, 1, &wc);
			ibv_poll_cq(e.cq, 1, &wc);
		}
		got = (double)(now_ns() - start) / 1e9 / ROUNDS / 2;
		if (got < best)
			best = got;
		/* Both stop after the same round. */
		tell(&best, sizeof(best));
		{
			double other;

			hear(&other, sizeof(other));
			if (other < best)
				best = other;
		}
		if (want ? best < want * 1.1 : ceiling && best < ceiling && try >= 2)
			break;
	}
	if (is_a) {
		printf("latency %.2f us\n", best * 1e6);
		CHECK(!want || (best > want * 0.9 && best < want * 1.1), "%.2f us, want %.2f", best * 1e6, want * 1e6);
		CHECK(!ceiling || best < ceiling, "%.2f us, want less than %.2f", best * 1e6, ceiling * 1e6);
	}
	meet();
	close_end(&e);
}

/* A large write on one queue pair does not hold a small one on another up until it is through. */
static void fair(void)
{
	struct end big, small;

	connect_end(&big, &(struct wish){0});
	connect_end(&small, &(struct wish){0});
	if (is_a && number_of("MODEL_RATE")) {
		struct ibv_wc wc;

		EQUAL(post(&big, IBV_WR_RDMA_WRITE, 1, 0, 2 << 20, 0, IBV_SEND_SIGNALED), 0);
		EQUAL(post(&small, IBV_WR_RDMA_WRITE, 2, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		want_wc(&small, 2, IBV_WC_SUCCESS);
		EQUAL(ibv_poll_cq(big.cq, 1, &wc), 0);
		want_wc(&big, 1, IBV_WC_SUCCESS);
	}
	meet();
	close_end(&big);
	close_end(&small);
}

const struct test model_tests[] = {{"rate", rate}, {"latency", latency}, {"fair", fair}, {NULL, NULL}};
