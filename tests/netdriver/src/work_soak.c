/*
 * soak: random sizes, groups, tags, alignments and capacities on every connection at once.
 *
 * A connection's messages come in groups, one irecv each; all about a group follows from the
 * seed and its number, so both ends know it and a run can be repeated. Groups lie anywhere in a
 * registered region that otherwise holds canary.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "progress.h"
#include "report.h"
#include "watchdog.h"
#include "work.h"

enum {
	ROUND_GROUPS = 24,   /* of a connection, between two agreements to go on */
	GUARD = 64,          /* canary around a message, at least */
	RECHECK_MAX = 65536, /* sent messages up to this size are checked to be untouched */
};

struct group {
	int n;
	size_t sizes[NCCL_NET_MAX_RECVS];
	size_t capacities[NCCL_NET_MAX_RECVS];
	size_t offsets[NCCL_NET_MAX_RECVS], span;
	int tags[NCCL_NET_MAX_RECVS];
	int order[NCCL_NET_MAX_RECVS]; /* in which they are sent */
	uint64_t keys[NCCL_NET_MAX_RECVS];
	bool optional;
};

/* One direction of one connection. */
struct traffic {
	struct job *job;
	struct conn *conn;
	struct region region;
	void *mhandle;
	size_t head;          /* where the next message goes, if free */
	uint64_t first, next; /* groups: the round's first, and the next to be described */
	int in_group;         /* of the next: messages sent already */
	struct random whims;
	_Atomic uint64_t bytes;
};

struct soak {
	struct comm *comm;
	struct traffic *traffic; /* sends, then receives */
	struct stream *streams;
	atomic_bool over;
};

/* describe_group: everything about group number g of a connection. */
static struct group describe_group(const struct traffic *t, uint64_t g)
{
	const struct conn *c = t->conn;
	int own = t->job->opt.rank, sender = c->sending ? own : c->peer, receiver = c->sending ? c->peer : own;
	struct random r = {pattern_key(t->job->opt.seed ^ 0x50a4, c->comm->index, sender, receiver, g)};
	struct group group = {.n = 1};

	if (random_below(&r, 4) == 0)
		group.n = 1 + (int)random_below(&r, (uint64_t)t->job->max_recvs);
	group.optional = group.n == 1 && random_below(&r, 4) == 0;
	for (int i = 0; i < group.n; i++) {
		group.sizes[i] = random_size(&r, t->job->opt.max / (size_t)group.n);
		group.capacities[i] = group.sizes[i] + (random_below(&r, 2) ? random_below(&r, 4096) : 0);
		group.offsets[i] = group.span + GUARD + (random_below(&r, 2) ? random_below(&r, 16) : 0);
		group.span = (group.offsets[i] + group.capacities[i] + 15) / 16 * 16;
		group.tags[i] = (int)random_below(&r, 8) ? (int)random_below(&r, 1u << 30) : sender;
		if (i && random_below(&r, 4) == 0)
			group.tags[i] = group.tags[i - 1];
		group.keys[i] = pattern_key(t->job->opt.seed, c->comm->index, sender, receiver, g * 8 + (uint64_t)i);
		group.order[i] = i;
	}
	group.span += GUARD;
	for (int i = group.n - 1; i > 0; i--) {
		int j = (int)random_below(&r, (uint64_t)i + 1), swapped = group.order[i];

		group.order[i] = group.order[j];
		group.order[j] = swapped;
	}
	/* Equal tags are matched in order, so they are sent in order. */
	for (int i = 0; i < group.n; i++)
		for (int j = i + 1; j < group.n; j++)
			if (group.order[i] > group.order[j] && group.tags[group.order[i]] == group.tags[group.order[j]]) {
				int swapped = group.order[i];

				group.order[i] = group.order[j];
				group.order[j] = swapped;
			}
	return group;
}

static uint64_t round_messages(const struct traffic *t)
{
	uint64_t messages = 0;

	if (!t->conn->sending)
		return ROUND_GROUPS;
	for (uint64_t g = t->first; g < t->first + ROUND_GROUPS; g++)
		messages += (uint64_t)describe_group(t, g).n;
	return messages;
}

/* place finds room for span bytes that no message in flight uses. */
static bool place(struct traffic *t, const struct stream *s, size_t span, size_t *at)
{
	*at = t->head + span > t->region.size ? 0 : t->head;
	for (int i = 0; i < s->depth; i++) {
		const struct flight *f = &s->flights[i];

		if (f->used && *at < f->message.at + f->message.span && f->message.at < *at + span)
			return false;
	}
	t->head = *at + span;
	return true;
}

static bool soak_send(struct stream *s, uint64_t index, struct message *m)
{
	struct traffic *t = s->owner;
	struct group group = describe_group(t, t->next);
	int i = group.order[t->in_group];
	size_t at;

	(void)index;
	if (!place(t, s, group.sizes[i] + 2 * GUARD, &at))
		return false;
	*m = (struct message){
		.n = 1, .data = {t->region.base + at + GUARD + group.offsets[i] % 16}, .sizes = {group.sizes[i]},
		.tags = {group.tags[i]}, .mhandle = t->mhandle, .keys = {group.keys[i]}, .at = at,
		.span = group.sizes[i] + 2 * GUARD,
	};
	pattern_fill(m->data[0], m->sizes[0], m->keys[0], 0);
	if (++t->in_group == group.n) {
		t->in_group = 0;
		t->next++;
	}
	return true;
}

static bool soak_sent(struct stream *s, uint64_t index, struct message *m)
{
	struct traffic *t = s->owner;
	size_t first;

	if (m->sizes[0] <= RECHECK_MAX && pattern_check(m->data[0], m->sizes[0], m->keys[0], 0, &first))
		wrong("comm %d: message %llu to rank %d: byte %zu of the send buffer was written",
		      s->conn->comm->index, (unsigned long long)index, s->conn->peer, first);
	t->bytes += m->sizes[0];
	return true;
}

static bool soak_recv(struct stream *s, uint64_t index, struct message *m)
{
	struct traffic *t = s->owner;
	struct group group;

	(void)index;
	if (random_below(&t->whims, 8) == 0) /* a receiver that is late */
		return false;
	group = describe_group(t, t->next);
	*m = (struct message){
		.n = group.n, .mhandle = t->mhandle, .optional = group.optional, .span = group.span, .group = t->next,
	};
	if (!place(t, s, group.span, &m->at))
		return false;
	for (int i = 0; i < group.n; i++) {
		m->data[i] = t->region.base + m->at + group.offsets[i];
		m->sizes[i] = group.capacities[i];
		m->tags[i] = group.tags[i];
		m->keys[i] = group.keys[i];
		m->lengths[i] = group.sizes[i];
	}
	t->next++;
	return true;
}

/* explain looks for where wrong contents come from. */
static const char *explain(struct traffic *t, const struct message *m, int part, size_t offset, char *text,
                           size_t text_size)
{
	uint64_t word, from = m->group > 40 ? m->group - 40 : 0;

	*text = 0;
	if (offset + 8 > m->lengths[part])
		return text;
	memory_get(&word, m->data[part] + offset, 8);
	if (canary_check(m->data[part] + offset, 8) == 8) {
		snprintf(text, text_size, "; nothing was written there");
		return text;
	}
	for (size_t i = 0; i < m->lengths[part] / 8; i++)
		if (pattern_word(m->keys[part], i) == word) {
			snprintf(text, text_size, "; its own bytes from offset %zu are there", i * 8);
			return text;
		}
	for (uint64_t g = from; g < m->group + 40; g++) {
		struct group other = describe_group(t, g);

		for (int i = 0; i < other.n; i++)
			if (pattern_word(other.keys[i], offset / 8) == word) {
				snprintf(text, text_size, "; the bytes of group %llu, message %d are there",
				         (unsigned long long)g, i);
				return text;
			}
	}
	return text;
}

static void complain(struct traffic *t, const struct message *m, int part, const char *what, size_t offset,
                     const char *why)
{
	wrong("comm %d: from rank %d: group %llu, message %d of %d (%zu bytes, room for %zu): %s %zu%s",
	      t->conn->comm->index, t->conn->peer, (unsigned long long)m->group, part, m->n, m->lengths[part],
	      m->sizes[part], what, offset, why);
}

static void check_around(struct traffic *t, struct message *m)
{
	unsigned char *at = t->region.base + m->at, *end = at + m->span;

	for (int i = 0; i <= m->n; i++) {
		unsigned char *until = i < m->n ? m->data[i] : end;
		size_t size = (size_t)(until - at), touched = canary_check(at, size);

		if (touched < size) {
			complain(t, m, i < m->n ? i : m->n - 1,
			         "memory outside of the messages was written, in their region at",
			         (size_t)(at - t->region.base) + touched, "");
			canary_fill(at, size);
		}
		if (i < m->n)
			at = m->data[i] + m->lengths[i];
	}
}

static bool soak_received(struct stream *s, uint64_t index, struct message *m)
{
	struct traffic *t = s->owner;
	size_t first = 0, bad = 0;
	char why[96];

	(void)index;
	/* An optional completion leaves it to the receiver to see that the data are there. */
	if (m->optional) {
		if (!m->since)
			m->since = now_ns();
		if (pattern_check(m->data[0], m->lengths[0], m->keys[0], 0, &first) &&
		    (double)(now_ns() - m->since) < t->job->opt.timeout * 1e9 / 4)
			return false;
	}
	for (int i = 0; i < m->n; i++) {
		if (!m->optional && (m->got[i] < 0 || (size_t)m->got[i] != m->lengths[i]))
			complain(t, m, i, "test reports a size of", (size_t)m->got[i], "");
		bad = pattern_check(m->data[i], m->lengths[i], m->keys[i], 0, &first);
		if (bad)
			complain(t, m, i, "wrong from byte", first, explain(t, m, i, first, why, sizeof why));
	}
	check_around(t, m);
	for (int i = 0; i < m->n; i++) {
		canary_fill(m->data[i], m->lengths[i]);
		t->bytes += m->lengths[i];
	}
	return true;
}

/* On the service thread: memory comes and goes while messages move, as user buffers do. */
static void churn(void *arg)
{
	struct soak *soak = arg;
	struct job *job = soak->comm->job;
	struct random r = {mix(job->opt.seed + job->sequence)};
	struct region scratch;

	region_open(&scratch, 65536);
	while (!atomic_load(&soak->over)) {
		struct traffic *t = &soak->traffic[random_below(&r, 2 * (uint64_t)job->opt.nranks)];
		unsigned idle = 2000;
		void *mhandle;

		check_call(memory_reg(&job->net, t->conn->net_comm, scratch.base, 1 + random_below(&r, scratch.size),
		                      &mhandle), "regMr");
		progress_idle(&idle);
		check_call(net_dereg(&job->net, t->conn->net_comm, mhandle), "deregMr");
	}
	region_close(&scratch);
}

static void open_regions(void *arg)
{
	struct soak *soak = arg;
	struct job *job = soak->comm->job;
	size_t room = job->opt.max + job->opt.max / 4 + 65536;

	for (int i = 0; i < 2 * job->opt.nranks; i++) {
		struct traffic *t = &soak->traffic[i];

		region_open(&t->region, room);
		t->head = 0;
		check_call(memory_reg(&job->net, t->conn->net_comm, t->region.base, t->region.size, &t->mhandle), "regMr");
	}
}

static void close_regions(void *arg)
{
	struct soak *soak = arg;
	struct job *job = soak->comm->job;

	for (int i = 0; i < 2 * job->opt.nranks; i++) {
		struct traffic *t = &soak->traffic[i];

		if (!t->conn->sending && canary_check(t->region.base, t->region.size) < t->region.size)
			wrong("comm %d: a receive buffer of rank %d was written outside of any message",
			      t->conn->comm->index, t->conn->peer);
		check_call(net_dereg(&job->net, t->conn->net_comm, t->mhandle), "deregMr");
		region_close(&t->region);
	}
}

static void each(struct job *job, struct soak *soaks, void (*run)(void *))
{
	for (int k = 0; k < job->opt.comms; k++)
		worker_give(&job->comms[k].service, run, &soaks[k]);
	for (int k = 0; run != churn && k < job->opt.comms; k++)
		worker_wait(&job->comms[k].service);
}

static void start_streams(struct soak *soak)
{
	struct job *job = soak->comm->job;

	for (int i = 0; i < 2 * job->opt.nranks; i++) {
		struct traffic *t = &soak->traffic[i];
		uint64_t whim = mix(pattern_key(job->opt.seed, soak->comm->index, job->opt.rank, i, t->first));

		t->whims.state = whim;
		soak->streams[i] = (struct stream){
			.conn = t->conn, .owner = t, .total = round_messages(t), .any_order = true,
			.random = {whim + 1}, .depth = NCCL_NET_MAX_REQUESTS,
			.prepare = t->conn->sending ? soak_send : soak_recv,
			.finish = t->conn->sending ? soak_sent : soak_received,
		};
		if (!t->conn->sending)
			soak->streams[i].depth = 1 + (int)(whim % NCCL_NET_MAX_REQUESTS);
	}
}

/* bind points the soak at the communicators, which may have been opened anew. */
static void bind(struct job *job, struct soak *soaks)
{
	for (int k = 0; k < job->opt.comms; k++) {
		soaks[k].comm = &job->comms[k];
		for (int i = 0; i < 2 * job->opt.nranks; i++) {
			struct comm *comm = soaks[k].comm;

			soaks[k].traffic[i].job = job;
			soaks[k].traffic[i].conn =
				i < job->opt.nranks ? &comm->send[i] : &comm->recv[i - job->opt.nranks];
		}
	}
}

/* soak_round moves one round of groups on every connection; it returns the messages sent here. */
static long soak_round(struct job *job, struct soak *soaks)
{
	struct operation operations[job->opt.comms];
	long messages = 0;

	job->sequence++;
	each(job, soaks, open_regions);
	rendezvous_barrier(&job->rv);
	for (int k = 0; k < job->opt.comms; k++) {
		start_streams(&soaks[k]);
		atomic_store(&soaks[k].over, false);
		operations[k] = (struct operation){.streams = soaks[k].streams, .n = 2 * job->opt.nranks};
	}
	each(job, soaks, churn);
	operations_run(job, operations);
	for (int k = 0; k < job->opt.comms; k++)
		atomic_store(&soaks[k].over, true);
	each(job, soaks, close_regions);
	for (int k = 0; k < job->opt.comms; k++)
		for (int i = 0; i < 2 * job->opt.nranks; i++) {
			soaks[k].traffic[i].first += ROUND_GROUPS;
			if (i < job->opt.nranks)
				messages += (long)soaks[k].streams[i].total;
		}
	return messages;
}

void work_soak(struct job *job)
{
	size_t n = 2 * (size_t)job->opt.nranks;
	struct soak *soaks = calloc((size_t)job->opt.comms, sizeof *soaks);
	uint64_t began = now_ns(), said = began;
	long messages = 0, all_messages = 0, before = wrongs(), bad;
	double bytes = 0, elapsed = 0, all_bytes = 0;

	for (int k = 0; k < job->opt.comms; k++) {
		soaks[k].traffic = calloc(n, sizeof *soaks[k].traffic);
		soaks[k].streams = calloc(n, sizeof *soaks[k].streams);
	}
	if (job->opt.rank == 0)
		fprintf(log_out(), "#\n# soak: %d ranks, %d communicators, sizes 0 to %zu, seed %llu\n", job->opt.nranks,
		        job->opt.comms, job->opt.max, (unsigned long long)job->opt.seed);
	for (long round = 1;; round++) {
		bool more;

		bind(job, soaks);
		messages += soak_round(job, soaks);
		bytes = 0;
		for (int k = 0; k < job->opt.comms; k++)
			for (size_t i = 0; i < n / 2; i++)
				bytes += (double)soaks[k].traffic[i].bytes;
		all_messages = rendezvous_sum(&job->rv, messages);
		all_bytes = (double)rendezvous_sum(&job->rv, (long)bytes);
		elapsed = (double)(now_ns() - began) / 1e9;
		if (job->opt.rank == 0 && (job->opt.progress ? round % job->opt.progress == 0 : now_ns() - said > 5000000000u)) {
			said = now_ns();
			fprintf(log_out(), "# soak: %.0f s, %ld messages, %.1f MB\n", elapsed, all_messages,
			        all_bytes / 1e6);
			fflush(log_out());
		}
		if (job->opt.until)
			more = !work_over(job);
		else if (job->opt.messages)
			more = messages / job->opt.comms / job->opt.nranks < job->opt.messages;
		else
			more = elapsed < job->opt.duration;
		if (!rendezvous_from_root(&job->rv, more))
			break;
		if (round % job->opt.reopen == 0) {
			comms_close(job);
			comms_open(job);
		}
	}
	bad = rendezvous_sum(&job->rv, wrongs() - before);
	report_soak(job, elapsed, all_messages, all_bytes, bad);
	for (int k = 0; k < job->opt.comms; k++) {
		free(soaks[k].traffic);
		free(soaks[k].streams);
	}
	free(soaks);
}
