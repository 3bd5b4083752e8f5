// The protocol LL: lines of 16 bytes, of which half are flags that tell of the other half.
#include <string.h>
#include "kernel.h"

enum {
	DATA = 8, // bytes in a line
	LINES = 256, // at once
	CLEAN = 0x7ffffff8, // of such steps all lines are written, so that no old flag looks new
};

struct line {
	uint64_t low, high; // 4 bytes of data below, a flag above
};

static uint64_t flag(const struct end *e) {
	return (e->step + 1) << 32;
}

static struct line *lines(const struct strand *s, const struct end *e) {
	return (struct line *)gpu_reach(e->connection->buffers[LL] + e->step % STEPS * s->step_bytes);
}

static size_t line_count(const struct strand *s) {
	size_t per = DATA / s->element;
	return ((size_t)s->move.n + per - 1) / per;
}

static bool cleans(const struct end *e) {
	return (e->step & CLEAN) == CLEAN;
}

// announce waits for free slots and says how much will be in them.
static bool announce(struct strand *s) {
	for (int i = 0; s->move.send && i < s->outs; i++)
		if (load(s->out[i].connection->head) + STEPS < s->out[i].step + 1) return false;
	for (int i = 0; s->move.send && i < s->outs; i++) {
		struct end *e = &s->out[i];
		size_t size = cleans(e) ? s->step_bytes : line_count(s) * sizeof(struct line);
		struct slot *told = slot_of(e->connection, e->step);
		if (told) __atomic_store_n(&told->size, (ssize_t)size, __ATOMIC_RELEASE);
	}
	return true;
}

// arrived takes the data of at most count lines from a peer and returns of how many it is there.
static size_t arrived(const struct strand *s, const struct end *e, size_t first, size_t count, char *data) {
	struct line *l = lines(s, e) + first;
	uint64_t want = flag(e) >> 32;
	for (size_t i = 0; i < count; i++) {
		uint64_t low = load(&l[i].low), high = load(&l[i].high);
		if (low >> 32 != (uint32_t)want || high >> 32 != (uint32_t)want) return i;
		uint32_t words[2] = {(uint32_t)low, (uint32_t)high};
		memcpy(data + i * DATA, words, DATA);
	}
	return count;
}

static void give(const struct strand *s, const struct end *e, size_t first, size_t count, const char *data) {
	struct line *l = lines(s, e) + first;
	for (size_t i = 0; i < count; i++) {
		uint32_t words[2] = {0, 0};
		if (data) memcpy(words, data + i * DATA, DATA);
		store(&l[i].low, flag(e) | words[0]);
		store(&l[i].high, flag(e) | words[1]);
	}
}

// pass moves some lines on and returns how many. offset counts lines here.
static size_t pass(struct strand *s) {
	static _Thread_local char data[FAN + 1][LINES * DATA] __attribute__((aligned(16)));
	const struct move *m = &s->move;
	size_t count = least(LINES, line_count(s) - s->offset), at = s->offset * DATA;
	const char *from[FAN + 1];
	int froms = 0;
	if (m->from) from[froms++] = m->from + at;
	for (int i = 0; m->recv && i < s->ins && count; i++) {
		count = arrived(s, &s->in[i], s->offset, count, data[i]);
		from[froms++] = data[i];
	}
	if (!count) return 0;
	size_t n = least(count * DATA, (size_t)m->n * s->element - at) / s->element;
	char *result = data[FAN];
	memset(result + n * s->element, 0, count * DATA - n * s->element);
	combine(&s->reduction, &result, 1, from, froms, n, m->own, m->post);
	for (int i = 0; m->send && i < s->outs; i++) give(s, &s->out[i], s->offset, count, result);
	if (m->to) memcpy(gpu_reach(m->to + at), result, n * s->element);
	return count;
}

static void post(struct strand *s) {
	for (int i = 0; s->move.send && i < s->outs; i++) {
		struct end *e = &s->out[i];
		if (cleans(e)) give(s, e, s->offset, s->step_bytes / sizeof(struct line) - s->offset, NULL);
		e->step++;
	}
	for (int i = 0; s->move.recv && i < s->ins; i++) store(s->in[i].connection->head, ++s->in[i].step);
}

enum progress ll_advance(struct strand *s) {
	if (!s->announced && !(s->announced = announce(s))) return IDLE;
	if (s->offset < line_count(s)) {
		size_t passed = pass(s);
		if (!passed) return IDLE;
		s->offset += passed;
		if (s->offset < line_count(s)) return MOVED;
	}
	post(s);
	return FINISHED;
}
