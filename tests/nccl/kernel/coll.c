// The collectives over a ring or a tree, as sequences of moves.
#include "kernel.h"
#include "../gpu/gpu.h"

// share finds which elements are this channel's: chunk at once, from offset, n in all.
static void share(struct strand *s, const struct coll_work *w, int channel) {
	static const size_t grains[PROTOCOLS] = {[LL] = 16, [SIMPLE] = 512};
	size_t grain = grains[s->protocol] / s->element;
	size_t middles = w->last > w->first ? w->last - w->first - 1u : 0;
	s->coll.count = w->count_first + middles * w->count_middle + w->count_last;
	if (channel == (int)w->first) {
		s->coll.offset = 0;
		s->coll.n = w->count_first;
		s->coll.chunk = w->grains_first * grain;
	} else if (channel == (int)w->last) {
		s->coll.offset = w->count_first + middles * w->count_middle;
		s->coll.n = w->count_last;
		s->coll.chunk = w->grains_last * grain;
	} else {
		s->coll.offset = w->count_first + (size_t)(channel - (int)w->first - 1) * w->count_middle;
		s->coll.n = w->count_middle;
		s->coll.chunk = w->grains_middle * grain;
	}
}

static const char *input(const struct strand *s, size_t element) {
	return s->coll.work.send + element * s->element;
}

static char *output(const struct strand *s, size_t element) {
	return s->coll.work.recv + element * s->element;
}

// turn goes to the next of a loop's stages, or to the first of the next loop.
static void turn(struct strand *s, int stages, size_t loop) {
	if (++s->coll.stage < stages) return;
	s->coll.stage = 0;
	s->coll.at += loop;
}

// All-reduce over a ring: each chunk is reduced once around and then passed once around.
static bool ring_all_reduce(struct strand *s, struct move *m) {
	if (s->coll.at >= s->coll.n) return false;
	int ranks = s->comm->ranks, stage = s->coll.stage;
	size_t rest = s->coll.n - s->coll.at, loop = (size_t)ranks * s->coll.chunk, chunk = s->coll.chunk;
	if (rest < loop) {
		size_t align = 16 / s->element;
		chunk = (rest + (size_t)ranks - 1) / (size_t)ranks;
		chunk = (chunk + align - 1) / align * align;
	}
	size_t first = (size_t)((s->channel->ring.index + 2 * ranks - 1 - stage) % ranks) * chunk;
	size_t at = s->coll.offset + s->coll.at + first;
	bool reduces = stage < ranks, final = stage >= ranks - 1;
	*m = (struct move){
		.from = reduces ? input(s, at) : NULL,
		.to = final ? output(s, at) : NULL,
		.n = (ssize_t)least(chunk, rest > first ? rest - first : 0),
		.recv = stage > 0,
		.send = stage < 2 * ranks - 2,
		.own = reduces,
		.post = stage == ranks - 1,
	};
	turn(s, 2 * ranks - 1, loop);
	return true;
}

static bool ring_all_gather(struct strand *s, struct move *m) {
	if (s->coll.at >= s->coll.n) return false;
	int ranks = s->comm->ranks, stage = s->coll.stage;
	size_t at = s->coll.offset + s->coll.at;
	char *to = output(s, at + (size_t)ring_rank(s, (ranks - stage) % ranks) * s->coll.count);
	const char *from = stage == 0 ? input(s, at) : NULL;
	*m = (struct move){
		.from = from,
		.to = from == to ? NULL : to, // in place
		.n = (ssize_t)least(s->coll.chunk, s->coll.n - s->coll.at),
		.recv = stage > 0,
		.send = stage < ranks - 1,
		.own = stage == 0,
	};
	turn(s, ranks, s->coll.chunk);
	return true;
}

static bool ring_reduce_scatter(struct strand *s, struct move *m) {
	if (s->coll.at >= s->coll.n) return false;
	int ranks = s->comm->ranks, stage = s->coll.stage;
	size_t at = s->coll.offset + s->coll.at;
	bool last = stage == ranks - 1;
	*m = (struct move){
		.from = input(s, at + (size_t)ring_rank(s, ranks - 1 - stage) * s->coll.count),
		.to = last ? output(s, at) : NULL,
		.n = (ssize_t)least(s->coll.chunk, s->coll.n - s->coll.at),
		.recv = stage > 0,
		.send = !last,
		.own = true,
		.post = last,
	};
	turn(s, ranks, s->coll.chunk);
	return true;
}

static bool ring_broadcast(struct strand *s, struct move *m) {
	if (s->coll.at >= s->coll.n) return false;
	size_t at = s->coll.offset + s->coll.at;
	int root = (int)s->coll.work.root;
	bool begins = ring_rank(s, 0) == root, ends = ring_rank(s, 1) == root;
	*m = (struct move){
		.from = begins ? input(s, at) : NULL,
		.to = begins && input(s, at) == output(s, at) ? NULL : output(s, at),
		.n = (ssize_t)least(s->coll.chunk, s->coll.n - s->coll.at),
		.recv = !begins,
		.send = begins || !ends,
		.own = begins,
	};
	s->coll.at += s->coll.chunk;
	return true;
}

static bool ring_reduce(struct strand *s, struct move *m) {
	if (s->coll.at >= s->coll.n) return false;
	size_t at = s->coll.offset + s->coll.at;
	int root = (int)s->coll.work.root;
	bool begins = ring_rank(s, s->comm->ranks - 1) == root, ends = s->comm->rank == root;
	*m = (struct move){
		.from = input(s, at),
		.to = ends ? output(s, at) : NULL,
		.n = (ssize_t)least(s->coll.chunk, s->coll.n - s->coll.at),
		.recv = !begins,
		.send = !ends,
		.own = true,
		.post = ends,
	};
	s->coll.at += s->coll.chunk;
	return true;
}

// All-reduce over a tree: one strand carries sums up, one brings results down; at the root they are one.
static bool tree_all_reduce(struct strand *s, struct move *m) {
	if (s->coll.at >= s->coll.n) return false;
	const struct tree *tree = &s->channel->tree;
	size_t at = s->coll.offset + s->coll.at;
	bool root = tree->up == -1, up = s->coll.up || root, down = !s->coll.up || root;
	*m = (struct move){
		.from = up ? input(s, at) : NULL,
		.to = down ? output(s, at) : NULL,
		.n = (ssize_t)least(s->coll.chunk, s->coll.n - s->coll.at),
		.recv = s->ins > 0,
		.send = s->outs > 0,
		.own = up,
		.post = root,
	};
	s->coll.at += s->coll.chunk;
	return true;
}

static int tree_strands(struct strand *s) {
	const struct tree *tree = &s->channel->tree;
	bool root = tree->up == -1;
	s[1] = s[0];
	s[0].coll.up = true;
	for (int i = 0; i < TREE_DOWN && tree->down[i] != -1; i++) {
		strand_from(&s[0], tree->down[i], 0);
		strand_to(root ? &s[0] : &s[1], tree->down[i], 0);
	}
	if (root) return 1;
	strand_to(&s[0], tree->up, 0);
	strand_from(&s[1], tree->up, 0);
	return 2;
}

// How many slices a move of Simple has, and how many steps a slice.
static void cut(const struct function *f, int *slices, int *steps) {
	bool whole = f->collective == BROADCAST || f->collective == REDUCE || f->algorithm != RING;
	*slices = whole ? 1 : 2;
	*steps = whole ? 1 : 2;
}

int coll_strands(struct strand *s, const struct function *f, const struct coll_work *w, const struct comm *comm, struct channel *channel, int number) {
	static bool (*const rings[])(struct strand *, struct move *) = {
		[ALL_GATHER] = ring_all_gather,
		[BROADCAST] = ring_broadcast,
		[ALL_REDUCE] = ring_all_reduce,
		[REDUCE] = ring_reduce,
		[REDUCE_SCATTER] = ring_reduce_scatter,
	};
	int slices, steps;
	cut(f, &slices, &steps);
	strand_init(s, comm, channel, f->protocol, slices, steps);
	s->element = type_size(f->type);
	s->reduction = (struct reduction){f->operation, f->type, w->arg};
	if (w->arg_is_pointer) s->reduction.arg = f->operation == SUM_POST_DIV ? *(uint64_t *)gpu_reach((const void *)w->arg) : type_load(f->type, (const void *)w->arg);
	s->coll.work = *w;
	share(s, w, number);
	if (f->algorithm == TREE) {
		s->next = tree_all_reduce;
		return tree_strands(s);
	}
	if (f->algorithm == PAT) return pat_strand(s, f->collective == REDUCE_SCATTER);
	s->next = rings[f->collective];
	strand_from(s, channel->ring.prev, 0);
	strand_to(s, channel->ring.next, 0);
	return 1;
}
