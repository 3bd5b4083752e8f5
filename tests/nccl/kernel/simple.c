// The protocol Simple: a slot is filled, then the step that tells of it is written.
#include <string.h>
#include "kernel.h"

// ready says whether every peer of the move has filled its slots, or has free ones.
static bool ready(const struct strand *s) {
	uint64_t steps = (uint64_t)s->steps;
	for (int i = 0; s->move.recv && i < s->ins; i++)
		if (load(s->in[i].connection->tail) < s->in[i].step + steps) return false;
	for (int i = 0; s->move.send && i < s->outs; i++)
		if (load(s->out[i].connection->head) + STEPS < s->out[i].step + steps) return false;
	return true;
}

// slot is where the data of the end's step is. The size is said to whoever drives the network.
static char *slot(const struct end *e, size_t size) {
	struct connection *c = e->connection;
	struct slot *told = slot_of(c, e->step);
	if (told) {
		__atomic_store_n(&told->size, (ssize_t)size, __ATOMIC_RELAXED);
		if (told->mode == MODE_OFFSET) return c->buffers[SIMPLE] + __atomic_load_n(&told->offset, __ATOMIC_RELAXED);
	}
	return c->buffers[SIMPLE] + e->step % STEPS * (size_t)c->step_size;
}

static void transfer(struct strand *s, size_t n) {
	const struct move *m = &s->move;
	size_t at = s->offset * s->element, size = n * s->element;
	const char *from[FAN + 1];
	char *to[FAN + 1];
	int froms = 0, tos = 0;
	if (m->from) from[froms++] = m->from + at;
	for (int i = 0; m->recv && i < s->ins; i++) from[froms++] = slot(&s->in[i], size);
	if (m->to) to[tos++] = m->to + at;
	for (int i = 0; m->send && i < s->outs; i++) to[tos++] = slot(&s->out[i], size);
	if (n) combine(&s->reduction, to, tos, from, froms, n, m->own, m->post);
}

static void post(struct strand *s) {
	for (int i = 0; s->move.recv && i < s->ins; i++) store(s->in[i].connection->head, s->in[i].step += (uint64_t)s->steps);
	for (int i = 0; s->move.send && i < s->outs; i++) store(s->out[i].connection->tail, s->out[i].step += (uint64_t)s->steps);
}

// slice_size is how a move is cut; both ends must cut alike. Empty slices are told of too.
static size_t slice_size(const struct strand *s) {
	size_t unit = 16 * (size_t)s->slices, n = (size_t)s->move.n;
	size_t even = (n + unit - 1) / unit * 16, floor = s->step_bytes / s->element * (size_t)s->steps / 32;
	return even > floor ? even : floor;
}

enum progress simple_advance(struct strand *s) {
	if (!ready(s)) return IDLE;
	size_t n = least(slice_size(s), (size_t)s->move.n - s->offset);
	transfer(s, n);
	post(s);
	s->offset += n;
	return ++s->slice < s->slices ? MOVED : FINISHED;
}
