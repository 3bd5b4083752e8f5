/* Runs a collective over all sizes: fill, time, check, a row in the table. */
#include <stdlib.h>
#include <string.h>

#include "collective.h"
#include "log.h"
#include "report.h"
#include "watchdog.h"
#include "work.h"

/* After each message only this much behind it is looked at; all of it once the operation is over. */
enum { TAIL_LOOK = 1024 };

uint64_t chunks_of(const struct buffers *b, size_t words)
{
	size_t chunk = b->comm->job->opt.chunk / 8;

	return words ? (words + chunk - 1) / chunk : 1;
}

size_t chunk_range(const struct buffers *b, size_t words, uint64_t chunk, size_t *at)
{
	size_t size = b->comm->job->opt.chunk / 8;

	*at = chunk * size;
	if (*at >= words) {
		*at = words;
		return 0;
	}
	return words - *at < size ? words - *at : size;
}

size_t identity_count(int nranks, size_t size)
{
	(void)nranks;
	return size / 8;
}

double one(int nranks)
{
	(void)nranks;
	return 1;
}

void chunk_send(struct stream *s, uint64_t index, struct message *m, const uint64_t *from, size_t words)
{
	*m = (struct message){
		.n = 1, .data = {stream_slot(s, index)}, .sizes = {words * 8},
		.tags = {s->conn->comm->job->opt.rank}, .mhandle = s->conn->mhandle,
	};
	memory_put(m->data[0], from, words * 8);
}

bool chunk_recv(struct stream *s, uint64_t index, struct message *m)
{
	*m = (struct message){
		.n = 1, .data = {stream_slot(s, index)}, .sizes = {s->conn->comm->job->opt.chunk},
		.tags = {s->conn->peer}, .mhandle = s->conn->second_mhandle,
	};
	return true;
}

void chunk_take(struct stream *s, uint64_t index, struct message *m, uint64_t *to, size_t words, bool add)
{
	const struct conn *c = s->conn;
	size_t size = words * 8, got = (size_t)(m->got[0] > 0 ? m->got[0] : 0), look = c->stride - size, touched;
	uint64_t stage[512];

	if (m->got[0] < 0 || got != size)
		wrong("comm %d: message %llu from rank %d: %zu bytes were sent, test reports %d", c->comm->index,
		      (unsigned long long)index, c->peer, size, m->got[0]);
	look = look < TAIL_LOOK ? look : TAIL_LOOK;
	if ((touched = canary_check(m->data[0] + size, look)) < look)
		wrong("comm %d: message %llu from rank %d: byte %zu behind its %zu was written", c->comm->index,
		      (unsigned long long)index, c->peer, touched, size);
	if (canary_check(m->data[0] - 8, 8) < 8)
		wrong("comm %d: message %llu from rank %d: bytes before it were written", c->comm->index,
		      (unsigned long long)index, c->peer);
	for (size_t at = 0, n; add && at < words; at += n) {
		n = words - at < 512 ? words - at : 512;
		memory_get(stage, m->data[0] + at * 8, n * 8);
		for (size_t i = 0; i < n; i++)
			to[at + i] += stage[i];
	}
	if (!add)
		memory_get(to, m->data[0], size);
	canary_fill(m->data[0], size);
}

/* sweep: with every message taken, all of the receive buffers is canary again. */
static void sweep(struct comm *comm)
{
	for (int peer = 0; peer < comm->job->opt.nranks; peer++) {
		struct region *r = &comm->recv[peer].slots;
		size_t touched = canary_check(r->base, r->size);

		if (touched < r->size) {
			wrong("comm %d: the receive buffer of rank %d was written at offset %zu outside of any message",
			      comm->index, peer, touched);
			canary_fill(r->base, r->size);
		}
	}
}

static const struct collective *find(const char *name)
{
	static const struct collective *const all[] = {&allreduce, &allgather, &alltoall, &sendrecv, &tree, &doubling};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i]->name, name) == 0)
			return all[i];
	return NULL;
}

/* run does the operation once on every communicator, repeated, and returns the slowest rank's
 * seconds; wrong words are added to *bad. */
static double run(struct job *job, struct buffers *all, int repeat, long *bad)
{
	struct operation operations[job->opt.comms];
	double elapsed;
	uint64_t began;

	job->sequence++;
	for (int k = 0; k < job->opt.comms; k++) {
		struct buffers *b = &all[k];

		b->sequence = job->sequence;
		b->repeat = repeat;
		b->collective->fill(b);
		canary_fill(b->out, b->out_words * 8);
		b->collective->start(b);
		operations[k] = (struct operation){.streams = b->streams, .n = b->nstreams};
	}
	rendezvous_barrier(&job->rv);
	began = now_ns();
	operations_run(job, operations);
	elapsed = (double)(now_ns() - began) / 1e9;
	for (int k = 0; k < job->opt.comms; k++) {
		*bad += (long)all[k].collective->check(&all[k]);
		sweep(&job->comms[k]);
	}
	watchdog_fed();
	return rendezvous_max(&job->rv, elapsed);
}

static void run_size(struct job *job, const struct collective *c, size_t size)
{
	int n = job->opt.nranks, batches = job->opt.check_once ? 1 : job->opt.iters;
	int channels = job->opt.channels;
	size_t count = c->count(n, size / (size_t)channels > 8 ? size / (size_t)channels : 8);
	struct buffers all[job->opt.comms];
	struct result row = {.size = c->size(n, count) * (size_t)channels, .count = count * (size_t)channels, .type = "uint64", .redop = c->redop};
	double seconds = 0;
	long before = wrongs(), bad = 0;

	for (int k = 0; k < job->opt.comms; k++) {
		struct buffers *b = &all[k];

		*b = (struct buffers){.collective = c, .comm = &job->comms[k], .count = count};
		b->in_words = c->in_words(n, count);
		b->out_words = c->out_words(n, count);
		b->in = malloc(b->in_words * 8);
		b->out = malloc(b->out_words * 8);
		b->streams = calloc(2 * (size_t)n, sizeof *b->streams);
		if (!b->in || !b->out || !b->streams)
			die("no memory for %s of %zu bytes", c->name, row.size);
	}
	for (int i = 0; i < job->opt.warmup; i++)
		run(job, all, 1, &bad);
	for (int i = 0; i < batches; i++)
		seconds += run(job, all, job->opt.iters / batches, &bad);
	for (int k = 0; k < job->opt.comms; k++) {
		free(all[k].in);
		free(all[k].out);
		free(all[k].streams);
	}
	if (bad)
		wrong("%s of %zu bytes: %ld words are wrong", c->name, row.size, bad);
	row.wrong = rendezvous_sum(&job->rv, bad ? bad : wrongs() - before);
	row.time_us = seconds / job->opt.iters * c->time_share(n) * 1e6;
	row.algbw = row.time_us > 0 ? (double)row.size * (job->opt.comms / channels) / row.time_us / 1e3 : 0;
	row.busbw = row.algbw * c->bus_factor(n);
	report_row(job, &row);
}

bool work_collective(struct job *job, const char *name)
{
	const struct collective *c = find(name);

	if (!c)
		return false;
	report_table(job, name);
	for (size_t size = job->opt.min; size <= job->opt.max; size *= job->opt.factor)
		run_size(job, c, size);
	report_table_end(job);
	return true;
}
