/*
 * doubling: an all-gather in which ranks ..., 4, 2, 1 apart exchange: what goes far is a block, and
 * what goes near is half of all.
 */
#include <string.h>

#include "collective.h"

static int steps(int n)
{
	int k = 0;

	while (1 << k < n)
		k++;
	return k;
}

/* Streams lie in pairs, the farthest first. */
static int distance(const struct buffers *b, const struct stream *s)
{
	return 1 << (steps(b->comm->job->opt.nranks) - 1 - (int)(s - b->streams) / 2);
}

/* How many blocks go over a distance: those an odd multiple of it away. */
static uint64_t blocks_over(int n, int distance)
{
	return (uint64_t)((n - 1 - distance) / (2 * distance) + 1);
}

struct block {
	size_t at, words;
	uint64_t round;
};

static struct block block(struct buffers *b, const struct stream *s, uint64_t index)
{
	int n = b->comm->job->opt.nranks, rank = b->comm->job->opt.rank, d = distance(b, s);
	uint64_t chunks = chunks_of(b, b->count), per_round = chunks * blocks_over(n, d), in_round = index % per_round;
	int which = (rank + (s->conn->sending ? 0 : d) + 2 * d * (int)(in_round / chunks)) % n;
	struct block p = {.round = index / per_round};

	p.words = chunk_range(b, b->count, in_round % chunks, &p.at);
	p.at += b->count * (size_t)which;
	return p;
}

static bool doubling_send(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	struct block p = block(b, s, index);

	/* What farther ranks have sent goes on with it. */
	for (const struct stream *r = b->streams + 1; r < s; r += 2)
		if (r->finished < (p.round + 1) * (r->total / (uint64_t)b->repeat))
			return false;
	chunk_send(s, index, m, b->out + p.at, p.words);
	return true;
}

static bool doubling_sent(struct stream *s, uint64_t index, struct message *m)
{
	(void)s, (void)index, (void)m;
	return true;
}

static bool doubling_received(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	struct block p = block(b, s, index);

	chunk_take(s, index, m, b->out + p.at, p.words, false);
	return true;
}

static void doubling_start(struct buffers *b)
{
	struct job *job = b->comm->job;
	int n = job->opt.nranks, rank = job->opt.rank;

	b->nstreams = 2 * steps(n);
	for (int i = 0; i < b->nstreams; i += 2) {
		int d = 1 << (steps(n) - 1 - i / 2);

		b->streams[i] = (struct stream){
			.conn = &b->comm->send[(rank + n - d) % n], .prepare = doubling_send, .finish = doubling_sent,
		};
		b->streams[i + 1] = (struct stream){
			.conn = &b->comm->recv[(rank + d) % n], .prepare = chunk_recv, .finish = doubling_received,
		};
		for (int k = i; k < i + 2; k++) {
			b->streams[k].total = chunks_of(b, b->count) * blocks_over(n, d) * (uint64_t)b->repeat;
			b->streams[k].depth = job->opt.depth;
			b->streams[k].owner = b;
		}
	}
	memcpy(b->out + b->count * (size_t)rank, b->in, b->count * 8);
}

const struct collective doubling = {
	.name = "doubling", .redop = "none", .count = block_count, .size = blocks_size, .in_words = one_block,
	.out_words = all_blocks, .fill = vector_fill, .start = doubling_start, .check = gather_check,
	.time_share = one, .bus_factor = allgather_bus,
};
