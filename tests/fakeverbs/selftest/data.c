/* Bytes that a process finds by polling memory. All that operations do within a process is in tests/sim/conformance. */
#include "selftest.h"

/* A peer that polls memory sees the last word of a write only when all the rest is there. */
static void order(void)
{
	static const size_t lengths[] = {16, 64, 72, 128, 4096, 200000};
	enum { ROUNDS = 3000 };
	struct end e;

	connect_end(&e, &(struct wish){0});
	for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
		size_t words = lengths[l] / 8, rounds = l < 5 ? ROUNDS : 300;
		uint64_t *w = (uint64_t *)e.buf;

		memset(e.buf, 0, lengths[l]);
		meet();
		for (uint64_t r = 1; r <= rounds; r++) {
			if (is_a) {
				for (size_t i = 0; i < words; i++)
					w[i] = r;
				EQUAL(post(&e, IBV_WR_RDMA_WRITE, r, 0, lengths[l], 0, IBV_SEND_SIGNALED), 0);
				want_wc(&e, r, IBV_WC_SUCCESS);
				if (r % 16 == 0)
					meet();
			} else {
				uint64_t seen;

				while ((seen = __atomic_load_n(&w[words - 1], __ATOMIC_ACQUIRE)) < r)
					;
				for (size_t i = 0; i < words; i++) {
					uint64_t v = __atomic_load_n(&w[i], __ATOMIC_RELAXED);

					CHECK(v >= seen, "length %zu: word %zu is %llu, the last is %llu", lengths[l], i, (unsigned long long)v,
					      (unsigned long long)seen);
				}
				if (r % 16 == 0)
					meet();
			}
		}
	}
	meet();
	close_end(&e);
}

const struct test data_tests[] = {
	{"order", order}, {NULL, NULL},
};
