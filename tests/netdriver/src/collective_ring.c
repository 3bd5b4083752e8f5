/* allreduce and allgather on a ring: what comes from the rank before goes on to the rank after. */
#include <string.h>

#include "collective.h"

/* What a step of the ring moves: a segment of the vector, and whether it is summed up. */
struct ring_step {
	int segment;
	bool add;
};

static struct ring_step ring_step(const struct buffers *b, int step, bool sending)
{
	int n = b->comm->job->opt.nranks, rank = b->comm->job->opt.rank, behind = sending ? step : step + 1;

	if (b->collective == &allgather)
		return (struct ring_step){((rank - behind) % n + n) % n, false};
	if (step < n - 1) /* reduce-scatter: rank r ends up with the sum of segment r + 1 */
		return (struct ring_step){((rank - behind) % n + n) % n, true};
	behind -= n - 1; /* all-gather of the sums */
	return (struct ring_step){((rank + 1 - behind) % n + n) % n, false};
}

static int ring_steps(const struct buffers *b)
{
	int n = b->comm->job->opt.nranks;

	return b->collective == &allgather ? n - 1 : 2 * (n - 1);
}

static size_t segment_start(const struct buffers *b, int segment)
{
	if (b->collective == &allgather)
		return b->count * (size_t)segment;
	return b->count * (size_t)segment / (size_t)b->comm->job->opt.nranks;
}

/* Every step takes as many chunks as the largest segment, so that both ends count alike. */
static uint64_t step_chunks(const struct buffers *b)
{
	size_t n = (size_t)b->comm->job->opt.nranks;

	return chunks_of(b, b->collective == &allgather ? b->count : (b->count + n - 1) / n);
}

struct place {
	uint64_t round, in_round; /* message of which repetition */
	int step;
	bool add;
	size_t at, words;
};

static struct place place(const struct stream *s, uint64_t index)
{
	struct buffers *b = s->owner;
	uint64_t chunks = step_chunks(b), per_round = chunks * (uint64_t)ring_steps(b);
	struct place p = {.round = index / per_round, .in_round = index % per_round};
	struct ring_step step;
	size_t start, at;

	p.step = (int)(p.in_round / chunks);
	step = ring_step(b, p.step, s->conn->sending);
	start = segment_start(b, step.segment);
	p.words = chunk_range(b, segment_start(b, step.segment + 1) - start, p.in_round % chunks, &at);
	p.at = start + at;
	p.add = step.add;
	return p;
}

static bool ring_send(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	struct place p = place(s, index);
	struct stream *recv = &b->streams[1];

	/* The chunk that the step before brought is what this one passes on. */
	if (p.step > 0 && recv->finished <= index - step_chunks(b))
		return false;
	chunk_send(s, index, m, (p.step || b->collective == &allgather ? b->out : b->in) + p.at, p.words);
	return true;
}

static bool ring_sent(struct stream *s, uint64_t index, struct message *m)
{
	(void)s, (void)index, (void)m;
	return true;
}

static bool ring_received(struct stream *s, uint64_t index, struct message *m)
{
	struct buffers *b = s->owner;
	struct place p = place(s, index);

	/* A repetition must not overwrite what the one before has still to send. */
	if (b->streams[0].posted < index - p.in_round)
		return false;
	if (p.add)
		memcpy(b->out + p.at, b->in + p.at, p.words * 8);
	chunk_take(s, index, m, b->out + p.at, p.words, p.add);
	return true;
}

static void ring_start(struct buffers *b)
{
	struct job *job = b->comm->job;
	int n = job->opt.nranks, rank = job->opt.rank;
	uint64_t total = step_chunks(b) * (uint64_t)ring_steps(b) * (uint64_t)b->repeat;

	b->nstreams = 2;
	b->streams[0] = (struct stream){
		.conn = &b->comm->send[(rank + 1) % n], .prepare = ring_send, .finish = ring_sent,
	};
	b->streams[1] = (struct stream){
		.conn = &b->comm->recv[(rank + n - 1) % n], .prepare = chunk_recv, .finish = ring_received,
	};
	for (int i = 0; i < 2; i++) {
		b->streams[i].total = total;
		b->streams[i].depth = job->opt.depth;
		b->streams[i].owner = b;
	}
	if (b->collective == &allgather)
		memcpy(b->out + b->count * (size_t)rank, b->in, b->count * 8);
	else if (n == 1)
		memcpy(b->out, b->in, b->count * 8);
}

static uint64_t rank_key(const struct buffers *b, int rank)
{
	return pattern_key(b->comm->job->opt.seed, b->comm->index, rank, rank, b->sequence);
}

void vector_fill(struct buffers *b)
{
	pattern_fill(b->in, b->count * 8, rank_key(b, b->comm->job->opt.rank), 0);
}

size_t sum_check(struct buffers *b)
{
	int n = b->comm->job->opt.nranks;
	uint64_t keys[n];
	size_t bad = 0;

	for (int rank = 0; rank < n; rank++)
		keys[rank] = rank_key(b, rank);
	for (size_t i = 0; i < b->count; i++) {
		uint64_t sum = 0;

		for (int rank = 0; rank < n; rank++)
			sum += pattern_word(keys[rank], i);
		bad += b->out[i] != sum;
	}
	return bad;
}

size_t gather_check(struct buffers *b)
{
	size_t bad = 0, first;

	for (int rank = 0; rank < b->comm->job->opt.nranks; rank++)
		bad += pattern_check(b->out + b->count * (size_t)rank, b->count * 8, rank_key(b, rank), 0, &first);
	return bad;
}

size_t block_count(int nranks, size_t size)
{
	size_t words = size / 8 / (size_t)nranks;

	return words ? words : 1;
}

size_t vector_size(int nranks, size_t count)
{
	(void)nranks;
	return count * 8;
}

size_t blocks_size(int nranks, size_t count)
{
	return count * 8 * (size_t)nranks;
}

size_t one_block(int nranks, size_t count)
{
	(void)nranks;
	return count;
}

size_t all_blocks(int nranks, size_t count)
{
	return count * (size_t)nranks;
}

double allreduce_bus(int nranks)
{
	return 2.0 * (nranks - 1) / nranks;
}

double allgather_bus(int nranks)
{
	return (double)(nranks - 1) / nranks;
}

const struct collective allreduce = {
	.name = "allreduce", .redop = "sum", .count = identity_count, .size = vector_size, .in_words = one_block,
	.out_words = one_block, .fill = vector_fill, .start = ring_start, .check = sum_check,
	.time_share = one, .bus_factor = allreduce_bus,
};

const struct collective allgather = {
	.name = "allgather", .redop = "none", .count = block_count, .size = blocks_size, .in_words = one_block,
	.out_words = all_blocks, .fill = vector_fill, .start = ring_start, .check = gather_check,
	.time_share = one, .bus_factor = allgather_bus,
};
