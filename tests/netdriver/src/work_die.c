/*
 * die: in the middle of traffic between all ranks, one kills itself. The others must be told
 * ncclRemoteError, soon, on their connections with it, and on no other.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "orphan.h"
#include "progress.h"
#include "report.h"
#include "watchdog.h"
#include "work.h"

/* Without rank 0 the survivors cannot meet. They then stay connected this long, so that none hears of another's leaving. */
static const uint64_t linger_ns = 500000000u;

struct mortal {
	struct comm *comm;
	struct stream *streams; /* sends, then receives */
	uint64_t *failed_ns;    /* when a stream did, 0 if not */
	uint64_t fatal_message; /* of the rank that dies */
};

static _Atomic uint64_t death_ns;

static struct options *options(const struct mortal *m)
{
	return &m->comm->job->opt;
}

static uint64_t key(const struct stream *s, uint64_t index)
{
	int own = s->conn->comm->job->opt.rank, peer = s->conn->peer;

	return pattern_key(s->conn->comm->job->opt.seed, s->conn->comm->index, s->conn->sending ? own : peer,
	                   s->conn->sending ? peer : own, index);
}

static bool mortal_send(struct stream *s, uint64_t index, struct message *m)
{
	size_t size = s->conn->comm->job->opt.chunk;

	*m = (struct message){
		.n = 1, .data = {stream_slot(s, index)}, .sizes = {size}, .tags = {0}, .mhandle = s->conn->mhandle,
	};
	pattern_fill(m->data[0], size, key(s, index), 0);
	return true;
}

static bool mortal_recv(struct stream *s, uint64_t index, struct message *m)
{
	*m = (struct message){
		.n = 1, .data = {stream_slot(s, index)}, .sizes = {s->conn->comm->job->opt.chunk}, .tags = {0},
		.mhandle = s->conn->mhandle,
	};
	return true;
}

static bool mortal_sent(struct stream *s, uint64_t index, struct message *m)
{
	(void)s, (void)index, (void)m;
	return true;
}

static bool mortal_received(struct stream *s, uint64_t index, struct message *m)
{
	size_t first, size = s->conn->comm->job->opt.chunk;

	if (m->got[0] != (int)size || pattern_check(m->data[0], size, key(s, index), 0, &first))
		wrong("die: message %llu from rank %d was said to be complete and is wrong",
		      (unsigned long long)index, s->conn->peer);
	return true;
}

/*
 * over reports whether a survivor has seen enough, ms after the death: the limit has passed, or all connections
 * with the dead rank have failed and those with living ranks had the time to fail wrongly.
 */
static bool over(const struct mortal *m, double ms)
{
	double limit = options(m)->die_limit_ms, early = limit / 10 > 5000 ? limit / 10 : 5000;

	if (ms >= limit)
		return true;
	for (int i = 0; i < 2 * options(m)->nranks; i++)
		if (m->streams[i].conn->peer == options(m)->die_rank && !m->failed_ns[i])
			return false;
	return ms >= early;
}

/* step runs after each round of the progress thread. */
static bool step(struct operation *operation)
{
	struct mortal *m = operation->owner;
	uint64_t moved = 0, now = now_ns(), death = atomic_load(&death_ns);

	for (int i = 0; i < operation->n; i++) {
		struct stream *s = &operation->streams[i];

		moved += s->finished;
		if (s->result != ncclSuccess && !m->failed_ns[i])
			m->failed_ns[i] = now;
	}
	if (options(m)->rank == options(m)->die_rank && moved >= m->fatal_message)
		kill(getpid(), SIGKILL);
	return !death || !over(m, (double)(now - death) / 1e6);
}

/* judge_stream returns the ms from death to error, or a negative number if it never came. */
static double judge_stream(const struct mortal *m, int i)
{
	const struct stream *s = &m->streams[i];
	const char *doing = s->conn->sending ? "sending to" : "receiving from";
	double ms = ((double)m->failed_ns[i] - (double)atomic_load(&death_ns)) / 1e6;
	/* NCCL 2.12, the one that uses version 5, has no ncclRemoteError. */
	bool accepted = s->result == ncclRemoteError ||
	                (m->comm->job->net.version == 5 && s->result == ncclSystemError);

	if (s->conn->peer != options(m)->die_rank) {
		if (s->result != ncclSuccess)
			wrong("comm %d: %s rank %d, which lives, failed: %s returned %s (%d)", m->comm->index, doing,
			      s->conn->peer, s->failed_call, result_name(s->result), (int)s->result);
		return 0;
	}
	if (s->result == ncclSuccess) {
		wrong("comm %d: %s rank %d went on without an error for %g ms after its death", m->comm->index,
		      doing, s->conn->peer, options(m)->die_limit_ms);
		return -1;
	}
	if (!accepted)
		wrong("comm %d: %s the dead rank %d: %s returned %s (%d), ncclRemoteError (6) is wanted",
		      m->comm->index, doing, s->conn->peer, s->failed_call, result_name(s->result), (int)s->result);
	return ms > 0 ? ms : 0;
}

static void start(struct job *job, struct mortal *m, struct operation *operation, struct comm *comm)
{
	int n = job->opt.nranks;
	struct random r = {mix(job->opt.seed ^ 0xdead)};

	m->comm = comm;
	m->streams = calloc(2 * (size_t)n, sizeof *m->streams);
	m->failed_ns = calloc(2 * (size_t)n, sizeof *m->failed_ns);
	m->fatal_message = 20 + random_below(&r, 100);
	for (int i = 0; i < 2 * n; i++)
		m->streams[i] = (struct stream){
			.conn = i < n ? &comm->send[i] : &comm->recv[i - n], .total = UINT64_MAX,
			.depth = job->opt.depth, .prepare = i < n ? mortal_send : mortal_recv,
			.finish = i < n ? mortal_sent : mortal_received,
		};
	*operation = (struct operation){
		.comm = comm, .streams = m->streams, .n = 2 * n, .step = step, .owner = m,
	};
}

_Noreturn void work_die(struct job *job)
{
	struct mortal mortals[job->opt.comms];
	struct operation operations[job->opt.comms];
	double slowest = 0;

	watchdog_expect_loss();
	orphans_leave(job, job->opt.orphans);
	rendezvous_barrier(&job->rv);
	for (int k = 0; k < job->opt.comms; k++) {
		start(job, &mortals[k], &operations[k], &job->comms[k]);
		worker_give(&job->comms[k].progress, progress_run, &operations[k]);
	}
	while (!rendezvous_lost(&job->rv, 1000))
		continue;
	atomic_store(&death_ns, now_ns());
	for (int k = 0; k < job->opt.comms; k++)
		worker_wait(&job->comms[k].progress);
	if (!rendezvous_survivors(&job->rv))
		nanosleep(&(struct timespec){.tv_nsec = (long)linger_ns}, NULL);
	for (int k = 0; k < job->opt.comms; k++)
		for (int i = 0; i < 2 * job->opt.nranks; i++) {
			double ms = judge_stream(&mortals[k], i);

			slowest = ms > slowest ? ms : slowest;
		}
	comms_abort(job);
	report_death(job, slowest);
	report_close(job, wrongs() == 0, wrongs());
	if (wrongs())
		die("FAILED, #wrong %ld", wrongs());
	say("ok: rank %d died, and every connection with it said so, the last after %.1f ms", job->opt.die_rank,
	    slowest);
	exit(0);
}
