#include "progress.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "watchdog.h"

void progress_idle(unsigned *idle)
{
	if (++*idle < 1000)
		sched_yield();
	else
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

unsigned char *stream_slot(const struct stream *stream, uint64_t index)
{
	return conn_slot(stream->conn, index);
}

/* post hands a message to the plugin; NULL in *request: it cannot take it yet. */
static ncclResult_t post(struct stream *stream, struct message *m, uint64_t index, void **request)
{
	struct net *net = &stream->conn->comm->job->net;
	void *mhandles[NCCL_NET_MAX_RECVS], *data[NCCL_NET_MAX_RECVS], *phandles[NCCL_NET_MAX_RECVS];
	size_t sizes[NCCL_NET_MAX_RECVS];
	int tags[NCCL_NET_MAX_RECVS];
	ncclResult_t result;

	if (stream->conn->sending)
		return net_isend(net, stream->conn->net_comm, m->data[0], m->sizes[0], m->tags[0], m->mhandle,
		                 m->steps[0], request);
	/* The arrays are NCCL's and are gone after the call. */
	for (int i = 0; i < m->n; i++) {
		data[i] = m->data[i];
		sizes[i] = m->sizes[i];
		tags[i] = m->tags[i];
		mhandles[i] = m->mhandle;
		phandles[i] = m->steps[i];
	}
	result = net_irecv(net, stream->conn->net_comm, m->n, data, sizes, tags, mhandles,
	                   m->steps[0] || index % 2 ? phandles : NULL, m->optional, request);
	memset(data, 0x5A, sizeof data);
	memset(sizes, 0x5A, sizeof sizes);
	memset(tags, 0x5A, sizeof tags);
	memset(mhandles, 0x5A, sizeof mhandles);
	memset(phandles, 0x5A, sizeof phandles);
	return result;
}

/* prepare describes the next message. Where NCCL's bootstrap sends it has no step. */
static bool prepare(struct stream *stream, uint64_t index)
{
	struct message *m = &stream->waiting;

	if (!stream->prepare(stream, index, m))
		return false;
	for (int i = 0; i < m->n; i++)
		m->steps[i] = index % 4 ? step_begin(stream->conn->sending) : NULL;
	return true;
}

static bool post_next(struct stream *stream)
{
	struct flight *flight = NULL;
	uint64_t index = stream->posted;
	void *request;

	if (index == stream->total || stream->result != ncclSuccess)
		return false;
	for (int i = 0; i < stream->depth && !flight; i++)
		if (!stream->flights[i].used)
			flight = &stream->flights[i];
	if (!flight)
		return false;
	if (!stream->any_order && index - stream->finished >= (uint64_t)stream->depth)
		return false;
	if (!stream->has_waiting && !prepare(stream, index))
		return false;
	stream->has_waiting = true;
	stream->result = post(stream, &stream->waiting, index, &request);
	if (stream->result != ncclSuccess) {
		stream->failed_call = stream->conn->sending ? "isend" : "irecv";
		return true;
	}
	if (!request)
		return false;
	*flight = (struct flight){.request = request, .used = true, .index = index, .message = stream->waiting};
	stream->has_waiting = false;
	stream->posted++;
	return true;
}

/*
 * start_flush asks, of a receive of device memory, for what arrived to be visible to the GPU, as NCCL does for the protocol Simple:
 * where it has any bytes. The other protocols look for flags in the data, which "optional" stands for, from the version on that says so
 * to the plugin. True: no error.
 */
static bool start_flush(struct stream *stream, struct flight *flight)
{
	struct message *m = &flight->message;
	void *mhandles[NCCL_NET_MAX_RECVS], *data[NCCL_NET_MAX_RECVS];
	int sizes[NCCL_NET_MAX_RECVS];
	long total = 0;

	for (int i = 0; i < m->n; i++) {
		data[i] = m->data[i];
		sizes[i] = m->no_sizes ? (int)m->lengths[i] : m->got[i];
		mhandles[i] = m->mhandle;
		total += sizes[i];
	}
	if (stream->conn->sending || (m->optional && stream->conn->comm->job->net.version >= 9) || total <= 0 || !memory_is_device(data[0]))
		return true;
	stream->result = net_iflush(&stream->conn->comm->job->net, stream->conn->net_comm, m->n, data, sizes, mhandles, &flight->flush);
	memset(data, 0x5A, sizeof data); /* as with a receive */
	memset(sizes, 0x5A, sizeof sizes);
	memset(mhandles, 0x5A, sizeof mhandles);
	if (stream->result == ncclSuccess)
		return true;
	stream->failed_call = "iflush";
	return false;
}

/* test_flush: false while it goes on. */
static bool test_flush(struct stream *stream, struct flight *flight)
{
	int done;

	if (!flight->flush)
		return true;
	stream->result = net_test(&stream->conn->comm->job->net, flight->flush, &done, 1, NULL);
	if (stream->result != ncclSuccess)
		stream->failed_call = "test of a flush";
	else if (done)
		flight->flush = NULL;
	return !flight->flush;
}

/* test_flight: true if something moved. */
static bool test_flight(struct stream *stream, struct flight *flight)
{
	struct net *net = &stream->conn->comm->job->net;
	struct message *m = &flight->message;

	if (flight->request) {
		int done, n = stream->conn->sending ? 1 : m->n;

		stream->result = net_test(net, flight->request, &done, n, m->no_sizes ? NULL : m->got);
		if (stream->result != ncclSuccess) {
			stream->failed_call = "test";
			return true;
		}
		if (!done)
			return false;
		if (!stream->conn->sending && net->irecvConsumed)
			net->irecvConsumed(stream->conn->net_comm, n, flight->request);
		for (int i = 0; i < m->n; i++)
			step_end(m->steps[i], stream->conn->sending ? (long)m->sizes[i] : m->no_sizes ? -1 : m->got[i]);
		flight->request = NULL; /* the plugin may use it again at once */
		if (!start_flush(stream, flight))
			return true;
	}
	if (!test_flush(stream, flight))
		return stream->result != ncclSuccess;
	if (!stream->finish(stream, flight->index, m))
		return false;
	flight->used = false;
	stream->finished++;
	return true;
}

static bool test_some(struct stream *stream)
{
	struct flight *oldest = NULL;

	if (stream->result != ncclSuccess)
		return false;
	if (stream->any_order) {
		struct flight *flight = &stream->flights[random_below(&stream->random, (uint64_t)stream->depth)];

		return flight->used && test_flight(stream, flight);
	}
	for (int i = 0; i < stream->depth; i++) {
		struct flight *flight = &stream->flights[i];

		if (flight->used && (!oldest || flight->index < oldest->index))
			oldest = flight;
	}
	return oldest && test_flight(stream, oldest);
}

static void describe(void *arg)
{
	struct operation *operation = arg;

	for (int i = 0; i < operation->n; i++) {
		struct stream *s = &operation->streams[i];

		if (s->finished < s->total)
			say("comm %d: %s rank %d: %llu of %llu messages done, %llu posted", operation->comm->index,
			    s->conn->sending ? "sending to" : "receiving from", s->conn->peer,
			    (unsigned long long)s->finished, (unsigned long long)s->total,
			    (unsigned long long)s->posted);
	}
}

static void report_failure(struct stream *s)
{
	wrong("comm %d: %s rank %d failed after %llu messages: %s returned %s (%d)", s->conn->comm->index,
	      s->conn->sending ? "sending to" : "receiving from", s->conn->peer,
	      (unsigned long long)s->finished, s->failed_call, result_name(s->result), (int)s->result);
}

/* go_round looks at every stream of an operation once; false: it is over, or failed. */
static bool go_round(struct operation *operation, bool *moved)
{
	bool going = false;

	for (int i = 0; i < operation->n && operation->ok; i++) {
		struct stream *s = &operation->streams[i];

		*moved |= post_next(s);
		*moved |= test_some(s);
		if (s->result != ncclSuccess && !operation->step) {
			report_failure(s);
			operation->ok = false;
		}
		going |= s->finished < s->total;
	}
	return operation->step ? operation->step(operation) : going && operation->ok;
}

void progress_run(void *arg)
{
	struct operation *first = arg, *last = first + first->beside;
	bool going = true;
	unsigned idle = 0;

	for (struct operation *o = first; o <= last; o++)
		o->ok = true;
	while (going) {
		bool moved = false;

		going = false;
		for (struct operation *o = first; o <= last; o++) {
			going |= go_round(o, &moved);
			if (!o->ok)
				return;
		}
		if (moved) {
			watchdog_fed();
			idle = 0;
		} else {
			progress_idle(&idle);
		}
	}
}

void operations_run(struct job *job, struct operation *operations)
{
	bool ok = true;

	watchdog_describe(describe, &operations[0]);
	for (int k = 0; k < job->opt.comms; k++)
		operations[k].comm = &job->comms[k];
	for (int k = 0; k < job->opt.comms; k += job->opt.channels) {
		operations[k].beside = job->opt.channels - 1;
		worker_give(&job->comms[k].progress, progress_run, &operations[k]);
	}
	for (int k = 0; k < job->opt.comms; k += job->opt.channels)
		worker_wait(&job->comms[k].progress);
	for (int k = 0; k < job->opt.comms; k++)
		ok &= operations[k].ok;
	watchdog_describe(NULL, NULL);
	if (!ok)
		die("the plugin failed an operation, and NCCL would abort");
}
