/*
 * rma: the plugin's RMA interface, called as NCCL calls it. Two communicators of the interface are open at once, that of the host RMA and
 * that of the GIN proxy, each with a thread of its own, while the user's thread queues operations, registers windows and looks at
 * signals. rmadie ends a rank meanwhile.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "memory.h"
#include "progress.h"
#include "report.h"
#include "rma_side.h"
#include "watchdog.h"
#include "work.h"

enum { MESSAGES = 60 }; /* of a flow in a phase */

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
		for (int k = 0; p->sides[i].thread.queues && k < p->sides[i].contexts * side_ranks(&p->sides[i]); k++) {
			struct side *s = &p->sides[i];
			struct flow *f = &s->flows[k];
			struct rma_queue *q = &s->thread.queues[k];

			say("%s, context %d, rank %d: sent %lu, acknowledged %lu, received %lu; operations: %lu queued, %lu issued, %lu completed", side_name(s),
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
	side_need(&p->sides[1], p->rma.table->finalize(p->sides[1].init), "finalize");
	side_need(&p->sides[0], p->rma.table->finalize(p->sides[0].init), "finalize");
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
	/* With --until the last phase is repeated. */
	for (unsigned long phase = 0; phase < PHASES || (job->opt.until && rendezvous_from_root(&job->rv, !work_over(job))); phase++) {
		say("GIN: phase %lu begins", phase);
		for (bool over[2] = {false}; !over[0] || !over[1];) {
			bool moved = false;

			for (int i = 0; i < 2; i++)
				over[i] = side_step(&p.sides[i], each * (phase + 1), &moved);
			if (moved) {
				idle = 0;
				watchdog_fed();
			} else {
				progress_idle(&idle);
			}
		}
		for (int i = 0; i < 2 && phase + 1 < PHASES; i++) {
			if (p.sides[i].registered == p.sides[i].phase + 1)
				side_register_phase(&p.sides[i]);
			p.sides[i].phase++;
		}
		rendezvous_barrier(&job->rv); /* the words of the next phase go on from these */
	}
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < p.sides[i].contexts * job->opt.nranks; k++) {
			struct flow *f = &p.sides[i].flows[k];
			struct rma_call call = {.context = f->context, .rank = (uint32_t)f->peer};

			while (!rma_thread_done(&p.sides[i].thread, &call, atomic_load(&rma_thread_queue(&p.sides[i].thread, f->context, f->peer)->queued))) {
				side_check(&p.sides[i]);
				progress_idle(&idle);
			}
		}
	rendezvous_barrier(&job->rv);
	for (int i = 0; i < 2; i++)
		side_check_end(&p.sides[i]);
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

	for (int i = 0; i < s->contexts * side_ranks(s); i++) {
		struct rma_queue *q = &s->thread.queues[i];
		ncclResult_t result = (ncclResult_t)atomic_load(&q->result);
		double ms = ((double)atomic_load(&q->failed_ns) - (double)death) / 1e6;
		int peer = i % side_ranks(s);

		if (peer != s->job->opt.die_rank && result != ncclSuccess)
			wrong("%s: %s to rank %d, which lives, returned %s (%d)", side_name(s), atomic_load(&q->call), peer, result_name(result), (int)result);
		if (peer != s->job->opt.die_rank)
			continue;
		if (result == ncclSuccess)
			wrong("%s: operations to the dead rank %d went on without an error for %g ms", side_name(s), peer, s->job->opt.die_limit_ms);
		else if (result != ncclRemoteError)
			wrong("%s: %s to the dead rank %d returned %s (%d), ncclRemoteError (6) is wanted", side_name(s), atomic_load(&q->call), peer,
			      result_name(result), (int)result);
		else if (ms > slowest)
			slowest = ms;
	}
	side_need(s, rma_query_last_error(s->rma, s->ctx, &failed), "queryLastError");
	if (!failed)
		wrong("%s: queryLastError reports no error after the death of rank %d", side_name(s), s->job->opt.die_rank);
	return slowest;
}

/* probe queues a signal to the dead rank where nothing is outstanding that could fail. */
static void probe(struct side *s)
{
	for (int i = 0; i < s->contexts * side_ranks(s); i++) {
		struct flow *f = &s->flows[i];
		struct rma_queue *q = rma_thread_queue(&s->thread, f->context, f->peer);
		struct rma_call call = flow_signal(s, f, side_shared(s), 1);

		if (f->peer == s->job->opt.die_rank && atomic_load(&q->queued) == atomic_load(&q->completed))
			side_push(s, RMA_PUT, &call, NULL);
	}
}

/* told: all queues to the dead rank have failed. */
static bool told(const struct side *s)
{
	for (int i = 0; i < s->contexts * side_ranks(s); i++)
		if (i % side_ranks(s) == s->job->opt.die_rank && atomic_load(&s->thread.queues[i].result) == ncclSuccess)
			return false;
	return true;
}

/*
 * await_judgements tells the other survivors that this rank has judged, and waits until they have: a rank that has left looks dead to them. A
 * survivor is not waited for when the queue to it has failed: either that was judged to be wrong, or the survivor has judged and left.
 */
static void await_judgements(struct side *s)
{
	int n = side_ranks(s);
	unsigned long numbers[n];
	unsigned idle = 0;
	bool waiting = true;

	memset(numbers, 0, sizeof numbers);
	while (waiting) {
		uint64_t others = 0;

		waiting = false;
		for (int peer = 0; peer < n; peer++) {
			struct rma_call call = flow_signal(s, &s->flows[peer], side_judged(s), 1);

			if (peer == s->job->opt.die_rank || peer == side_rank(s) ||
			    atomic_load(&rma_thread_queue(&s->thread, 0, peer)->result) != ncclSuccess)
				continue;
			others++;
			if (!numbers[peer])
				side_push(s, RMA_PUT, &call, &numbers[peer]);
			waiting = waiting || !numbers[peer] || !rma_thread_done(&s->thread, &call, numbers[peer]);
		}
		waiting = waiting || side_word(s, side_judged(s)) < others;
		progress_idle(&idle);
	}
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
	await_judgements(&p.sides[1]);
	play_close(job, &p);
	report_death(job, slowest);
	report_close(job, wrongs() == 0, wrongs());
	if (wrongs())
		die("FAILED, #wrong %ld", wrongs());
	say("ok: rank %d died, and every operation to it said so, the last after %.1f ms", job->opt.die_rank, slowest);
	exit(0);
}
