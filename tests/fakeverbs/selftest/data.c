/* Moving bytes: every operation, with the data looked at. */
#include "selftest.h"

static const size_t sizes[] = {0, 1, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025, 65536, 1048575, 1048577, 2500000};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)((i * 131 + seed * 29 + (i >> 9)) ^ seed);
}

static void same(const unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		CHECK(p[i] == (unsigned char)((i * 131 + seed * 29 + (i >> 9)) ^ seed), "byte %zu of %zu", i, n);
}

static void sends(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	for (unsigned i = 0; i < SIZES; i++) {
		if (is_a) {
			fill(e.buf + 5, sizes[i], i);
			meet();
			EQUAL(post(&e, i % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, i, 5, sizes[i], 0, IBV_SEND_SIGNALED), 0);
			want_wc(&e, i, IBV_WC_SUCCESS);
		} else {
			struct ibv_wc wc;

			memset(e.buf, 0xee, sizes[i] + 16);
			EQUAL(post_recv(&e, 100 + i, 3, sizes[i] + 5), 0);
			meet();
			wc = next_wc(&e);
			EQUAL(wc.wr_id, 100 + i);
			EQUAL(wc.status, IBV_WC_SUCCESS);
			EQUAL(wc.opcode, IBV_WC_RECV);
			EQUAL(wc.byte_len, sizes[i]);
			EQUAL(wc.wc_flags & IBV_WC_WITH_IMM, i % 2 ? IBV_WC_WITH_IMM : 0);
			if (i % 2)
				EQUAL(wc.imm_data, 0x01020304);
			same(e.buf + 3, sizes[i], i);
			EQUAL(e.buf[2], 0xee);
			EQUAL(e.buf[3 + sizes[i]], 0xee);
		}
	}
	meet();
	close_end(&e);
}

static void writes(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	for (unsigned i = 0; i < SIZES; i++) {
		if (is_a) {
			fill(e.buf + 5, sizes[i], i);
			meet();
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, i, 5, sizes[i], 1, 0), 0);
			EQUAL(post(&e, IBV_WR_RDMA_WRITE_WITH_IMM, 50 + i, 0, 0, 0, IBV_SEND_SIGNALED), 0);
			want_wc(&e, 50 + i, IBV_WC_SUCCESS); /* the write before it was not signalled */
		} else {
			struct ibv_wc wc;

			memset(e.buf, 0xee, sizes[i] + 16);
			EQUAL(post_recv(&e, 100 + i, 0, 0), 0);
			meet();
			wc = next_wc(&e);
			EQUAL(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
			EQUAL(wc.imm_data, 0x01020304);
			EQUAL(wc.byte_len, 0);
			same(e.buf + 1, sizes[i], i);
			EQUAL(e.buf[0], 0xee);
			EQUAL(e.buf[1 + sizes[i]], 0xee);
		}
	}
	meet();
	close_end(&e);
}

static void reads(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	for (unsigned i = 0; i < SIZES; i++) {
		if (!is_a)
			fill(e.buf + 3, sizes[i], i);
		meet();
		if (is_a) {
			struct ibv_wc wc;

			memset(e.buf, 0xee, sizes[i] + 16);
			EQUAL(post(&e, IBV_WR_RDMA_READ, i, 1, sizes[i], 3, IBV_SEND_SIGNALED), 0);
			wc = next_wc(&e);
			EQUAL(wc.status, IBV_WC_SUCCESS);
			EQUAL(wc.opcode, IBV_WC_RDMA_READ);
			EQUAL(wc.byte_len, sizes[i]);
			same(e.buf + 1, sizes[i], i);
			EQUAL(e.buf[0], 0xee);
			EQUAL(e.buf[1 + sizes[i]], 0xee);
		}
		meet();
	}
	close_end(&e);
}

/* Lists on both sides whose pieces do not match, inline data that is gone after the post, and a chain. */
static void lists(void)
{
	struct end e;

	connect_end(&e, &(struct wish){.inline_data = 200});
	if (is_a) {
		struct ibv_sge s[4], one;
		struct ibv_send_wr *bad, second = {
			.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .sg_list = &one, .num_sge = 1,
		}, first = {.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = s, .num_sge = 4, .next = &second};
		char note[100];

		fill(e.buf, 4000, 1);
		s[0] = (struct ibv_sge){(uint64_t)e.buf, 1000, e.mr->lkey};
		s[1] = (struct ibv_sge){(uint64_t)e.buf + 1000, 0, e.mr->lkey};
		s[2] = (struct ibv_sge){(uint64_t)e.buf + 1000, 1, e.mr->lkey};
		s[3] = (struct ibv_sge){(uint64_t)e.buf + 1001, 2999, e.mr->lkey};
		memset(note, 'n', sizeof(note));
		one = (struct ibv_sge){(uint64_t)note, sizeof(note), 0}; /* inline data needs no key */
		meet();
		EQUAL(ibv_post_send(e.qp, &first, &bad), 0);
		memset(note, 'x', sizeof(note));
		want_wc(&e, 2, IBV_WC_SUCCESS);
		one.length = 201;
		EQUAL(ibv_post_send(e.qp, &second, &bad), EINVAL);
		CHECK(bad == &second);
	} else {
		struct ibv_sge s[3] = {
			{(uint64_t)e.buf, 3, e.mr->lkey}, {(uint64_t)e.buf + 10, 1500, e.mr->lkey}, {(uint64_t)e.buf + 5000, 4000, e.mr->lkey},
		};
		struct ibv_recv_wr *bad, second = {.wr_id = 2, .sg_list = s, .num_sge = 3}, first = second;
		unsigned char whole[4000];

		first.wr_id = 1;
		first.next = &second;
		EQUAL(ibv_post_recv(e.qp, &first, &bad), 0);
		meet();
		EQUAL(next_wc(&e).byte_len, 4000);
		want_wc(&e, 2, IBV_WC_SUCCESS);
		memcpy(whole + 103, e.buf + 10 + 100, 1400); /* what the second did not overwrite */
		memcpy(whole + 1503, e.buf + 5000, 2497);
		for (int i = 103; i < 4000; i++)
			CHECK(whole[i] == (unsigned char)(((size_t)i * 131 + 29 + ((size_t)i >> 9)) ^ 1), "byte %d", i);
		for (int i = 0; i < 100; i++)
			EQUAL(e.buf[i < 3 ? i : i + 7], 'n');
	}
	meet();
	close_end(&e);
}

/* The send queue has the depth asked for, and room comes back with completions that were polled, as in a real one. */
static void depth(void)
{
	struct end e;

	connect_end(&e, &(struct wish){.max_wr = 4});
	if (is_a) {
		for (int round = 0; round < 5; round++) {
			for (int i = 0; i < 4; i++)
				EQUAL(post(&e, IBV_WR_RDMA_WRITE, 10 + i, 0, 8, 0, i == 2 ? IBV_SEND_SIGNALED : 0), 0);
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, 20, 0, 8, 0, 0), ENOMEM);
			want_wc(&e, 12, IBV_WC_SUCCESS); /* room for three */
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, 21, 0, 8, 0, 0), 0);
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, 22, 0, 8, 0, 0), 0);
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, 23, 0, 8, 0, IBV_SEND_SIGNALED), 0);
			EQUAL(post(&e, IBV_WR_RDMA_WRITE, 24, 0, 8, 0, 0), ENOMEM);
			want_wc(&e, 23, IBV_WC_SUCCESS);
		}
	} else {
		for (int i = 0; i < 4; i++)
			EQUAL(post_recv(&e, 1, 0, 8), 0);
		EQUAL(post_recv(&e, 1, 0, 8), ENOMEM);
	}
	meet();
	close_end(&e);
}

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

/* A process that is connected to itself, on one device. */
static void self(void)
{
	struct end e;
	struct wish w = {0};

	make_end(&e, &w);
	swap(&e);
	e.peer = e.self;
	EQUAL(to_init(&e, ALL), 0);
	EQUAL(to_rtr(&e, &w), 0);
	EQUAL(to_rts(&e, &w), 0);
	fill(e.buf, 100000, 9);
	EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 100000, 200000, IBV_SEND_SIGNALED), 0);
	want_wc(&e, 1, IBV_WC_SUCCESS);
	same(e.buf + 200000, 100000, 9);
	meet();
	close_end(&e);
}

const struct test data_tests[] = {
	{"sends", sends}, {"writes", writes}, {"reads", reads}, {"lists", lists}, {"depth", depth}, {"order", order}, {"self", self}, {NULL, NULL},
};
