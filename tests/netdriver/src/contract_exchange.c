/* Exchanging a script of messages over a pair, with everything checked. */
#include <string.h>

#include "contract.h"
#include "log.h"

enum { GUARD = 64 };

struct side {
	struct trial *trial;
	const struct script *script;
	struct region *region;
	void *mhandle;
	uint64_t sequence;
	bool bad;
};

/* Messages lie one behind the other, at odd addresses too. */
static size_t offset_of(const struct script *s, int message)
{
	size_t at = GUARD;

	for (int i = 0; i < message; i++)
		at += (s->messages[i].size + s->messages[i].extra + GUARD + 15) / 16 * 16;
	return at + (size_t)message % 16;
}

static uint64_t key_of(const struct stream *s, const struct side *side, int message)
{
	int own = side->trial->job->opt.rank, peer = s->conn->peer;

	return pattern_key(side->trial->job->opt.seed, 0xc0, s->conn->sending ? own : peer,
	                   s->conn->sending ? peer : own, side->sequence * SCRIPT_MESSAGES + (uint64_t)message);
}

/* sent_as: the message that is sent as number index. */
static int sent_as(const struct script *s, int index)
{
	int group = s->messages[index].group, first = index;

	while (first > 0 && s->messages[first - 1].group == group)
		first--;
	for (int i = first; i < s->n && s->messages[i].group == group; i++)
		if (s->messages[i].order == index - first)
			return i;
	return index;
}

static int group_first(const struct script *s, uint64_t group)
{
	int i = 0;

	while (i < s->n && (uint64_t)s->messages[i].group < group)
		i++;
	return i;
}

static bool script_send(struct stream *s, uint64_t index, struct message *m)
{
	struct side *side = s->owner;
	int i = sent_as(side->script, (int)index);
	const struct script_message *sm = &side->script->messages[i];

	*m = (struct message){
		.n = 1, .data = {side->region->base + offset_of(side->script, i)}, .sizes = {sm->size},
		.tags = {sm->tag}, .mhandle = side->mhandle, .keys = {key_of(s, side, i)},
		.no_sizes = side->script->no_sizes,
	};
	pattern_fill(m->data[0], sm->size, m->keys[0], 0);
	return true;
}

static bool script_sent(struct stream *s, uint64_t index, struct message *m)
{
	struct side *side = s->owner;
	size_t first;

	if (pattern_check(m->data[0], m->sizes[0], m->keys[0], 0, &first)) {
		trial_fail(side->trial, "message %d: the send buffer was written", (int)index);
		side->bad = true;
	}
	return true;
}

static bool script_recv(struct stream *s, uint64_t index, struct message *m)
{
	struct side *side = s->owner;
	const struct script *script = side->script;

	*m = (struct message){
		.mhandle = side->mhandle, .optional = script->optional, .no_sizes = script->no_sizes,
	};
	for (int i = group_first(script, index); i < script->n && script->messages[i].group == (int)index; i++) {
		const struct script_message *sm = &script->messages[i];

		m->data[m->n] = side->region->base + offset_of(script, i);
		m->sizes[m->n] = sm->size + sm->extra;
		m->tags[m->n] = sm->tag;
		m->keys[m->n] = key_of(s, side, i);
		m->lengths[m->n] = sm->size;
		m->n++;
	}
	return true;
}

static bool script_received(struct stream *s, uint64_t index, struct message *m)
{
	struct side *side = s->owner;
	size_t first;

	for (int i = 0; i < m->n; i++) {
		size_t bad = pattern_check(m->data[i], m->lengths[i], m->keys[i], 0, &first);

		if (bad && m->optional && !trial_late(side->trial))
			return false; /* an optional completion may come before the data */
		if (bad) {
			trial_fail(side->trial, "group %d, message %d of %d: wrong from byte %zu of %zu", (int)index, i,
			           m->n, first, m->lengths[i]);
			side->bad = true;
		}
		if (!m->optional && !m->no_sizes && (m->got[i] < 0 || (size_t)m->got[i] != m->lengths[i])) {
			trial_fail(side->trial, "group %d, message %d of %d: test reports %d bytes, %zu were sent",
			           (int)index, i, m->n, m->got[i], m->lengths[i]);
			side->bad = true;
		}
		canary_fill(m->data[i], m->lengths[i]);
	}
	return true;
}

static bool step(struct operation *operation)
{
	struct trial *t = operation->owner;
	bool going = false;

	for (int i = 0; i < operation->n; i++) {
		struct stream *s = &operation->streams[i];

		if (s->result != ncclSuccess) {
			trial_fail(t, "%s returned %s (%d) after %d messages", s->failed_call, result_name(s->result),
			           (int)s->result, (int)s->finished);
			return false;
		}
		going |= s->finished < s->total;
	}
	if (going && trial_late(t)) {
		trial_fail(t, "not done in time: %d of %d messages sent, %d of %d groups received",
		           (int)operation->streams[0].finished, (int)operation->streams[0].total,
		           (int)operation->streams[1].finished, (int)operation->streams[1].total);
		return false;
	}
	return going;
}

bool exchange(struct trial *t, struct pair *p, const struct script *script)
{
	uint64_t sequence = ++t->sequence;
	struct side send = {t, script, &p->send_region, p->send_mhandle, sequence, false};
	struct side recv = {t, script, &p->recv_region, p->recv_mhandle, sequence, false};
	int depth = script->depth ? script->depth : NCCL_NET_MAX_REQUESTS;
	struct stream streams[2] = {
		{.conn = &p->send, .owner = &send, .total = (uint64_t)script->n, .depth = depth,
		 .prepare = script_send, .finish = script_sent},
		{.conn = &p->recv, .owner = &recv, .depth = depth, .prepare = script_recv, .finish = script_received,
		 .total = script->n ? (uint64_t)script->messages[script->n - 1].group + 1 : 0},
	};
	struct operation operation = {.comm = &t->comm, .streams = streams, .n = 2, .step = step, .owner = t};
	size_t touched;

	if (offset_of(script, script->n) + GUARD > p->send_region.size)
		die("contract case \"%s\": its messages need %zu bytes", t->name, offset_of(script, script->n));
	progress_run(&operation);
	for (int i = 0; i < 2; i++)
		if (streams[i].finished < streams[i].total)
			return false;
	touched = canary_check(p->recv_region.base, p->recv_region.size);
	return expect(t, touched == p->recv_region.size,
	              "offset %zu of the receive buffer was written outside of any message", touched) &&
	       !send.bad && !recv.bad;
}

bool exchange_some(struct trial *t, struct pair *p)
{
	static const size_t sizes[] = {8, 0, 1, 127, 128, 4096, 65536, 3};
	struct script script = {.depth = NCCL_STEPS};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		script.messages[script.n++] = (struct script_message){sizes[i], 0, 7, (int)i, 0};
	return exchange(t, p, &script);
}
