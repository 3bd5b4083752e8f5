/* Speed: what the fabric does on its own, and how well it keeps to what a link is said to do. The best of several rounds counts, since
 * other programs may take the processors at any time. */
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

/* Bytes a second with writes of 1 MiB; MODEL_RATE says what the link has, CHANGE what it is given first, FLOOR what it must at least
 * have. */
static void rate(void)
{
	double want = number_of("MODEL_RATE"), floor = number_of("FLOOR"), best = 0, off = 1;
	struct end e;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		if (getenv("CHANGE"))
			fakefault("rate a:rdma0 %s", getenv("CHANGE"));
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

static int ascending(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* One way of an 8-byte write: half a round between two processes that poll memory; of many rounds a quick one, since on busy processors
 * most are spoilt. MODEL_LATENCY says what the link has, CEILING what it may have at most, in seconds. */
static void latency(void)
{
	enum { MAX_ROUNDS = 20000 };
	static uint64_t took[MAX_ROUNDS];
	double want = number_of("MODEL_LATENCY"), ceiling = number_of("CEILING"), got;
	int rounds = want ? (int)(0.2 / want) : MAX_ROUNDS;
	struct end e;
	struct ibv_wc wc;
	volatile uint64_t *in, *out;

	part();
	connect_end(&e, &(struct wish){0});
	out = (uint64_t *)e.buf;
	in = (uint64_t *)(e.buf + 64);
	for (int r = 0; r < rounds; r++) {
		uint64_t start = now_ns();

		for (int turn = 0; turn < 2; turn++)
			if ((turn == 0) == is_a) {
				*out = (uint64_t)r + 1;
				EQUAL(post(&e, IBV_WR_RDMA_WRITE, 0, 0, 8, 64, IBV_SEND_SIGNALED), 0);
			} else {
				while (*in != (uint64_t)r + 1)
					ibv_poll_cq(e.cq, 1, &wc);
			}
		ibv_poll_cq(e.cq, 1, &wc);
		took[r] = now_ns() - start;
	}
	qsort(took, (size_t)rounds, sizeof(took[0]), ascending);
	got = (double)took[rounds / 20] / 2e9;
	if (is_a) {
		printf("latency %.2f us\n", got * 1e6);
		CHECK(!want || (got > want * 0.9 && got < want * 1.1), "%.2f us, want %.2f", got * 1e6, want * 1e6);
		CHECK(!ceiling || got < ceiling, "%.2f us, want less than %.2f", got * 1e6, ceiling * 1e6);
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
