/*
 * rma: the plugin's RMA interface, called as NCCL calls it. Two communicators of the interface are open at once, that of the host RMA and that of the GIN
 * proxy, each with a thread of its own, while the user's thread queues operations, registers windows and looks at signals. Every rank
 * puts to every rank, itself too.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "memory.h"
#include "progress.h"
#include "report.h"
#include "rma_thread.h"
#include "watchdog.h"
#include "work.h"

enum {
	PHASES = 3,     /* each with a window of its own, which is registered while the thread before is at work */
	SLOTS = 4,      /* of a flow: messages that the receiver has not seen yet */
	MESSAGES = 60,  /* of a flow in a phase */
	GIN_CONTEXTS = 2,
	STILL = 65536,  /* bytes to get */
	MAX_SLOT = 1 << 20,
};

/* A window, with its part on this rank. */
struct window {
	struct region region;
	void *mhandle;
};

/* What flows in one context to and from one rank. */
struct flow {
	int context, peer;
	unsigned long sent, acknowledged, received, owed; /* owed: acknowledgements to send */
	unsigned long numbers[SLOTS];                     /* in the queue, of the last operation that uses the slot */
	unsigned long stray;                              /* of the signals to the shared word */
	unsigned long get;                                /* number of a get that is outstanding; 0: none */
	struct rma_call got;
	uint64_t added;
};

/* One of the two communicators. */
struct side {
	struct job *job;
	struct rma *rma;
	bool gin;
	int contexts;
	size_t slot;
	void *init, *coll, *ctx;
	struct rma_thread thread;
	struct window words, source, still, landing, phases[PHASES];
	int phase, registered;
	struct flow *flows; /* [context][rank] */
	long messages;
	double bytes;
};

static int ranks(const struct side *s)
{
	return s->job->opt.nranks;
}

static int own(const struct side *s)
{
	return s->job->opt.rank;
}

static const char *name(const struct side *s)
{
	return s->gin ? "GIN" : "host RMA";
}

static void need(const struct side *s, ncclResult_t result, const char *call)
{
	if (result != ncclSuccess)
		die("%s: %s returned %s (%d)", name(s), call, result_name(result), (int)result);
	watchdog_fed();
}

/* Words of signals: a counter of messages and one of acknowledgements for each context and rank, and then one that all add to. */
static size_t arrivals(const struct side *s, int context, int from)
{
	return (size_t)(context * ranks(s) + from) * 8;
}

static size_t acknowledgements(const struct side *s, int context, int from)
{
	return arrivals(s, s->contexts, 0) + arrivals(s, context, from);
}

static size_t shared(const struct side *s)
{
	return 2 * arrivals(s, s->contexts, 0);
}

static uint64_t word(const struct side *s, size_t offset)
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
	return ((size_t)(context * ranks(s) + rank) * SLOTS + i % SLOTS) * s->slot;
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

static void window_open(struct side *s, struct window *w, size_t size, bool in_host, uint64_t flags)
{
	if (in_host && memory_kind() != MEMORY_HOST) {
		size = (size + 4095) / 4096 * 4096;
		w->region = (struct region){.size = size, .map_size = size};
		w->region.map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (w->region.map == MAP_FAILED)
			die("cannot map %zu bytes for a window", size);
		w->region.base = w->region.map;
		canary_fill(w->region.base, size);
	} else {
		region_open(&w->region, size);
	}
	if (flags)
		zero(w);
	need(s, rma_reg(s->rma, s->coll, w->region.base, w->region.size, flags, &w->mhandle), "regMrSym");
}

static void window_close(struct side *s, struct window *w)
{
	if (!w->mhandle)
		return;
	need(s, s->rma->table->deregMrSym(s->coll, w->mhandle), "deregMrSym");
	region_close(&w->region); /* a device that still writes there makes the process fail */
	w->mhandle = NULL;
}

static void register_phase(struct side *s)
{
	if (s->registered == PHASES)
		return;
	window_open(s, &s->phases[s->registered], (size_t)(s->contexts * ranks(s) * SLOTS) * s->slot,
	            s->job->opt.windows == WINDOWS_HOST, 0);
	s->registered++;
}

/* Opening and closing, in NCCL's order. */

static void side_connect(struct side *s, void *wrong_ctx)
{
	int n = ranks(s);
	unsigned char handle[CONNECT_HANDLE], (*all)[CONNECT_HANDLE] = calloc((size_t)n, sizeof *all);
	void **handles = calloc((size_t)n, sizeof *handles), *listen;

	handle_prepare(handle);
	need(s, rma_listen(s->rma, s->init, 0, handle, &listen), "listen");
	handle_check(handle, "RMA listen");
	rendezvous_gather(&s->job->rv, handle, all, sizeof handle);
	for (int r = 0; r < n; r++)
		handles[r] = all[r];
	need(s, rma_connect(s->rma, wrong_ctx ? wrong_ctx : s->init, handles, n, own(s), listen, &s->coll), "connect");
	need(s, s->rma->table->closeListen(listen), "closeListen");
	free(handles);
	free(all);
}

static void side_open(struct side *s, int depth, void *wrong_ctx)
{
	bool words_in_host = s->job->opt.windows != WINDOWS_ALL, data_in_host = s->job->opt.windows == WINDOWS_HOST;
	int flows = s->contexts * ranks(s);

	s->slot = s->job->opt.chunk < MAX_SLOT ? s->job->opt.chunk : MAX_SLOT;
	s->flows = calloc((size_t)flows, sizeof *s->flows);
	for (int i = 0; i < flows; i++) {
		s->flows[i].context = i / ranks(s);
		s->flows[i].peer = i % ranks(s);
	}
	side_connect(s, wrong_ctx);
	need(s, rma_create_context(s->rma, s->coll, s->contexts, &s->ctx), "createContext");
	window_open(s, &s->words, shared(s) + 8, words_in_host, NCCL_NET_MR_FLAG_FORCE_SO | NCCL_NET_MR_FLAG_SIGNAL_NEVER_RESET);
	s->thread = (struct rma_thread){
		.rma = s->rma, .gin = s->gin, .coll = s->coll, .ctx = s->ctx, .flush_mhandle = s->words.mhandle, .nranks = ranks(s),
		.contexts = s->contexts, .depth = depth,
	};
	rma_thread_start(&s->thread, s->gin ? "GIN progress" : "RMA progress");
	window_open(s, &s->source, (size_t)flows * SLOTS * s->slot, data_in_host, 0);
	window_open(s, &s->still, STILL, data_in_host, 0);
	window_open(s, &s->landing, (size_t)flows * STILL, data_in_host, 0);
	pattern_fill(s->still.region.base, STILL, still_key(s, own(s)), 0);
	register_phase(s);
}

static void side_close(struct side *s)
{
	rma_thread_stop(&s->thread);
	need(s, s->rma->table->destroyContext(s->ctx), "destroyContext");
	window_close(s, &s->words);
	window_close(s, &s->landing);
	window_close(s, &s->still);
	window_close(s, &s->source);
	for (int i = 0; i < PHASES; i++)
		window_close(s, &s->phases[i]);
	need(s, s->rma->table->closeColl(s->coll), "closeColl");
	rma_thread_free(&s->thread);
	free(s->flows);
}

/* The user's part of a flow. Each function reports whether something has moved. */

static bool push(struct side *s, enum rma_verb verb, const struct rma_call *call, unsigned long *number)
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

static struct rma_call signal_call(const struct side *s, const struct flow *f, size_t offset, uint64_t value)
{
	return (struct rma_call){
		.context = f->context, .rank = (uint32_t)f->peer, .words = s->words.mhandle, .word = offset, .value = value,
		.op = value == 1 ? NCCL_NET_SIGNAL_OP_INC : NCCL_NET_SIGNAL_OP_ADD, .strong = true,
	};
}

static bool flow_send(struct side *s, struct flow *f)
{
	unsigned long i = f->sent, slot = i % SLOTS;
	uint64_t key = message_key(s, f->context, own(s), f->peer, i);
	size_t size = message_size(s, key), from = slot_offset(s, f->context, f->peer, i);
	struct rma_call call = signal_call(s, f, arrivals(s, f->context, own(s)), 1), signal = call;

	if (i - f->acknowledged >= SLOTS || !room(s, f, 3) || !rma_thread_done(&s->thread, &call, f->numbers[slot]))
		return false;
	pattern_fill(s->source.region.base + from, size, key, 0);
	call.source = s->source.mhandle;
	call.target = s->phases[s->phase].mhandle;
	call.from = from;
	call.to = slot_offset(s, f->context, own(s), i);
	call.size = size;
	call.more = i % 3 == 0;
	if (i % 5 == 3) { /* the signal by itself, without a put */
		call.words = NULL;
		push(s, RMA_PUT, &call, NULL);
		push(s, RMA_PUT, &signal, &f->numbers[slot]);
	} else {
		push(s, RMA_PUT, &call, &f->numbers[slot]);
	}
	if (i % 7 == 0) { /* a word that all ranks add to */
		signal = signal_call(s, f, shared(s), i + 2);
		signal.strong = false;
		push(s, RMA_PUT, &signal, &f->stray);
		f->added += i + 2;
	}
	f->sent++;
	return true;
}

static bool flow_receive(struct side *s, struct flow *f)
{
	unsigned long i = f->received;
	unsigned char *at = s->phases[s->phase].region.base + slot_offset(s, f->context, f->peer, i);
	uint64_t key = message_key(s, f->context, f->peer, own(s), i);
	size_t size = message_size(s, key), first = 0;

	if (word(s, arrivals(s, f->context, f->peer)) <= i)
		return false;
	if (pattern_check(at, size, key, 0, &first))
		wrong("%s: rank %d sees the signal of message %lu of rank %d, context %d, and byte %zu of its %zu is wrong", name(s), own(s), i,
		      f->peer, f->context, first, size);
	else if (canary_check(at + size, s->slot - size) != s->slot - size)
		wrong("%s: message %lu of rank %d, context %d, has %zu bytes, and one behind them was written", name(s), i, f->peer, f->context, size);
	canary_fill(at, s->slot);
	f->received++;
	f->owed++;
	s->messages++;
	s->bytes += (double)size;
	return true;
}

static bool flow_acknowledge(struct side *s, struct flow *f)
{
	struct rma_call call = signal_call(s, f, acknowledgements(s, f->context, own(s)), f->owed);
	uint64_t seen = word(s, acknowledgements(s, f->context, f->peer));
	bool moved = seen != f->acknowledged;

	if (seen > f->sent)
		wrong("%s: rank %d has acknowledged %llu messages of %lu", name(s), f->peer, (unsigned long long)seen, f->sent);
	f->acknowledged = seen;
	if (f->owed && push(s, RMA_PUT, &call, NULL)) {
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
		.target = s->landing.mhandle, .to = (size_t)(f->context * ranks(s) + f->peer) * STILL,
	};
	f->got.size = mix(f->sent ^ 1) % (STILL - f->got.from) + 1;
	push(s, RMA_GET, &f->got, NULL);
	push(s, RMA_FLUSH, &f->got, &f->get);
	return true;
}

static bool flow_step(struct side *s, struct flow *f, unsigned long goal)
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

static void check_queues(struct side *s)
{
	for (int i = 0; i < s->contexts * ranks(s); i++) {
		struct rma_queue *q = &s->thread.queues[i];
		int result = atomic_load(&q->result);

		if (result != ncclSuccess)
			die("%s: %s of an operation to rank %d returned %s (%d)", name(s), atomic_load(&q->call), i % ranks(s),
			    result_name((ncclResult_t)result), result);
	}
}

/* step moves a side on in a phase. It reports whether the phase is over. */
static bool step(struct side *s, unsigned long goal, bool *moved)
{
	bool over = true;

	for (int i = 0; i < s->contexts * ranks(s); i++) {
		struct flow *f = &s->flows[i];

		*moved = flow_step(s, f, goal) || *moved;
		over = over && flow_over(f, goal);
		if (f->sent > goal - goal / (unsigned long)(2 * (s->phase + 1)) && s->registered == s->phase + 1)
			register_phase(s); /* while the thread has work */
	}
	check_queues(s);
	return over;
}

static void check_end(struct side *s)
{
	uint64_t want = 0, got;
	bool failed;

	for (int context = 0; context < s->contexts; context++)
		for (int from = 0; from < ranks(s); from++)
			for (unsigned long i = 0; i < s->flows[context * ranks(s) + from].received; i += 7)
				want += i + 2;
	got = word(s, shared(s));
	if (got != want)
		wrong("%s: the word that all ranks add to is %llu; %llu is what they have added", name(s), (unsigned long long)got,
		      (unsigned long long)want);
	need(s, rma_query_last_error(s->rma, s->ctx, &failed), "queryLastError");
	if (failed)
		wrong("%s: queryLastError reports an error, and there was none", name(s));
}

/* The properties are those of the network's device, which NCCL takes for the same one, except for the type. */
static void check_properties(struct job *job, struct rma *rma, int *depth)
{
	for (int dev = 0; dev < job->ndev; dev++) {
		ncclNetProperties_v12_t p, again;
		struct net_props net;

		check_call(rma_properties(rma, dev, 0xAA, &p), "RMA getProperties");
		check_call(rma_properties(rma, dev, 0x55, &again), "RMA getProperties");
		check_call(net_properties(&job->net, dev, 0xAA, &net), "getProperties");
		if (p.netDeviceType != NCCL_NET_DEVICE_GIN_PROXY)
			wrong("RMA device %d: netDeviceType is %d; %d makes NCCL use it for GIN", dev, p.netDeviceType, NCCL_NET_DEVICE_GIN_PROXY);
		if (p.maxRecvs < 1 || p.maxRecvs & (p.maxRecvs - 1))
			wrong("RMA device %d: maxRecvs is %d; NCCL needs a power of two", dev, p.maxRecvs);
		if (!(p.ptrSupport & (NCCL_PTR_CUDA | NCCL_PTR_DMABUF)))
			wrong("RMA device %d: ptrSupport is %d; NCCL keeps signals in GPU memory", dev, p.ptrSupport);
		if (strcmp(p.name, net.name) || p.ptrSupport != net.ptrSupport || p.speed != net.speed || p.port != net.port ||
		    p.guid != net.guid || p.maxRecvs != net.maxRecvs || !p.pciPath != !net.pciPath ||
		    (p.pciPath && strcmp(p.pciPath, net.pciPath)))
			wrong("RMA device %d: the properties differ from those of the network", dev);
		if (p.maxP2pBytes != again.maxP2pBytes || p.netDeviceVersion != again.netDeviceVersion || p.vProps.ndevs != again.vProps.ndevs ||
		    p.railId != again.railId || p.planeId != again.planeId || p.latency != again.latency)
			wrong("RMA device %d: getProperties leaves members as they were", dev);
		if (p.maxRecvs > 0 && !(p.maxRecvs & (p.maxRecvs - 1)))
			*depth = NCCL_NET_MAX_REQUESTS * p.maxRecvs;
	}
}

/* A plugin that does not offer the interface has no devices, and NCCL never finalizes what init has returned. */
static void check_absent(struct job *job, struct rma *rma)
{
	void *ctx, *net;
	int ndev;

	plugin_init(job, &net, mix(job->opt.seed));
	check_call(rma_init(rma, &ctx, mix(job->opt.seed)), "RMA init");
	check_call(rma_devices(rma, &ndev), "RMA devices");
	if (ndev)
		wrong("the RMA interface has %d devices; none is wanted (--rma none)", ndev);
	plugin_fini(job, net);
}

/* Both sides, and what they are open in. */
struct play {
	struct rma rma;
	void *net;
	struct side sides[2];
};

/* describe says where a play stands. */
static void describe(void *arg)
{
	struct play *p = arg;

	for (int i = 0; i < 2; i++)
		for (int k = 0; p->sides[i].thread.queues && k < p->sides[i].contexts * ranks(&p->sides[i]); k++) {
			struct side *s = &p->sides[i];
			struct flow *f = &s->flows[k];
			struct rma_queue *q = &s->thread.queues[k];

			say("%s, context %d, rank %d: sent %lu, acknowledged %lu, received %lu; operations: %lu queued, %lu issued, %lu completed", name(s),
			    f->context, f->peer, f->sent, f->acknowledged, f->received, atomic_load(&q->queued), q->issued, atomic_load(&q->completed));
		}
}

/* play_open returns false if the interface is not to be there. */
static bool play_open(struct job *job, struct play *p)
{
	uint64_t id = mix(job->opt.seed ^ 0x52);
	int ndev, depth = NCCL_NET_MAX_REQUESTS;

	*p = (struct play){0};
	if (!rma_load(&p->rma, &job->net, job->opt.rma < 0 ? 0 : job->opt.rma))
		die("the library exports no ncclRmaPlugin of that version");
	if (rma_missing(&p->rma))
		die("ncclRmaPlugin_v%d.%s is NULL", p->rma.version, rma_missing(&p->rma));
	if (job->opt.rma < 0) {
		check_absent(job, &p->rma);
		return false;
	}
	plugin_init(job, &p->net, id);
	for (int i = 0; i < 2; i++)
		p->sides[i] = (struct side){.job = job, .rma = &p->rma, .gin = i == 1, .contexts = i ? GIN_CONTEXTS : 1};
	check_call(rma_init(&p->rma, &p->sides[0].init, id), "RMA init");
	check_call(rma_devices(&p->rma, &ndev), "RMA devices");
	if (ndev != job->ndev)
		die("the RMA interface has %d devices and the network %d", ndev, job->ndev);
	check_call(rma_init(&p->rma, &p->sides[1].init, id), "RMA init"); /* NCCL's GIN proxy borrows the function */
	check_properties(job, &p->rma, &depth);
	watchdog_describe(describe, p);
	side_open(&p->sides[0], depth, p->net); /* NCCL 2.30.7 gives connect the network's context */
	side_open(&p->sides[1], depth, NULL);
	return true;
}

static void play_close(struct job *job, struct play *p)
{
	watchdog_describe(NULL, NULL);
	side_close(&p->sides[1]);
	side_close(&p->sides[0]);
	plugin_fini(job, p->net);
	need(&p->sides[1], p->rma.table->finalize(p->sides[1].init), "finalize");
	need(&p->sides[0], p->rma.table->finalize(p->sides[0].init), "finalize");
}

void work_rma(struct job *job)
{
	unsigned long each = job->opt.messages ? (unsigned long)job->opt.messages : MESSAGES;
	uint64_t began = now_ns();
	unsigned idle = 0;
	struct play p;
	long before = wrongs();

	if (!play_open(job, &p)) {
		rendezvous_barrier(&job->rv);
		return;
	}
	for (int phase = 0; phase < PHASES; phase++) {
		say("GIN: phase %d begins", phase);
		for (bool over[2] = {false}; !over[0] || !over[1];) {
			bool moved = false;

			for (int i = 0; i < 2; i++)
				over[i] = step(&p.sides[i], each * (unsigned long)(phase + 1), &moved);
			if (moved) {
				idle = 0;
				watchdog_fed();
			} else {
				progress_idle(&idle);
			}
		}
		for (int i = 0; i < 2; i++) {
			if (p.sides[i].registered == phase + 1)
				register_phase(&p.sides[i]);
			p.sides[i].phase = phase + 1 < PHASES ? phase + 1 : phase;
		}
		rendezvous_barrier(&job->rv); /* the words of the next phase go on from these */
	}
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < p.sides[i].contexts * job->opt.nranks; k++) {
			struct flow *f = &p.sides[i].flows[k];
			struct rma_call call = {.context = f->context, .rank = (uint32_t)f->peer};

			while (!rma_thread_done(&p.sides[i].thread, &call, atomic_load(&rma_thread_queue(&p.sides[i].thread, f->context, f->peer)->queued))) {
				check_queues(&p.sides[i]);
				progress_idle(&idle);
			}
		}
	rendezvous_barrier(&job->rv);
	for (int i = 0; i < 2; i++)
		check_end(&p.sides[i]);
	report_rma(job, p.rma.version, (double)(now_ns() - began) / 1e9, p.sides[0].messages + p.sides[1].messages,
	           p.sides[0].bytes + p.sides[1].bytes, wrongs() - before);
	play_close(job, &p);
	rendezvous_barrier(&job->rv);
}

/* A survivor's judgement of what its threads were told. It returns the time from the death to the last error, in ms. */
static double judge(struct side *s, uint64_t death)
{
	double slowest = 0;
	bool failed;

	for (int i = 0; i < s->contexts * ranks(s); i++) {
		struct rma_queue *q = &s->thread.queues[i];
		ncclResult_t result = (ncclResult_t)atomic_load(&q->result);
		double ms = ((double)atomic_load(&q->failed_ns) - (double)death) / 1e6;
		int peer = i % ranks(s);

		if (peer != s->job->opt.die_rank && result != ncclSuccess)
			wrong("%s: %s to rank %d, which lives, returned %s (%d)", name(s), atomic_load(&q->call), peer, result_name(result), (int)result);
		if (peer != s->job->opt.die_rank)
			continue;
		if (result == ncclSuccess)
			wrong("%s: operations to the dead rank %d went on without an error for %g ms", name(s), peer, s->job->opt.die_limit_ms);
		else if (result != ncclRemoteError)
			wrong("%s: %s to the dead rank %d returned %s (%d), ncclRemoteError (6) is wanted", name(s), atomic_load(&q->call), peer,
			      result_name(result), (int)result);
		else if (ms > slowest)
			slowest = ms;
	}
	need(s, rma_query_last_error(s->rma, s->ctx, &failed), "queryLastError");
	if (!failed)
		wrong("%s: queryLastError reports no error after the death of rank %d", name(s), s->job->opt.die_rank);
	return slowest;
}

/* probe queues a signal to the dead rank where nothing is outstanding that could fail. */
static void probe(struct side *s)
{
	for (int i = 0; i < s->contexts * ranks(s); i++) {
		struct flow *f = &s->flows[i];
		struct rma_queue *q = rma_thread_queue(&s->thread, f->context, f->peer);
		struct rma_call call = signal_call(s, f, shared(s), 1);

		if (f->peer == s->job->opt.die_rank && atomic_load(&q->queued) == atomic_load(&q->completed))
			push(s, RMA_PUT, &call, NULL);
	}
}

/* told: all queues to the dead rank have failed. */
static bool told(const struct side *s)
{
	for (int i = 0; i < s->contexts * ranks(s); i++)
		if (i % ranks(s) == s->job->opt.die_rank && atomic_load(&s->thread.queues[i].result) == ncclSuccess)
			return false;
	return true;
}

_Noreturn void work_rmadie(struct job *job)
{
	struct random r = {mix(job->opt.seed ^ 0xdead)};
	long fatal = 50 + (long)random_below(&r, 200);
	uint64_t death = 0, last = 0;
	double slowest = 0;
	unsigned idle = 0;
	struct play p;

	if (!play_open(job, &p))
		die("rmadie needs the RMA interface");
	rendezvous_barrier(&job->rv);
	watchdog_expect_loss();
	for (bool over = false; !over;) {
		bool moved = false;

		for (int i = 0; i < 2; i++)
			for (int k = 0; k < p.sides[i].contexts * job->opt.nranks; k++)
				moved = flow_step(&p.sides[i], &p.sides[i].flows[k], ~0ul) || moved;
		if (job->opt.rank == job->opt.die_rank && p.sides[0].messages + p.sides[1].messages >= fatal)
			kill(getpid(), SIGKILL);
		if (!death && now_ns() - last > 1000000) {
			last = now_ns();
			if (rendezvous_lost(&job->rv, 0))
				death = now_ns();
		}
		if (death) {
			double ms = (double)(now_ns() - death) / 1e6;

			for (int i = 0; i < 2; i++)
				probe(&p.sides[i]);
			over = ms >= job->opt.die_limit_ms || (ms >= 1000 && told(&p.sides[0]) && told(&p.sides[1]));
		}
		if (moved) {
			idle = 0;
			watchdog_fed();
		} else {
			progress_idle(&idle);
		}
	}
	for (int i = 0; i < 2; i++) {
		double ms = judge(&p.sides[i], death);

		slowest = ms > slowest ? ms : slowest;
	}
	nanosleep(&(struct timespec){.tv_sec = 1}, NULL); /* the other survivors judge too */
	play_close(job, &p);
	report_death(job, slowest);
	report_close(job, wrongs() == 0, wrongs());
	if (wrongs())
		die("FAILED, #wrong %ld", wrongs());
	say("ok: rank %d died, and every operation to it said so, the last after %.1f ms", job->opt.die_rank, slowest);
	exit(0);
}
