/*
 * tree: an all-reduce up a binary tree and down again, a chunk behind the other. Every second channel
 * has another tree, in which the leaves of the first one are inner nodes, as NCCL's have.
 */
#include <string.h>

#include "collective.h"

/* The streams of a rank, those it has none of left out. Children come first: a chunk is summed up in their order. */
struct links {
	struct stream *from[2], *up, *down, *to[2]; /* from children, to the parent, from it, to children */
	int children;
};

/* parent: with the lowest bit of the rank cleared and the next one set, if there is such a rank. */
static int parent(int rank, int n)
{
	int low = rank & -rank, up = (rank & ~low) | low << 1;

	return up < n ? up : rank & ~low;
}

/* place is where a rank stands in the channel's tree, and rank_at who stands there. */
static int place(const struct comm *comm, int rank)
{
	int n = comm->job->opt.nranks;

	if (comm->index % 2 == 0)
		return rank;
	return n % 2 ? (rank + n - 1) % n : n - 1 - rank;
}

static int rank_at(const struct comm *comm, int place)
{
	int n = comm->job->opt.nranks;

	if (comm->index % 2 == 0)
		return place;
	return n % 2 ? (place + 1) % n : n - 1 - place;
}

static struct links links(struct buffers *b)
{
	struct job *job = b->comm->job;
	struct links l = {0};
	int at = 0, own = place(b->comm, job->opt.rank);

	for (int other = 1; other < job->opt.nranks; other++)
		if (parent(other, job->opt.nranks) == own) {
			l.from[l.children] = &b->streams[at++];
			l.to[l.children++] = &b->streams[at++];
		}
	if (own > 0) {
		l.up = &b->streams[at++];
		l.down = &b->streams[at++];
	}
	return l;
}

static size_t chunk_at(struct buffers *b, uint64_t index, size_t *at)
{
	return chunk_range(b, b->count, index % chunks_of(b, b->count), at);
}

/* A chunk of the repetition before must have gone down before it is summed up again. */
static bool passed_on(struct buffers *b, const struct links *l, uint64_t index)
{
	uint64_t chunks = chunks_of(b, b->count);

	for (int i = 0; i < l->children; i++)
		if (index >= chunks && l->to[i]->posted <= index - chunks)
			return false;
	return true;
}

static bool up_received(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	struct links l = links(b);
	size_t at, words = chunk_at(b, index, &at);

	if (s != l.from[0] && l.from[0]->finished <= index)
		return false;
	if (!passed_on(b, &l, index))
		return false;
	if (s == l.from[0])
		memcpy(b->out + at, b->in + at, words * 8);
	chunk_take(s, index, m, b->out + at, words, true);
	return true;
}

static bool up_send(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	struct links l = links(b);
	size_t at, words = chunk_at(b, index, &at);

	if (l.children && l.from[l.children - 1]->finished <= index)
		return false;
	chunk_send(s, index, m, (l.children ? b->out : b->in) + at, words);
	return true;
}

static bool down_received(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	size_t at, words = chunk_at(b, index, &at);

	chunk_take(s, index, m, b->out + at, words, false);
	return true;
}

static bool down_send(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	struct links l = links(b);
	size_t at, words = chunk_at(b, index, &at);
	const struct stream *source = l.down ? l.down : l.from[l.children - 1];

	if (source->finished <= index)
		return false;
	chunk_send(s, index, m, b->out + at, words);
	return true;
}

static bool sent(struct stream *s, uint64_t index, struct message *m)
{
	(void)s, (void)index, (void)m;
	return true;
}

static void tree_start(struct buffers *b)
{
	struct job *job = b->comm->job;
	int n = job->opt.nranks, own = place(b->comm, job->opt.rank), up = rank_at(b->comm, parent(own, n));

	b->nstreams = 0;
	for (int other = 1; other < n; other++)
		if (parent(other, n) == own) {
			int child = rank_at(b->comm, other);

			b->streams[b->nstreams++] = (struct stream){
				.conn = &b->comm->recv[child], .prepare = chunk_recv, .finish = up_received,
			};
			b->streams[b->nstreams++] = (struct stream){
				.conn = &b->comm->send[child], .prepare = down_send, .finish = sent,
			};
		}
	if (own > 0) {
		b->streams[b->nstreams++] = (struct stream){
			.conn = &b->comm->send[up], .prepare = up_send, .finish = sent,
		};
		b->streams[b->nstreams++] = (struct stream){
			.conn = &b->comm->recv[up], .prepare = chunk_recv, .finish = down_received,
		};
	}
	for (int i = 0; i < b->nstreams; i++) {
		b->streams[i].total = chunks_of(b, b->count) * (uint64_t)b->repeat;
		b->streams[i].depth = job->opt.depth;
		b->streams[i].owner = b;
	}
	if (n == 1)
		memcpy(b->out, b->in, b->count * 8);
}

const struct collective tree = {
	.name = "tree", .redop = "sum", .count = identity_count, .size = vector_size, .in_words = one_block,
	.out_words = one_block, .fill = vector_fill, .start = tree_start, .check = sum_check,
	.time_share = one, .bus_factor = allreduce_bus,
};
