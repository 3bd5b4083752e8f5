// An order: reading it, carrying it out, and comparing what came of it with what should.
#include <math.h>
#include <string.h>
#include "rank.h"

static int named(const char *name, const char *const *names, int count, const char *what) {
	for (int i = 0; i < count; i++)
		if (strcmp(name, names[i]) == 0) return i;
	fail("%s is no %s", name, what);
}

static const char *const types[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"}; // in NCCL's order
static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};

void order_parse(struct order *o, char *text) {
	char *rest = NULL, *words[4];
	for (int i = 0; i < 4; i++)
		if (!(words[i] = strtok_r(i ? NULL : text, " ", &rest))) fail("an order is COLLECTIVE TYPE OP COUNT [root=N] [inplace]");
	*o = (struct order){
		.name = words[0],
		.collective = collective_named(words[0]),
		.type = (ncclDataType_t)named(words[1], types, TYPES, "type of this NCCL"),
		.op = (ncclRedOp_t)named(words[2], ops, 5, "operation"),
		.count = strtoull(words[3], NULL, 0),
	};
	for (char *word; (word = strtok_r(NULL, " ", &rest));) {
		if (strncmp(word, "root=", 5) == 0) o->root = atoi(word + 5);
		else if (strcmp(word, "inplace") == 0) o->in_place = true;
		else fail("%s: an order has root=N and inplace", word);
	}
}

const char *order_text(const struct order *o, char *text, size_t size) {
	snprintf(text, size, "%s %s %s %zu%s", o->name, types[o->type], ops[o->op], o->count, o->in_place ? " inplace" : "");
	return text;
}

// datum is what a rank has in an element. Small, so that sums and products are exact in every type.
static double datum(const struct order *o, int rank, size_t i) {
	unsigned mix = (unsigned)i * 2654435761u + (unsigned)rank * 40503u + (unsigned)o->seed * 97u;
	return 1 + (mix >> 13) % (o->op == ncclProd ? 2 : 5);
}

static double reduced(const struct order *o, const struct group *g, size_t i) {
	double v = datum(o, 0, i);
	for (int r = 1; r < g->ranks; r++) {
		double d = datum(o, r, i);
		switch (o->op) {
		case ncclProd: v *= d; break;
		case ncclMax: v = fmax(v, d); break;
		case ncclMin: v = fmin(v, d); break;
		default: v += d;
		}
	}
	if (o->op == ncclAvg) v /= g->ranks;
	return o->op == ncclAvg && type_tolerance(o->type) == 0 ? trunc(v) : v;
}

enum { GUARD = 256 };

// buffers are those of an order, with guards behind them.
struct buffers {
	char *from, *to, *block;
	size_t sent, got; // elements
};

static struct buffers buffers_open(const struct order *o, const struct group *g) {
	size_t size = type_bytes(o->type), ranks = (size_t)g->ranks;
	struct buffers b = {
		.sent = o->count * (o->collective->sends_all ? ranks : 1),
		.got = o->count * (o->collective->gets_all ? ranks : 1),
	};
	size_t all = (b.sent + b.got) * size + 2 * GUARD;
	char *host = malloc(all); // what they begin with
	CUDA(cudaMalloc((void **)&b.block, all));
	b.to = b.block;
	b.from = b.block + b.got * size + GUARD;
	memset(host, 0xa5, all);
	if (o->in_place) {
		// As NCCL has it: the smaller buffer is this rank's part of the larger.
		b.from = b.to;
		if (o->collective->gets_all && !o->collective->sends_all) b.from = b.to + (size_t)g->rank * o->count * size;
		if (o->collective->sends_all && !o->collective->gets_all) {
			b.from = b.block;
			b.to = b.from + (size_t)g->rank * o->count * size;
		}
	}
	for (size_t i = 0; i < b.sent; i++) type_put(o->type, host + (b.from - b.block), i, datum(o, g->rank, i));
	CUDA(cudaMemcpy(b.block, host, all, cudaMemcpyHostToDevice));
	free(host);
	return b;
}

static void compare(const struct order *o, const struct group *g, const struct buffers *b) {
	size_t wrong = 0, first = 0, bytes = b->got * type_bytes(o->type);
	char *to = malloc(bytes + GUARD);
	CUDA(cudaMemcpy(to, b->to, o->in_place ? bytes : bytes + GUARD, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < b->got; i++) {
		size_t element;
		int source = o->collective->source(o, g, i, &element);
		if (source < 0) continue;
		double want = o->collective->reduces ? reduced(o, g, element) : datum(o, source, element);
		double got = type_get(o->type, to, i);
		if (fabs(got - want) <= type_tolerance(o->type) * fabs(want)) continue;
		if (!wrong++) first = i;
	}
	for (size_t i = 0; !o->in_place && i < GUARD; i++)
		if ((unsigned char)to[bytes + i] != 0xa5) fail("byte %zu behind the result was written", i);
	if (!wrong) {
		free(to);
		return;
	}
	char text[128];
	size_t element = 0;
	int source = o->collective->source(o, g, first, &element);
	fail("%s: %zu of %zu elements are wrong, first element %zu: %g instead of %g", order_text(o, text, sizeof text), wrong, b->got, first,
		type_get(o->type, to, first), o->collective->reduces ? reduced(o, g, element) : datum(o, source, element));
}

ncclResult_t order_try(const struct job *j, struct group *g, const struct order *o) {
	struct buffers b = buffers_open(o, g);
	ncclResult_t error = o->collective->call(o, g, b.from, b.to);
	if (error == ncclSuccess) error = group_wait(j, g);
	if (error != ncclSuccess) return error; // the buffers may be in use until the communicator ends
	compare(o, g, &b);
	CUDA(cudaFree(b.block));
	return ncclSuccess;
}

void order_check(const struct job *j, struct group *g, const struct order *o) {
	ncclResult_t error = order_try(j, g, o);
	if (error != ncclSuccess) fail("%s: %s (%s)", o->name, ncclGetErrorString(error), ncclGetLastError(g->comm));
}

void order_time(const struct job *j, struct group *g, const struct order *o, int iterations) {
	char text[128];
	struct buffers b = buffers_open(o, g);
	double start = 0;
	for (int i = -(iterations / 5 + 1); i < iterations; i++) { // the first are to warm up
		if (i == 0) start = now();
		NCCL(o->collective->call(o, g, b.from, b.to));
		CUDA(cudaStreamSynchronize(g->stream));
	}
	double each = (now() - start) / iterations;
	NCCL(group_wait(j, g));
	if (g->rank == 0) say("time %s us=%.1f", order_text(o, text, sizeof text), each * 1e6);
	CUDA(cudaFree(b.block));
}
