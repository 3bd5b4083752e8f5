/* One communicator of the RMA interface, and what flows in it. */
#include "rma_side.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "memory.h"
#include "watchdog.h"

int side_ranks(const struct side *s)
{
	return s->job->opt.nranks;
}

int side_rank(const struct side *s)
{
	return s->job->opt.rank;
}

const char *side_name(const struct side *s)
{
	return s->gin ? "GIN" : "host RMA";
}

void side_need(const struct side *s, ncclResult_t result, const char *call)
{
	if (result != ncclSuccess)
		die("%s: %s returned %s (%d)", side_name(s), call, result_name(result), (int)result);
	watchdog_fed();
}

/* Words of signals: a counter of messages and one of acknowledgements for each context and rank, and then two that all add to. */
static size_t arrivals(const struct side *s, int context, int from)
{
	return (size_t)(context * side_ranks(s) + from) * 8;
}

static size_t acknowledgements(const struct side *s, int context, int from)
{
	return arrivals(s, s->contexts, 0) + arrivals(s, context, from);
}

size_t side_shared(const struct side *s)
{
	return 2 * arrivals(s, s->contexts, 0);
}

size_t side_judged(const struct side *s)
{
	return side_shared(s) + 8;
}

uint64_t side_word(const struct side *s, size_t offset)
{
	const unsigned char *at = s->words.region.base + offset;
	uint64_t value;

	if (!memory_is_device(at))
		return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
	memory_get(&value, at, sizeof value);
	return value;
}

static void zero(struct window *w)
{
	static const unsigned char none[4096];

	for (size_t at = 0; at < w->region.size; at += sizeof none)
		memory_put(w->region.base + at, none, sizeof none);
}

static size_t slot_offset(const struct side *s, int context, int rank, unsigned long i)
{
	return ((size_t)(context * side_ranks(s) + rank) * SLOTS + i % SLOTS) * s->slot;
}

static uint64_t message_key(const struct side *s, int context, int from, int to, unsigned long i)
{
	return pattern_key(s->job->opt.seed, s->gin * 16 + context, from, to, i);
}

static size_t message_size(const struct side *s, uint64_t key)
{
	struct random r = {key};

	return random_size(&r, s->slot);
}

static uint64_t still_key(const struct side *s, int rank)
{
	return pattern_key(s->job->opt.seed, 64 + s->gin, rank, rank, 0);
}

/* Windows. All ranks register the same ones in the same order. */

void window_open(struct side *s, struct window *w, size_t size, bool in_host, uint64_t flags)
{
	(in_host ? region_open_host : region_open)(&w->region, size);
	if (flags)
		zero(w);
	side_need(s, rma_reg(s->rma, s->coll, w->region.base, w->region.size, flags, &w->mhandle), "regMrSym");
}

void window_close(struct side *s, struct window *w)
{
	if (!w->mhandle)
		return;
	side_need(s, s->rma->table->deregMrSym(s->coll, w->mhandle), "deregMrSym");
	region_close(&w->region); /* a device that still writes there makes the process fail */
	w->mhandle = NULL;
}

void side_register_phase(struct side *s)
{
	if (s->registered == PHASES)
		return;
	window_open(s, &s->phases[s->registered], (size_t)(s->contexts * side_ranks(s) * SLOTS) * s->slot,
	            s->job->opt.windows == WINDOWS_HOST, 0);
	s->registered++;
}

/* Opening and closing, in NCCL's order. */

void *side_connect(struct side *s, void *wrong_ctx, bool listening)
{
	int n = side_ranks(s);
	unsigned char handle[CONNECT_HANDLE], (*all)[CONNECT_HANDLE] = calloc((size_t)n, sizeof *all);
	void **handles = calloc((size_t)n, sizeof *handles), *listen;

	handle_prepare(handle);
	side_need(s, rma_listen(s->rma, s->init, 0, handle, &listen), "listen");
	handle_check(handle, "RMA listen");
	rendezvous_gather(&s->job->rv, handle, all, sizeof handle);
	for (int r = 0; r < n; r++)
		handles[r] = all[r];
	side_need(s, rma_connect(s->rma, wrong_ctx ? wrong_ctx : s->init, handles, n, side_rank(s), listen, &s->coll), "connect");
	if (!listening)
		side_need(s, s->rma->table->closeListen(listen), "closeListen");
	free(handles);
	free(all);
	return listening ? listen : NULL;
}

void side_open(struct side *s, int depth, void *wrong_ctx)
{
	bool words_in_host = s->job->opt.windows != WINDOWS_ALL, data_in_host = s->job->opt.windows == WINDOWS_HOST;
	int flows = s->contexts * side_ranks(s);

	s->slot = s->job->opt.chunk < MAX_SLOT ? s->job->opt.chunk : MAX_SLOT;
	s->flows = calloc((size_t)flows, sizeof *s->flows);
	for (int i = 0; i < flows; i++) {
		s->flows[i].context = i / side_ranks(s);
		s->flows[i].peer = i % side_ranks(s);
	}
	side_connect(s, wrong_ctx, false);
	side_need(s, rma_create_context(s->rma, s->coll, s->contexts, &s->ctx), "createContext");
	window_open(s, &s->words, side_judged(s) + 8, words_in_host, NCCL_NET_MR_FLAG_FORCE_SO | NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET);
	s->thread = (struct rma_thread){
		.rma = s->rma, .gin = s->gin, .coll = s->coll, .ctx = s->ctx, .flush_mhandle = s->words.mhandle, .nranks = side_ranks(s),
		.contexts = s->contexts, .depth = depth,
	};
	rma_thread_start(&s->thread, s->gin ? "GIN progress" : "RMA progress");
	window_open(s, &s->source, (size_t)flows * SLOTS * s->slot, data_in_host, 0);
	window_open(s, &s->still, STILL, data_in_host, 0);
	window_open(s, &s->landing, (size_t)flows * STILL, data_in_host, 0);
	pattern_fill(s->still.region.base, STILL, still_key(s, side_rank(s)), 0);
	side_register_phase(s);
}

void side_close(struct side *s)
{
	rma_thread_stop(&s->thread);
	side_need(s, s->rma->table->destroyContext(s->ctx), "destroyContext");
	window_close(s, &s->words);
	window_close(s, &s->landing);
	window_close(s, &s->still);
	window_close(s, &s->source);
	for (int i = 0; i < PHASES; i++)
		window_close(s, &s->phases[i]);
	side_need(s, s->rma->table->closeColl(s->coll), "closeColl");
	rma_thread_free(&s->thread);
	free(s->flows);
}

/* The user's part of a flow. Each function reports whether something has moved. */

bool side_push(struct side *s, enum rma_verb verb, const struct rma_call *call, unsigned long *number)
{
	unsigned long n = rma_thread_push(&s->thread, verb, call);

	if (n && number)
		*number = n;
	return n != 0;
}

/* room: the queue of a flow has space for n more operations. */
static bool room(struct side *s, const struct flow *f, unsigned long n)
{
	struct rma_queue *q = rma_thread_queue(&s->thread, f->context, f->peer);

	return atomic_load(&q->queued) - atomic_load(&q->completed) + n <= (unsigned long)s->thread.depth;
}

struct rma_call flow_signal(const struct side *s, const struct flow *f, size_t offset, uint64_t value)
{
	return (struct rma_call){
		.context = f->context, .rank = (uint32_t)f->peer, .words = s->words.mhandle, .word = offset, .value = value,
		.op = value == 1 ? NCCL_NET_SIGNAL_OP_INC : NCCL_NET_SIGNAL_OP_ADD, .strong = true,
	};
}

static bool flow_send(struct side *s, struct flow *f)
{
	unsigned long i = f->sent, slot = i % SLOTS;
	uint64_t key = message_key(s, f->context, side_rank(s), f->peer, i);
	size_t size = message_size(s, key), from = slot_offset(s, f->context, f->peer, i);
	struct rma_call call = flow_signal(s, f, arrivals(s, f->context, side_rank(s)), 1), signal = call;

	if (i - f->acknowledged >= SLOTS || !room(s, f, 3) || !rma_thread_done(&s->thread, &call, f->numbers[slot]))
		return false;
	pattern_fill(s->source.region.base + from, size, key, 0);
	call.source = s->source.mhandle;
	call.target = s->phases[s->phase].mhandle;
	call.from = from;
	call.to = slot_offset(s, f->context, side_rank(s), i);
	call.size = size;
	call.more = i % 3 == 0;
	if (i % 5 == 3) { /* the signal by itself, without a put */
		call.words = NULL;
		side_push(s, RMA_PUT, &call, NULL);
		side_push(s, RMA_PUT, &signal, &f->numbers[slot]);
	} else {
		side_push(s, RMA_PUT, &call, &f->numbers[slot]);
	}
	if (i % 7 == 0) { /* a word that all ranks add to */
		signal = flow_signal(s, f, side_shared(s), i + 2);
		signal.strong = false;
		side_push(s, RMA_PUT, &signal, NULL);
	}
	f->sent++;
	return true;
}

static bool flow_receive(struct side *s, struct flow *f)
{
	unsigned long i = f->received;
	unsigned char *at = s->phases[s->phase].region.base + slot_offset(s, f->context, f->peer, i);
	uint64_t key = message_key(s, f->context, f->peer, side_rank(s), i);
	size_t size = message_size(s, key), first = 0;

	if (side_word(s, arrivals(s, f->context, f->peer)) <= i)
		return false;
	if (pattern_check(at, size, key, 0, &first))
		wrong("%s: rank %d sees the signal of message %lu of rank %d, context %d, and byte %zu of its %zu is wrong", side_name(s), side_rank(s), i,
		      f->peer, f->context, first, size);
	else if (canary_check(at + size, s->slot - size) != s->slot - size)
		wrong("%s: message %lu of rank %d, context %d, has %zu bytes, and one behind them was written", side_name(s), i, f->peer, f->context, size);
	canary_fill(at, s->slot);
	f->received++;
	f->owed++;
	s->messages++;
	s->bytes += (double)size;
	return true;
}

static bool flow_acknowledge(struct side *s, struct flow *f)
{
	struct rma_call call = flow_signal(s, f, acknowledgements(s, f->context, side_rank(s)), f->owed);
	uint64_t seen = side_word(s, acknowledgements(s, f->context, f->peer));
	bool moved = seen != f->acknowledged;

	if (seen > f->sent)
		wrong("%s: rank %d has acknowledged %llu messages of %lu", side_name(s), f->peer, (unsigned long long)seen, f->sent);
	f->acknowledged = seen;
	if (f->owed && side_push(s, RMA_PUT, &call, NULL)) {
		f->owed = 0;
		moved = true;
	}
	return moved;
}

/* flow_get: GIN alone gets, and flushes after that. */
static bool flow_get(struct side *s, struct flow *f)
{
	size_t first = 0;

	if (!s->gin)
		return false;
	if (f->get) {
		if (!rma_thread_done(&s->thread, &f->got, f->get))
			return false;
		if (pattern_check(s->landing.region.base + f->got.to, f->got.size, still_key(s, f->peer), f->got.from, &first))
			wrong("GIN: byte %zu of %zu that were got from offset %llu of rank %d is wrong", first, f->got.size,
			      (unsigned long long)f->got.from, f->peer);
		canary_fill(s->landing.region.base + f->got.to, f->got.size);
		f->get = 0;
		return true;
	}
	if (f->sent % 4 || !room(s, f, 2))
		return false;
	f->got = (struct rma_call){
		.context = f->context, .rank = (uint32_t)f->peer, .source = s->still.mhandle, .from = mix(f->sent) % 512 * 8,
		.target = s->landing.mhandle, .to = (size_t)(f->context * side_ranks(s) + f->peer) * STILL,
	};
	f->got.size = mix(f->sent ^ 1) % (STILL - f->got.from) + 1;
	side_push(s, RMA_GET, &f->got, NULL);
	side_push(s, RMA_FLUSH, &f->got, &f->get);
	return true;
}

bool flow_step(struct side *s, struct flow *f, unsigned long goal)
{
	bool moved = false;

	if (f->sent < goal) {
		moved = flow_send(s, f);
		moved = flow_get(s, f) || moved;
	} else if (f->get) {
		moved = flow_get(s, f);
	}
	if (f->received < goal)
		moved = flow_receive(s, f) || moved;
	return flow_acknowledge(s, f) || moved;
}

static bool flow_over(const struct flow *f, unsigned long goal)
{
	return f->sent == goal && f->acknowledged == goal && f->received == goal && !f->owed && !f->get;
}

void side_check(struct side *s)
{
	for (int i = 0; i < s->contexts * side_ranks(s); i++) {
		struct rma_queue *q = &s->thread.queues[i];
		int result = atomic_load(&q->result);

		if (result != ncclSuccess)
			die("%s: %s of an operation to rank %d returned %s (%d)", side_name(s), atomic_load(&q->call), i % side_ranks(s),
			    result_name((ncclResult_t)result), result);
	}
}

bool side_step(struct side *s, unsigned long goal, bool *moved)
{
	bool over = true;

	for (int i = 0; i < s->contexts * side_ranks(s); i++) {
		struct flow *f = &s->flows[i];

		*moved = flow_step(s, f, goal) || *moved;
		over = over && flow_over(f, goal);
		if (f->sent > goal - goal / (unsigned long)(2 * (s->phase + 1)) && s->registered == s->phase + 1)
			side_register_phase(s); /* while the thread has work */
	}
	side_check(s);
	return over;
}

void side_check_end(struct side *s)
{
	uint64_t want = 0, got;
	bool failed;

	for (int context = 0; context < s->contexts; context++)
		for (int from = 0; from < side_ranks(s); from++)
			for (unsigned long i = 0; i < s->flows[context * side_ranks(s) + from].received; i += 7)
				want += i + 2;
	got = side_word(s, side_shared(s));
	if (got != want)
		wrong("%s: the word that all ranks add to is %llu; %llu is what they have added", side_name(s), (unsigned long long)got,
		      (unsigned long long)want);
	side_need(s, rma_query_last_error(s->rma, s->ctx, &failed), "queryLastError");
	if (failed)
		wrong("%s: queryLastError reports an error, and there was none", side_name(s));
}
