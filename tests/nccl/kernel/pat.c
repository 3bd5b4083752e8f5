// PAT, of NCCL 2.23 and later: all-gather and reduce-scatter over connections to the ranks at distances of powers of two.
//
// A chunk goes by the distance of the rank whose it is; 0 is one's own. The parent of a distance is what is left without its
// lowest bit, and that bit is the hop between the two: what is at a distance here is at its parent's, or its child's, there.
// All-gather gives what is held at a parent to the rank for which it is at the child; reduce-scatter takes what another rank
// has at the child and adds it to what is held at the parent. A chunk lies in the slot of its connection until its last use.
//
// Chunks that take the same hop one after another are a round: distances with a stride. Some of a round share a slot where
// they are small, and more are under way at once, as many as a connection has slots. Both ends of a connection, and who
// drives the network, count the same slots: those that hold no rank's chunk are left out by all.
#include "kernel.h"
#include "../gpu/gpu.h"

static int low(int distance) {
	return distance & -distance;
}

// mirrored is i with its bits turned over and read backwards.
static int mirrored(int i, int count) {
	int m = 0;
	for (; count > 1; count >>= 1, i >>= 1) m = m << 1 | !(i & 1);
	return m;
}

// nth is a distance of a round. A reduce-scatter begins where most children are, and ends with the nearest.
static int nth(const struct pat *p, int base, int stride, int i) {
	return base + stride * (p->reduces ? mirrored(i, p->whole / stride) : i);
}

static void first_round(struct pat *p) {
	p->base = p->reduces ? p->near - 1 : p->whole / 2;
	p->stride = p->reduces ? p->near : p->whole;
	p->leaves = p->reduces;
}

// gather_round goes on from the farthest parents to the near ones, and among these down each branch before the next. false
// after the last.
static bool gather_round(struct pat *p) {
	if (p->leaves) {
		if (p->base == 1) return false;
		p->leaves = false;
		p->base--;
		p->base -= low(p->base) / 2;
	} else if (p->base % 2) {
		p->leaves = true;
	} else if (p->base >= p->near) {
		p->stride = p->base;
		p->base /= 2;
	} else {
		p->base += low(p->base) / 2;
	}
	return true;
}

// reduce_round goes on from the near to the far: before a far round is added to its parents, it gets its last children.
static bool reduce_round(struct pat *p) {
	if (p->leaves) {
		p->leaves = false;
		if (p->base > 1 || p->near == p->whole) return true;
		p->base = p->near + 1;
		p->stride = 2 * p->near;
	} else if (p->base == 1) {
		return false;
	} else if (p->stride == p->near) {
		p->base--;
		p->leaves = p->base % 2;
	} else if (p->base % 2) {
		p->base--;
	} else if (p->stride == p->whole) {
		p->base = 1;
	} else {
		p->base = 2 * p->base + 1;
		p->stride *= 2;
	}
	return true;
}

// place_of is where the chunk at a distance lies. last: the slot is done with when its last chunk is.
static struct place place_of(const struct strand *s, int distance, bool last, size_t n) {
	const struct pat *p = &s->coll.pat;
	if (!distance) return (struct place){.end = -1};
	int base = distance % p->near, stride = p->near;
	if (!base) {
		base = low(distance);
		stride = 2 * base;
	}
	int count = p->whole / stride, i = distance / stride;
	if (p->reduces) i = mirrored(i, count);
	int slot = i / p->shared, empty = 0;
	for (int k = 1; p->reduces && k <= slot; k++)
		if (nth(p, base, stride, k * p->shared - 1) >= s->comm->ranks) empty++; // the nearest of its slot
	bool ends = (i + 1) % p->shared == 0 || i + 1 == count || (!p->reduces && distance + stride >= s->comm->ranks);
	return (struct place){
		.end = __builtin_ctz((unsigned)distance),
		.ahead = last ? 0 : (uint64_t)(slot - empty), // the slots before have been posted by then
		.offset = (size_t)(i % p->shared) * n,
		.post = last && ends,
	};
}

// step is the move for a distance of the round, if there is one.
static bool step(const struct strand *s, struct move *m, int distance) {
	const struct pat *p = &s->coll.pat;
	int ranks = s->comm->ranks, hop = low(distance), held = p->leaves ? distance : distance - hop;
	int passed = p->leaves || distance >= ranks ? 0 : distance;
	bool last = p->leaves || hop == 1;
	if (held >= ranks || (!passed && !last && !p->reduces)) return false;
	size_t at = s->coll.offset + s->coll.at, n = least(s->coll.chunk, s->coll.n - s->coll.at);
	size_t theirs = at + (size_t)((s->comm->rank + held) % ranks) * s->coll.count;
	struct place own = place_of(s, held, last, n), other = place_of(s, passed, true, n);
	*m = (struct move){.n = (ssize_t)n, .in = p->reduces ? other : own, .out = p->reduces ? own : other};
	if (p->reduces) {
		m->from = s->coll.work.send + theirs * s->element;
		if (!held) m->to = s->coll.work.recv + at * s->element;
	} else {
		m->to = s->coll.work.recv + theirs * s->element;
		if (!held) m->from = s->coll.work.send + at * s->element;
	}
	return true;
}

static bool next(struct strand *s, struct move *m) {
	struct pat *p = &s->coll.pat;
	while (s->coll.at < s->coll.n) {
		bool some = step(s, m, nth(p, p->base, p->stride, p->at));
		if (++p->at == p->whole / p->stride) {
			p->at = 0;
			if (!(p->reduces ? reduce_round : gather_round)(p)) {
				first_round(p);
				s->coll.at += s->coll.chunk;
			}
		}
		if (some) return true;
	}
	return false;
}

static char *slot(const struct end *e, const struct place *p, size_t element) {
	const struct connection *c = e->connection;
	return c->buffers[SIMPLE] + (e->step + p->ahead) % STEPS * (size_t)c->step_size + p->offset * element;
}

// fresh says whether nothing has been put there yet, and notes it.
static bool fresh(uint64_t *filled, uint64_t until) {
	if (*filled >= until) return false;
	*filled = until;
	return true;
}

static void transfer(struct strand *s, struct end *in, struct end *out) {
	const struct move *m = &s->move;
	size_t n = (size_t)m->n, size = n * s->element;
	char *given = out ? slot(out, &m->out, s->element) : NULL;
	const char *taken = in ? slot(in, &m->in, s->element) : m->from;
	if (!s->coll.pat.reduces) {
		char *to[] = {m->to, given};
		combine(&s->reduction, to, given ? 2 : 1, &taken, 1, n, false, false);
		return;
	}
	char *sum = given ? given : m->to;
	bool begins = given ? fresh(&out->filled, (out->step + m->out.ahead) * (uint64_t)out->connection->step_size + m->out.offset * s->element + size)
			    : fresh(&s->coll.pat.kept, (uint64_t)(uintptr_t)sum + size);
	const char *from[] = {begins ? m->from : sum, taken};
	combine(&s->reduction, &sum, 1, from, in ? 2 : 1, n, false, false);
}

static enum progress advance(struct strand *s) {
	const struct move *m = &s->move;
	struct end *in = m->in.end < 0 ? NULL : &s->in[m->in.end], *out = m->out.end < 0 ? NULL : &s->out[m->out.end];
	if (in && load(in->connection->tail) < in->step + m->in.ahead + 1) return IDLE;
	if (out && load(out->connection->head) + STEPS < out->step + m->out.ahead + 1) return IDLE;
	transfer(s, in, out);
	if (out && m->out.post) {
		struct slot *told = slot_of(out->connection, out->step);
		if (told) __atomic_store_n(&told->size, (ssize_t)((m->out.offset + (size_t)m->n) * s->element), __ATOMIC_RELAXED);
		store(out->connection->tail, ++out->step);
	}
	if (in && m->in.post) store(in->connection->head, ++in->step);
	return FINISHED;
}

int pat_strand(struct strand *s, bool reduces) {
	int ranks = s->comm->ranks, rank = s->comm->rank, under_way = 1;
	struct pat p = {.reduces = reduces, .whole = 1, .shared = 1};
	while (p.whole < ranks) p.whole *= 2;
	if (p.whole > 1 << FAN) gpu_panic("PAT of more than %d ranks is not emulated", 1 << FAN);
	while (p.shared < ranks / 2 && 2 * (size_t)p.shared * s->coll.n <= s->coll.chunk) p.shared *= 2;
	for (int slots = STEPS; slots > 1 && under_way * p.shared < ranks / 2; slots /= 2) under_way *= 2;
	p.near = p.whole / (p.shared * under_way);
	first_round(&p);
	s->coll.pat = p;
	s->next = next;
	s->advance = advance;
	for (int hop = 1; hop < ranks; hop *= 2) {
		int up = (rank + hop) % ranks, down = (rank + ranks - hop) % ranks;
		strand_from(s, reduces ? down : up, 0);
		strand_to(s, reduces ? up : down, 0);
	}
	return 1;
}
