/* alltoall and sendrecv: every rank to every rank, itself included; sendrecv one pair at a time. */
#include <string.h>

#include "collective.h"

static uint64_t *block(struct buffers *b, const struct stream *s)
{
	return (s->conn->sending ? b->in : b->out) + b->count * (size_t)s->conn->peer;
}

/* Streams lie in the order of shifts: to the rank d after this one and from the rank d before. */
static bool pair_is_due(struct buffers *b, const struct stream *s, uint64_t round, uint64_t chunks)
{
	int last = b->nstreams - 2, at = (int)(s - b->streams) / 2 * 2, before = at ? at - 2 : last;
	uint64_t wanted = at ? (round + 1) * chunks : round * chunks;

	return b->streams[before].finished >= wanted && b->streams[before + 1].finished >= wanted;
}

static bool direct_send(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	uint64_t chunks = chunks_of(b, b->count);
	size_t at, words = chunk_range(b, b->count, index % chunks, &at);

	if (b->collective == &sendrecv && !pair_is_due(b, s, index / chunks, chunks))
		return false;
	chunk_send(s, index, m, block(b, s) + at, words);
	return true;
}

static bool direct_sent(struct stream *s, uint64_t index, struct message *m)
{
	(void)s, (void)index, (void)m;
	return true;
}

static bool direct_received(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	size_t at, words = chunk_range(b, b->count, index % chunks_of(b, b->count), &at);

	chunk_take(s, index, m, block(b, s) + at, words, false);
	return true;
}

static void direct_start(struct buffers *b)
{
	struct job *job = b->comm->job;
	int n = job->opt.nranks, rank = job->opt.rank;

	b->nstreams = 2 * n;
	for (int shift = 0; shift < n; shift++) {
		b->streams[2 * shift] = (struct stream){
			.conn = &b->comm->send[(rank + shift) % n], .prepare = direct_send, .finish = direct_sent,
		};
		b->streams[2 * shift + 1] = (struct stream){
			.conn = &b->comm->recv[(rank + n - shift) % n], .prepare = chunk_recv,
			.finish = direct_received,
		};
	}
	for (int i = 0; i < 2 * n; i++) {
		b->streams[i].total = chunks_of(b, b->count) * (uint64_t)b->repeat;
		b->streams[i].depth = job->opt.depth;
		b->streams[i].owner = b;
	}
}

static uint64_t pair_key(const struct buffers *b, int sender, int receiver)
{
	return pattern_key(b->comm->job->opt.seed, b->comm->index, sender, receiver, b->sequence);
}

static void direct_fill(struct buffers *b)
{
	struct options *o = &b->comm->job->opt;

	for (int peer = 0; peer < o->nranks; peer++)
		pattern_fill(b->in + b->count * (size_t)peer, b->count * 8, pair_key(b, o->rank, peer), 0);
}

static size_t direct_check(struct buffers *b)
{
	struct options *o = &b->comm->job->opt;
	size_t bad = 0, first;

	for (int peer = 0; peer < o->nranks; peer++)
		bad += pattern_check(b->out + b->count * (size_t)peer, b->count * 8, pair_key(b, peer, o->rank), 0,
		                     &first);
	return bad;
}

static size_t alltoall_count(int nranks, size_t size)
{
	size_t words = size / 8 / (size_t)nranks;

	return words ? words : 1;
}

static size_t alltoall_size(int nranks, size_t count)
{
	return count * 8 * (size_t)nranks;
}

static size_t pair_size(int nranks, size_t count)
{
	(void)nranks;
	return count * 8;
}

static size_t blocks(int nranks, size_t count)
{
	return count * (size_t)nranks;
}

static double alltoall_bus(int nranks)
{
	return (double)(nranks - 1) / nranks;
}

static double pair_share(int nranks)
{
	return 1.0 / nranks;
}

const struct collective alltoall = {
	.name = "alltoall", .redop = "none", .count = alltoall_count, .size = alltoall_size, .in_words = blocks,
	.out_words = blocks, .fill = direct_fill, .start = direct_start, .check = direct_check,
	.time_share = one, .bus_factor = alltoall_bus,
};

const struct collective sendrecv = {
	.name = "sendrecv", .redop = "none", .count = identity_count, .size = pair_size, .in_words = blocks,
	.out_words = blocks, .fill = direct_fill, .start = direct_start, .check = direct_check,
	.time_share = pair_share, .bus_factor = one,
};
