/* latency: rank 0 and one other rank at a time send a message back and forth. */
#include <stdlib.h>

#include "log.h"
#include "progress.h"
#include "report.h"
#include "watchdog.h"
#include "work.h"

struct pingpong {
	struct comm *comm;
	int peer;
	bool first;
	size_t size;
	int rounds;
	double *times; /* half of a round trip each, in us */
	long bad;
};

static void must(ncclResult_t result, const char *call, int peer)
{
	if (result != ncclSuccess)
		die("latency: %s with rank %d failed: %s (%d)", call, peer, result_name(result), (int)result);
}

static void settle(struct pingpong *p, void *request, int *size)
{
	struct net *net = &p->comm->job->net;
	unsigned idle = 0;
	int done = 0;

	for (;;) {
		must(net_test(net, request, &done, 1, size), "test", p->peer);
		if (done)
			return;
		progress_idle(&idle);
	}
}

static void *post_recv(struct pingpong *p, uint64_t index)
{
	struct conn *c = &p->comm->recv[p->peer];
	void *request = NULL, *data = conn_slot(c, index);
	size_t capacity = p->comm->job->opt.chunk;
	int tag = p->peer;

	while (!request)
		must(net_irecv(&p->comm->job->net, c->net_comm, 1, &data, &capacity, &tag, &c->mhandle, NULL, false,
		               &request), "irecv", p->peer);
	return request;
}

static void *post_send(struct pingpong *p, uint64_t index)
{
	struct conn *c = &p->comm->send[p->peer];
	void *request = NULL;
	unsigned idle = 0;

	for (;;) {
		must(net_isend(&p->comm->job->net, c->net_comm, conn_slot(c, index), p->size,
		               p->comm->job->opt.rank, c->mhandle, NULL, &request), "isend", p->peer);
		if (request)
			return request;
		progress_idle(&idle);
	}
}

static void take(struct pingpong *p, void *request, uint64_t index, uint64_t key)
{
	struct conn *c = &p->comm->recv[p->peer];
	unsigned char *data = conn_slot(c, index);
	size_t first;
	int size = -1;

	settle(p, request, &size);
	if (size > 0 && memory_is_device(data)) {
		void *at = data, *flush;

		must(net_iflush(&p->comm->job->net, c->net_comm, 1, &at, &size, &c->mhandle, &flush), "iflush", p->peer);
		if (flush)
			settle(p, flush, NULL);
	}
	if (size != (int)p->size || pattern_check(data, p->size, key, index * 8, &first))
		p->bad++;
	canary_fill(data, p->size);
}

static void pingpong(void *arg)
{
	struct pingpong *p = arg;
	struct options *o = &p->comm->job->opt;
	struct conn *send = &p->comm->send[p->peer];
	uint64_t theirs = pattern_key(o->seed, 0, p->peer, o->rank, p->size);
	uint64_t ours = pattern_key(o->seed, 0, o->rank, p->peer, p->size);

	for (int i = 0; i < p->rounds; i++) {
		void *recv = post_recv(p, (uint64_t)i);
		uint64_t began;

		if (!p->first)
			take(p, recv, (uint64_t)i, theirs);
		pattern_fill(conn_slot(send, (uint64_t)i), p->size, ours, (size_t)i * 8);
		began = now_ns();
		settle(p, post_send(p, (uint64_t)i), NULL);
		if (p->first)
			take(p, recv, (uint64_t)i, theirs);
		p->times[i] = (double)(now_ns() - began) / 2e3;
		watchdog_fed();
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(struct job *job, int peer, size_t size)
{
	int rank = job->opt.rank, rounds = job->opt.iters < 20 ? 20 : job->opt.iters;
	struct pingpong p = {
		.comm = &job->comms[0], .peer = rank ? 0 : peer, .first = rank == 0, .size = size, .rounds = rounds,
	};

	rendezvous_barrier(&job->rv);
	if (rank && rank != peer)
		return;
	p.times = calloc((size_t)rounds, sizeof *p.times);
	worker_give(&p.comm->progress, pingpong, &p);
	worker_wait(&p.comm->progress);
	if (p.bad)
		wrong("latency: %ld of %d messages of %zu bytes from rank %d are wrong", p.bad, rounds, size, p.peer);
	qsort(p.times, (size_t)rounds, sizeof *p.times, by_value);
	report_latency(job, peer, size, p.times[rounds / 2], p.times[rounds * 99 / 100], p.times[rounds - 1]);
	free(p.times);
}

void work_latency(struct job *job)
{
	size_t most = job->opt.max < job->opt.chunk ? job->opt.max : job->opt.chunk;

	if (job->opt.rank == 0)
		fprintf(log_out(),
		        "#\n# latency: half of a round trip\n#\n"
		        "#       size   ranks        median         99%%     longest\n"
		        "#        (B)                  (us)        (us)        (us)\n");
	for (int peer = 1; peer < job->opt.nranks; peer++)
		for (size_t size = job->opt.min; size <= most; size *= job->opt.factor)
			measure(job, peer, size);
	rendezvous_barrier(&job->rv);
}
