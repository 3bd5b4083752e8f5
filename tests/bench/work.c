/* What is measured. Times of both processes are comparable: they run on one machine. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "bench.h"

/* A flow is the messages of one connection, in order; slot i % depth of its buffer holds message i. */
struct flow {
	struct conn *conn;
	unsigned char *slots;
	size_t stride;
	uint64_t posted, done;
	uint64_t request[MAX_DEPTH];
};

static unsigned char *slot(const struct flow *f, uint64_t message, int depth)
{
	return f->slots + message % (uint64_t)depth * f->stride;
}

/* A message carries its number in front and at its end, so that one that is lost, late or torn is seen. */
static void stamp(unsigned char *data, size_t size, uint64_t number)
{
	memcpy(data + size - 8, &number, 8);
	memcpy(data, &number, 8);
}

static void check(const unsigned char *data, size_t size, uint64_t number)
{
	uint64_t first, last;

	memcpy(&first, data, 8);
	memcpy(&last, data + size - 8, 8);
	if (first != number || last != number)
		die("message %llu of %zu bytes has %llu in front and %llu at its end", (unsigned long long)number, size,
		    (unsigned long long)first, (unsigned long long)last);
}

static bool post(struct flow *f, size_t size, int depth)
{
	unsigned char *data = slot(f, f->posted, depth);
	uint64_t *request = &f->request[f->posted % (uint64_t)depth];

	if (f->conn->sending) {
		stamp(data, size, f->posted);
		return net_isend(f->conn, data, size, request);
	}
	return net_irecv(f->conn, data, size, request);
}

static bool take(struct flow *f, size_t size, int depth)
{
	if (!net_test(f->conn, f->request[f->done % (uint64_t)depth]))
		return false;
	if (!f->conn->sending)
		check(slot(f, f->done, depth), size, f->done);
	return true;
}

/* One round over the flows, each up to `until`; true if something moved. */
static bool step(struct flow *flows, int n, size_t size, int depth, uint64_t until)
{
	bool moved = false;

	for (struct flow *f = flows; f < flows + n; f++) {
		if (f->posted < until && f->posted - f->done < (uint64_t)depth && post(f, size, depth)) {
			f->posted++;
			moved = true;
		}
		if (f->done < f->posted && take(f, size, depth)) {
			f->done++;
			moved = true;
		}
	}
	return moved;
}

static uint64_t total_done(const struct flow *flows, int n)
{
	uint64_t done = 0;

	for (int i = 0; i < n; i++)
		done += flows[i].done;
	return done;
}

/* cpu_ns is the processor time of the whole process so far. */
static uint64_t cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000u;
}

struct pass {
	double seconds;  /* from the moment the pipe was full to the last message */
	uint64_t timed;  /* messages in that time */
	uint64_t cpu;    /* ns of this process, from start to end */
	uint64_t count;
};

/*
 * Two processes that wait actively cannot share a processor and tell what a message costs: how often
 * each looks in vain is up to the scheduler, and to who else is there. So one runs until it finds
 * nothing to do, and then the other.
 */
static bool give_turn(void)
{
	meet_give(false);
	return meet_take();
}

static struct pass run_pass(const struct options *o, struct flow *flows, int n, size_t size, uint64_t count)
{
	int depth = o->depth;
	uint64_t fill = (uint64_t)depth * (uint64_t)n, before = total_done(flows, n), began = 0;
	uint64_t until = flows[0].done + count, all = before + count * (uint64_t)n;
	struct pass p = {.count = count * (uint64_t)n};
	bool turns = o->turns;
	uint64_t cpu;

	meet_barrier();
	cpu = cpu_ns();
	if (turns && o->rank == 1)
		turns = meet_take();
	for (uint64_t done = before; done < all;) {
		bool moved = step(flows, n, size, depth, until);

		if (!moved) {
			if (turns)
				turns = give_turn();
			else
				sched_yield();
			continue;
		}
		done = total_done(flows, n);
		if (!began && done - before >= fill) {
			began = now_ns();
			p.timed = all - done;
		}
	}
	if (turns)
		meet_give(true);
	p.seconds = (double)(now_ns() - began) / 1e9;
	p.cpu = cpu_ns() - cpu;
	return p;
}

static void open_flows(struct flow *flows, struct conn *conns, int n, size_t most, int depth)
{
	size_t stride = (most + 4095) / 4096 * 4096;

	for (int i = 0; i < n; i++) {
		flows[i] = (struct flow){.conn = &conns[i], .stride = stride, .slots = map_memory(stride * (size_t)depth)};
		net_register(&conns[i], flows[i].slots, stride * (size_t)depth);
	}
}

static size_t largest(const struct options *o)
{
	size_t most = 8;

	for (int i = 0; i < o->nsizes; i++)
		if (o->sizes[i] > most)
			most = o->sizes[i];
	return most;
}

static void stream_once(const struct options *o, struct flow *flows, size_t size, uint64_t count)
{
	struct pass p = run_pass(o, flows, o->conns, size, count);
	uint64_t peer_cpu;

	meet_exchange(&p.cpu, &peer_cpu, sizeof peer_cpu);
	p.seconds = agree(o->rank, p.seconds);
	p.timed = (uint64_t)agree(o->rank, (double)p.timed);
	if (o->rank == 0)
		printf("{\"size\": %zu, \"rate\": %.6g, \"cpu_ns\": %.6g, \"messages\": %llu}\n", size,
		       (double)p.timed * (double)size / p.seconds, (double)(p.cpu + peer_cpu) / (double)p.count,
		       (unsigned long long)p.count);
	fflush(stdout);
}

/* stream: as many messages as go, depth of them outstanding on each connection. */
static void work_stream(const struct options *o)
{
	struct conn *conns = calloc((size_t)o->conns, sizeof *conns);
	struct flow *flows = calloc((size_t)o->conns, sizeof *flows);

	for (int i = 0; i < o->conns; i++)
		conns[i].sending = (o->rank == 0) != (o->both && i % 2);
	net_connect(conns, o->conns);
	open_flows(flows, conns, o->conns, largest(o), o->depth);
	for (int i = 0; i < o->nsizes; i++) {
		size_t size = o->sizes[i];
		uint64_t count = 4 * (uint64_t)o->depth;
		struct pass p = run_pass(o, flows, o->conns, size, count);

		/* Passes grow until one is long enough to tell how many messages the real ones have. */
		while (agree(o->rank, p.seconds) < 0.02)
			p = run_pass(o, flows, o->conns, size, count *= 4);
		count = (uint64_t)agree(o->rank, (double)p.timed / p.seconds * o->seconds / o->conns) + 2 * (uint64_t)o->depth;
		for (int measured = 0; wanted(o, measured); measured++)
			stream_once(o, flows, size, count);
	}
	net_close(conns, o->conns);
}

/*
 * outage: a stream during which somebody else does something to the cables. Says when it begins, and at its end when
 * each message was done at the sender, in ns of the monotonic clock.
 */
static void work_outage(const struct options *o)
{
	struct conn conn = {.sending = o->rank == 0};
	struct flow flow;
	size_t size = o->sizes[0];
	uint64_t count = 4 * (uint64_t)o->depth, *at;
	struct pass p;

	net_connect(&conn, 1);
	open_flows(&flow, &conn, 1, size, o->depth);
	while (p = run_pass(o, &flow, 1, size, count), agree(o->rank, p.seconds) < 0.1)
		count *= 4;
	count = (uint64_t)agree(o->rank, (double)p.timed / p.seconds * o->seconds) + 1;
	at = calloc(count, sizeof *at);
	meet_barrier();
	if (o->rank == 0)
		printf("{\"began\": %llu}\n", (unsigned long long)now_ns());
	fflush(stdout);
	for (uint64_t first = flow.done, last = first + count; flow.done < last;) {
		uint64_t before = flow.done;

		if (!step(&flow, 1, size, o->depth, last))
			sched_yield();
		else if (flow.done > before)
			at[before - first] = now_ns();
	}
	meet_barrier();
	print_times(o, size, at, count);
	free(at);
	net_close(&conn, 1);
}

static void wait_post(struct flow *f, size_t size, int depth)
{
	while (!post(f, size, depth))
		sched_yield();
	f->posted++;
}

static void wait_done(struct flow *f)
{
	while (!net_test(f->conn, f->request[f->done % 2]))
		sched_yield();
	f->done++;
}

/*
 * pingpong: a message at a time, back and forth. The sender puts the time before isend into the
 * message, so each one tells how long it took to the receiver's test. A second receive is always
 * posted: the sender never waits for it.
 */
static void rounds(const struct options *o, struct flow *out, struct flow *in, size_t size, size_t most, uint64_t n,
                   double *us)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t sent, now;

		for (int turn = 0; turn < 2; turn++) {
			if (turn == o->rank) {
				unsigned char *data = slot(out, out->posted, 2);
				uint64_t *request = &out->request[out->posted % 2];

				if (o->pause > 0)
					nanosleep(&(struct timespec){.tv_sec = o->pause / 1000000, .tv_nsec = o->pause % 1000000 * 1000l}, NULL);
				for (;;) {
					now = now_ns();
					memcpy(data, &now, 8);
					if (net_isend(out->conn, data, size, request))
						break;
					sched_yield();
				}
				out->posted++;
				wait_done(out);
			} else {
				const unsigned char *data = slot(in, in->done, 2);

				wait_done(in);
				now = now_ns();
				memcpy(&sent, data, 8);
				us[i] = (double)(now - sent) / 1e3;
				wait_post(in, most, 2);
			}
		}
	}
}

static void work_pingpong(const struct options *o)
{
	enum { MOST = 100000, TRIAL = 50 };
	struct conn conns[2] = {{.sending = o->rank == 0}, {.sending = o->rank == 1}};
	struct flow flows[2], *out = &flows[o->rank], *in = &flows[1 - o->rank];
	double *us = malloc(2 * MOST * sizeof *us);

	net_connect(conns, 2);
	open_flows(flows, conns, 2, largest(o), 2);
	wait_post(in, largest(o), 2);
	wait_post(in, largest(o), 2);
	for (int i = 0; i < o->nsizes; i++) {
		uint64_t n, began;

		meet_barrier();
		rounds(o, out, in, o->sizes[i], largest(o), TRIAL, us);
		began = now_ns();
		rounds(o, out, in, o->sizes[i], largest(o), TRIAL, us);
		n = (uint64_t)agree(o->rank, o->seconds * 1e9 * TRIAL / (double)(now_ns() - began + 1));
		n = n < TRIAL ? TRIAL : n > MOST ? MOST : n;
		for (int measured = 0; wanted(o, measured); measured++) {
			rounds(o, out, in, o->sizes[i], largest(o), n, us);
			meet_exchange(us, us + n, n * sizeof *us);
			qsort(us, 2 * n, sizeof *us, by_value);
			if (o->rank == 0)
				printf("{\"size\": %zu, \"us\": %.6g, \"us_99\": %.6g, \"messages\": %llu}\n", o->sizes[i], us[n],
				       us[2 * n * 99 / 100], (unsigned long long)(2 * n));
			fflush(stdout);
		}
	}
	net_close(conns, 2);
}

static void burst_once(const struct options *o, struct flow *flows, size_t size)
{
	enum { MOST = 4096 };
	double us[MOST];
	int n = 0;

	for (uint64_t end = now_ns() + (uint64_t)(o->seconds * 1e9); agree(o->rank, now_ns() < end && n < MOST) != 0; n++) {
		uint64_t at, peer, burst = flows[0].done + 1, all = burst * (uint64_t)o->conns;

		if (o->rank == 1)
			while (flows[o->conns - 1].posted < burst)
				step(flows, o->conns, size, 1, burst);
		meet_barrier();
		at = now_ns();
		while (total_done(flows, o->conns) < all)
			if (!step(flows, o->conns, size, 1, burst))
				sched_yield();
		if (o->rank == 1)
			at = now_ns();
		meet_exchange(&at, &peer, sizeof at);
		us[n] = (o->rank == 1 ? (double)(at - peer) : (double)(peer - at)) / 1e3;
	}
	qsort(us, (size_t)n, sizeof *us, by_value);
	if (o->rank == 0)
		printf("{\"size\": %zu, \"us\": %.6g, \"messages\": %d}\n", o->sizes[0], us[n / 2], n * o->conns);
	fflush(stdout);
}

/* burst: one message on each of many connections at once, their sizes adding up to the one given. */
static void work_burst(const struct options *o)
{
	struct conn *conns = calloc((size_t)o->conns, sizeof *conns);
	struct flow *flows = calloc((size_t)o->conns, sizeof *flows);
	size_t size = o->sizes[0] / (size_t)o->conns;

	if (size < 8)
		die("burst: %zu bytes over %d connections is less than 8 each", o->sizes[0], o->conns);
	for (int i = 0; i < o->conns; i++)
		conns[i].sending = o->rank == 0;
	net_connect(conns, o->conns);
	open_flows(flows, conns, o->conns, size, 1);
	for (int measured = 0; wanted(o, measured); measured++)
		burst_once(o, flows, size);
	net_close(conns, o->conns);
}

/* wait_in_vain makes calls that find nothing: a round of tests over all that is outstanding, or sends without a receive. */
static void wait_in_vain(struct flow *f, int depth, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		if (f->conn->sending) {
			if (net_isend(f->conn, f->slots, 8, &f->request[0]))
				die("isend found a receive that nobody posted");
			continue;
		}
		for (uint64_t m = f->done; m < f->done + (uint64_t)depth; m++)
			if (net_test(f->conn, f->request[m % (uint64_t)depth]))
				die("test found a message that nobody sent");
	}
}

/*
 * vain_ns is what such a call takes. Whatever else runs only adds to it: the least of many short times
 * counts. They are so short that some see no sched_yield of tests/fakeverbs, one in 1024 polls.
 */
static double vain_ns(const struct options *o, struct flow *f)
{
	int round = f->conn->sending ? 1 : o->depth, rounds = 512 / round;
	uint64_t end = now_ns() + (uint64_t)(o->seconds * 1e9), least = UINT64_MAX;

	for (uint64_t now = now_ns(), then; now < end; now = then) {
		wait_in_vain(f, o->depth, rounds);
		then = now_ns();
		least = then - now < least ? then - now : least;
	}
	return (double)least / (rounds * round);
}

/* vain: the calls that NCCL makes most, isend without a receive and test of what has not come. One process at a time. */
static void work_vain(const struct options *o)
{
	struct conn conns[2] = {{.sending = o->rank == 0}, {.sending = o->rank == 0}};
	struct flow flows[2], *with = &flows[0], *without = &flows[1]; /* receives */

	net_connect(conns, 2);
	open_flows(flows, conns, 2, 8, o->depth);
	for (int measured = 0; wanted(o, measured); measured++) {
		uint64_t until = with->done + (uint64_t)o->depth;
		double own = 0, peer;

		while (o->rank == 1 && with->posted < until)
			if (post(with, 8, o->depth))
				with->posted++;
		meet_barrier();
		if (o->rank == 0)
			own = vain_ns(o, without);
		meet_barrier();
		if (o->rank == 1)
			own = vain_ns(o, with);
		meet_exchange(&own, &peer, sizeof own);
		if (o->rank == 0)
			printf("{\"size\": 8, \"isend_ns\": %.6g, \"test_ns\": %.6g}\n", own, peer);
		fflush(stdout);
		while (with->done < until)
			if (!step(with, 1, 8, o->depth, until))
				sched_yield();
	}
	net_close(conns, 2);
}

/* resident is the anonymous memory of this process, in bytes. */
static double resident(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	double kb = 0;

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "RssAnon: %lf", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb * 1024;
}

/*
 * setup: opens all connections, then sends enough over each to use all of its queues and rings,
 * and tells what a connection then takes of memory.
 */
static void work_setup(const struct options *o)
{
	enum { USE = 640 };
	struct conn *conns = calloc((size_t)o->conns, sizeof *conns);
	struct flow *flows = calloc((size_t)o->conns, sizeof *flows);
	unsigned char *slots = map_memory(4096 * (size_t)o->depth);
	double own, peer, before, seconds, seconds_peer;
	uint64_t began;

	for (int i = 0; i < o->conns; i++) {
		conns[i].sending = o->rank == 0;
		flows[i] = (struct flow){.conn = &conns[i], .stride = 4096, .slots = slots};
	}
	meet_barrier();
	before = resident();
	began = now_ns();
	net_connect(conns, o->conns);
	seconds = (double)(now_ns() - began) / 1e9;
	meet_exchange(&seconds, &seconds_peer, sizeof seconds);
	for (int i = 0; i < o->conns; i++)
		net_register(&conns[i], slots, 4096 * (size_t)o->depth);
	for (int i = 0; i < o->conns; i++)
		run_pass(o, &flows[i], 1, 8, USE);
	own = (resident() - before) / o->conns - (double)net_beside();
	meet_exchange(&own, &peer, sizeof own);
	if (o->rank == 0)
		printf("{\"conns\": %d, \"seconds\": %.6g, \"send_bytes\": %.0f, \"recv_bytes\": %.0f}\n", o->conns,
		       seconds > seconds_peer ? seconds : seconds_peer, own, peer);
	net_close(conns, o->conns);
}

void work_run(const struct options *o)
{
	static const struct {
		const char *name;
		void (*run)(const struct options *);
	} works[] = {{"stream", work_stream}, {"pingpong", work_pingpong}, {"burst", work_burst},
	             {"vain", work_vain}, {"setup", work_setup}, {"outage", work_outage}};

	for (size_t i = 0; i < sizeof works / sizeof *works; i++)
		if (strcmp(works[i].name, o->work) == 0) {
			works[i].run(o);
			fflush(stdout);
			return;
		}
	die("--work %s: want stream, pingpong, burst, vain, setup or outage", o->work);
}
