/* Cases about messages: sizes, groups, tags, how many, from which threads. */
#include <stdatomic.h>
#include <string.h>

#include "contract.h"
#include "log.h"

enum { ROOM = 4 << 20, SMALL = 64, THREADS = 4 };

static void run_script(struct trial *t, const struct script *script)
{
	struct pair p;

	if (pair_open(t, &p, 0, 0, ROOM))
		exchange(t, &p, script);
	pair_close(t, &p);
}

/* add puts a message in a group of its own. */
static void add(struct script *s, size_t size, size_t extra, int tag)
{
	int group = s->n ? s->messages[s->n - 1].group + 1 : 0;

	s->messages[s->n++] = (struct script_message){size, extra, tag, group, 0};
}

/* add_group puts n messages in one, sent in another order than they are received. */
static void add_group(struct script *s, int n, const size_t *sizes, size_t extra, bool equal_tags, int turn)
{
	int group = s->n ? s->messages[s->n - 1].group + 1 : 0;

	for (int i = 0; i < n; i++)
		s->messages[s->n++] = (struct script_message){
			.size = sizes[i], .extra = extra, .group = group,
			.tag = equal_tags ? 5 : 1000 * group + 7 * i,
			.order = equal_tags ? i : (n - 1 - i + turn) % n,
		};
}

static void no_bytes(struct trial *t)
{
	struct script s = {0};

	for (int i = 0; i < 40; i++)
		add(&s, i % 3 == 2 ? 16 : 0, i % 2 ? 4096 : 0, i);
	run_script(t, &s);
}

static void more_room(struct trial *t)
{
	static const size_t sizes[] = {1, 7, 8, 9, 127, 128, 129, 1000, 4095, 4096, 4097, 65535, 65537, 300001};
	struct script s = {0};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		add(&s, sizes[i], 1 + i * 1237 % 70000, 3);
	run_script(t, &s);
}

static void every_size(struct trial *t)
{
	struct script s = {0};

	for (size_t size = 0; size < SCRIPT_MESSAGES; size++)
		add(&s, size, size % 5, (int)size);
	run_script(t, &s);
}

static void one_large(struct trial *t)
{
	struct script s = {0};

	add(&s, (3 << 20) + 17, 0, 0);
	add(&s, 1, 0, 0);
	run_script(t, &s);
}

static void groups(struct trial *t)
{
	static const size_t sizes[] = {4096, 0, 1, 128, 70001, 8, 129, 33};
	struct script s = {0};

	for (int n = 1; n <= t->job->max_recvs; n++)
		for (int turn = 0; turn < n && turn < 3; turn++)
			add_group(&s, n, sizes, (size_t)turn * 100, false, turn);
	trial_tell(t, "of 1 to %d", t->job->max_recvs);
	run_script(t, &s);
}

static void equal_tags(struct trial *t)
{
	static const size_t sizes[] = {64, 4096, 0, 100, 8, 1, 555, 12};
	struct script s = {0};

	for (int n = 1; n <= t->job->max_recvs; n++)
		add_group(&s, n, sizes, 64, true, 0);
	run_script(t, &s);
}

/* Tags are matched with all that is granted: not only with what the oldest group lacks. */
static void half_matched(struct trial *t)
{
	static const int tags[] = {30, 31, 40}, order[] = {0, 2, 1};
	struct net *net = &t->job->net;
	void *recvs[2] = {0}, *send = NULL;
	struct pair p;
	bool open = pair_open(t, &p, 0, 0, ROOM);
	int done = 0, sizes[2];
	size_t first;

	for (int group = 0, at = 0; open && group < 2 && !t->failed && expect(t, !trial_late(t), "irecv takes nothing");) {
		void *data[2] = {p.recv_region.base + at * SMALL, p.recv_region.base + (at + 1) * SMALL};
		void *mhandles[2] = {p.recv_mhandle, p.recv_mhandle};
		size_t room[2] = {SMALL, SMALL};
		int n = group ? 1 : 2, wanted[2] = {tags[at], tags[(at + 1) % 3]};

		expect_ok(t, net_irecv(net, p.recv.net_comm, n, data, room, wanted, mhandles, NULL, false, &recvs[group]),
		          "irecv");
		if (recvs[group])
			group++, at += n;
	}
	trial_sync(t, NULL, NULL, NULL);
	for (int i = 0; open && i < 3 && !t->failed; send = NULL) {
		unsigned char *data = p.send_region.base + order[i] * SMALL;

		pattern_fill(data, SMALL, (uint64_t)order[i], 0);
		expect_ok(t, net_isend(net, p.send.net_comm, data, SMALL, tags[order[i]], p.send_mhandle, NULL, &send), "isend");
		for (done = !send; !done && !t->failed && expect(t, !trial_late(t), "a send is not done");) {
			expect_ok(t, net_test(net, send, &done, 1, sizes), "test");
			for (int k = 0; k < 2; k++) { /* over a socket neither end moves without the other */
				int came = 0;

				if (recvs[k] && expect_ok(t, net_test(net, recvs[k], &came, k ? 1 : 2, sizes), "test") && came)
					recvs[k] = NULL;
			}
		}
		i += send != NULL;
		expect(t, !trial_late(t), "a message of tag %d is not accepted, for which a receive was granted", tags[order[i]]);
	}
	for (int k = 0; open && k < 2 && !t->failed;) {
		done = !recvs[k];
		if (!done)
			expect_ok(t, net_test(net, recvs[k], &done, k ? 1 : 2, sizes), "test");
		k += done;
		expect(t, !trial_late(t), "receive %d is not done", k);
	}
	for (int i = 0; open && i < 3 && !t->failed; i++)
		if (pair_flush(t, &p, 1, (void *[]){p.recv_region.base + i * SMALL}, (int[]){SMALL}))
			expect(t, !pattern_check(p.recv_region.base + i * SMALL, SMALL, (uint64_t)i, 0, &first), "message %d is wrong", i);
	trial_sync(t, NULL, NULL, NULL);
	pair_close(t, &p);
}

static void tag_values(struct trial *t)
{
	static const int tags[] = {0, 1, -1, INT32_MAX, INT32_MIN, 42};
	struct script s = {0};

	for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
		add(&s, 24, 8, tags[i]);
	run_script(t, &s);
}

static void optional(struct trial *t)
{
	struct script s = {.optional = true};

	for (int i = 0; i < 60; i++)
		add(&s, (size_t)i * i * 8, (size_t)i % 2 * 1000, 1);
	run_script(t, &s);
}

static void no_sizes(struct trial *t)
{
	struct script s = {.no_sizes = true};

	for (int i = 0; i < 20; i++)
		add(&s, (size_t)i * 100, 50, i);
	run_script(t, &s);
}

/* Outstanding requests: as many as the plugin takes, then NULL and no error. */

enum { MOST = 1024 };

struct crowd {
	struct trial *trial;
	struct pair *pair;
	int n; /* messages in a group */
	void *requests[MOST];
	bool done[MOST];
	int posted;
};

static int crowd_post_recvs(struct crowd *c)
{
	struct net *net = &c->trial->job->net;
	unsigned idle = 2000;

	/* NULL may also mean "not just now", so ask for a while. */
	for (uint64_t since = now_ns(); c->posted < MOST / c->n && now_ns() - since < 100000000u;) {
		void *data[NCCL_NET_MAX_RECVS], *mhandles[NCCL_NET_MAX_RECVS], *request;
		size_t sizes[NCCL_NET_MAX_RECVS];
		int tags[NCCL_NET_MAX_RECVS];

		for (int i = 0; i < c->n; i++) {
			data[i] = c->pair->recv_region.base + (c->posted * c->n + i) * 2 * SMALL;
			sizes[i] = SMALL;
			tags[i] = i;
			mhandles[i] = c->pair->recv_mhandle;
		}
		if (!expect_ok(c->trial, net_irecv(net, c->pair->recv.net_comm, c->n, data, sizes, tags, mhandles, NULL,
		                                   false, &request), "irecv"))
			return c->posted;
		if (request) {
			c->requests[c->posted++] = request;
			since = now_ns();
		} else {
			progress_idle(&idle);
		}
	}
	return c->posted;
}

/* crowd_post_sends posts up to that many without testing any. */
static int crowd_post_sends(struct crowd *c, int messages, int patience_ms)
{
	struct net *net = &c->trial->job->net;
	unsigned idle = 2000;

	for (uint64_t since = now_ns(), patience = (uint64_t)patience_ms * 1000000u;
	     c->posted < messages && now_ns() - since < patience;) {
		unsigned char *data = c->pair->send_region.base + c->posted * 2 * SMALL;
		void *request;

		pattern_fill(data, SMALL, (uint64_t)c->posted, 0);
		if (!expect_ok(c->trial, net_isend(net, c->pair->send.net_comm, data, SMALL, c->posted % c->n,
		                                   c->pair->send_mhandle, NULL, &request), "isend"))
			return c->posted;
		if (request) {
			c->requests[c->posted++] = request;
			since = now_ns();
		} else {
			progress_idle(&idle);
		}
	}
	return c->posted;
}

static bool crowd_test(struct crowd *c, bool sending)
{
	bool all = true;

	for (int i = 0; i < c->posted && !c->trial->failed; i++) {
		int done, sizes[NCCL_NET_MAX_RECVS];
		size_t first;

		if (c->done[i])
			continue;
		if (!expect_ok(c->trial, net_test(&c->trial->job->net, c->requests[i], &done, sending ? 1 : c->n, sizes),
		               "test"))
			return false;
		all &= done;
		c->done[i] = done;
		for (int k = 0; !sending && done && k < c->n; k++) {
			int message = i * c->n + k;
			void *data = c->pair->recv_region.base + message * 2 * SMALL;

			if (!pair_flush(c->trial, c->pair, 1, &data, &sizes[k]))
				return false;

			expect(c->trial, sizes[k] == SMALL, "test reports %d bytes of %d", sizes[k], SMALL);
			expect(c->trial, !pattern_check(data, SMALL, (uint64_t)message, 0, &first),
			       "message %d of the crowd is wrong", message);
		}
	}
	return all;
}

static void crowd(struct trial *t, int n)
{
	struct pair p;
	struct crowd recv = {.trial = t, .pair = &p, .n = n}, send = {.trial = t, .pair = &p, .n = n};
	int wanted = NCCL_NET_MAX_REQUESTS, theirs[SYNC_BYTES / sizeof(int)] = {0}, at_once = 0;
	bool open = pair_open(t, &p, 0, 0, ROOM), sent = false, received = false;
	unsigned idle = 2000;

	if (open) {
		theirs[0] = crowd_post_recvs(&recv);
		expect(t, theirs[0] >= wanted, "irecv took %d requests of %d messages, %d have to fit", theirs[0], n,
		       wanted);
	}
	trial_sync(t, theirs, NULL, theirs);
	if (open && !t->failed) {
		at_once = crowd_post_sends(&send, theirs[0] * n, 200);
		expect(t, at_once >= wanted * n, "isend took %d requests, %d have to fit", at_once, wanted * n);
	}
	while (open && !t->failed && !(sent && received)) {
		crowd_post_sends(&send, theirs[0] * n, 1);
		sent = crowd_test(&send, true) && send.posted == theirs[0] * n;
		received = crowd_test(&recv, false);
		expect(t, !trial_late(t), "not done in time: %d of %d sent", send.posted, theirs[0] * n);
		progress_idle(&idle);
	}
	trial_tell(t, "%d receives of %d%s, %d sends%s", recv.posted, n, recv.posted < MOST / n ? ", then NULL" : "",
	           at_once, at_once < theirs[0] * n ? ", then NULL" : "");
	pair_close(t, &p);
}

static void crowd_single(struct trial *t)
{
	crowd(t, 1);
}

static void crowd_groups(struct trial *t)
{
	crowd(t, t->job->max_recvs);
}

struct flush {
	const char *what;
	int n, sizes[NCCL_NET_MAX_RECVS];
	void *request;
	bool done;
};

/* flush_begin: the arrays are NCCL's and are gone after the call. */
static bool flush_begin(struct trial *t, struct pair *p, struct flush *f)
{
	void *data[NCCL_NET_MAX_RECVS], *mhandles[NCCL_NET_MAX_RECVS];
	int sizes[NCCL_NET_MAX_RECVS];
	bool ok;

	for (int i = 0; i < f->n; i++) {
		data[i] = p->recv_region.base + i * 4099;
		mhandles[i] = p->recv_mhandle;
		sizes[i] = f->sizes[i];
	}
	ok = expect_ok(t, net_iflush(&t->job->net, p->recv.net_comm, f->n, data, sizes, mhandles, &f->request), f->what);
	memset(data, 0x5A, sizeof data);
	memset(mhandles, 0x5A, sizeof mhandles);
	memset(sizes, 0x5A, sizeof sizes);
	f->done = !f->request;
	return ok;
}

/* flush_test: NCCL gives no room for sizes. */
static bool flush_test(struct trial *t, struct flush *f)
{
	int done = 0;

	if (f->done)
		return true;
	if (!expect_ok(t, net_test(&t->job->net, f->request, &done, 1, NULL), "test of a flush"))
		return false;
	f->done = done;
	return expect(t, !trial_late(t), "%s did not complete", f->what);
}

/* One after another, and then all at once. */
static void flushes(struct trial *t)
{
	struct flush all[] = {
		{.what = "iflush", .n = 1, .sizes = {4096}},
		{.what = "iflush of one byte", .n = 1, .sizes = {1}},
		{.what = "iflush of no bytes", .n = 1},
		{.what = "iflush of nothing", .n = 0},
		{.what = "iflush of two", .n = 2, .sizes = {64, 64}},
		{.what = "iflush of a group that ends with empty messages", .n = 3, .sizes = {7, 0, 0}},
		{.what = "iflush of a group that starts with empty messages", .n = 8, .sizes = {0, 0, 300, 0, 5, 0, 0, 4000}},
		{.what = "iflush of empty messages", .n = 8},
	};
	size_t n = sizeof all / sizeof *all;
	struct pair p;
	bool ok = pair_open(t, &p, 0, 0, ROOM) && exchange_some(t, &p);

	for (size_t i = 0; i < n; i++)
		all[i].n = all[i].n < t->job->max_recvs ? all[i].n : t->job->max_recvs;
	for (size_t i = 0; ok && i < n; i++)
		for (ok = flush_begin(t, &p, &all[i]); ok && !all[i].done;)
			ok = flush_test(t, &all[i]);
	for (size_t i = 0; ok && i < n; i++)
		ok = flush_begin(t, &p, &all[i]);
	for (size_t i = n; ok && i-- > 0;)
		while (ok && !all[i].done)
			ok = flush_test(t, &all[i]);
	if (ok)
		exchange_some(t, &p);
	pair_close(t, &p);
}

/* Threads. */

struct errand {
	struct trial trial; /* a copy: each thread notes its own failure */
	struct pair *pair;
	atomic_bool *over;
};

static void carry(void *arg)
{
	struct errand *e = arg;

	for (int i = 0; i < 10 && !e->trial.failed; i++)
		exchange_some(&e->trial, e->pair);
}

static void ask(void *arg)
{
	struct errand *e = arg;
	struct job *job = e->trial.job;
	struct net_props props;
	unsigned idle = 2000;
	int ndev;

	while (!atomic_load(e->over) && !e->trial.failed) {
		expect_ok(&e->trial, net_devices(&job->net, &ndev), "devices");
		expect_ok(&e->trial, net_properties(&job->net, 0, 0xAA, &props), "getProperties");
		progress_idle(&idle);
	}
}

static void register_often(void *arg)
{
	struct errand *e = arg;
	struct net *net = &e->trial.job->net;
	struct region region;
	unsigned idle = 2000;
	void *mhandles[2];

	region_open(&region, 65536);
	while (!atomic_load(e->over) && !e->trial.failed) {
		void *ends[2] = {e->pair->send.net_comm, e->pair->recv.net_comm};

		for (int i = 0; i < 2; i++)
			expect_ok(&e->trial, memory_reg(net, ends[i], region.base, region.size, &mhandles[i]), "regMr");
		for (int i = 0; i < 2 && !e->trial.failed; i++)
			expect_ok(&e->trial, net_dereg(net, ends[i], mhandles[i]), "deregMr");
		progress_idle(&idle);
	}
	region_close(&region);
}

static void threads(struct trial *t)
{
	static struct pair pairs[THREADS];
	static struct errand errands[THREADS + 2];
	struct worker workers[THREADS + 2];
	atomic_bool over = false;
	bool open = true;

	for (int i = 0; i < THREADS; i++)
		open &= pair_open(t, &pairs[i], i % t->job->ndev, i % t->job->ndev, ROOM);
	for (int i = 0; open && i < THREADS + 2; i++) {
		errands[i] = (struct errand){.trial = *t, .pair = &pairs[i % THREADS], .over = &over};
		worker_start(&workers[i], "contract");
		worker_give(&workers[i], i < THREADS ? carry : i == THREADS ? ask : register_often, &errands[i]);
	}
	for (int i = 0; open && i < THREADS + 2; i++) {
		if (i == THREADS)
			atomic_store(&over, true);
		worker_stop(&workers[i]);
		expect(t, !errands[i].trial.failed, "thread %d: %s", i, errands[i].trial.why);
	}
	/* The connections now belong to this thread: any may test what another has posted. */
	for (int i = 0; open && i < THREADS && !t->failed; i++) {
		t->sequence = errands[i].trial.sequence;
		exchange_some(t, &pairs[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pair_close(t, &pairs[i]);
}

const struct contract_case data_cases[] = {
	{"messages of no bytes", no_bytes, 1, 0},
	{"more room than message; nothing written behind it", more_room, 1, 0},
	{"every size from 0 to 511", every_size, 1, 0},
	{"one message of 3 MB", one_large, 1, 0},
	{"groups, sent in another order: tags and sizes of each", groups, 1, 0},
	{"equal tags in a group match in order", equal_tags, 1, 0},
	{"a message for a receive behind a half-matched group", half_matched, 3, 0},
	{"any int is a tag", tag_values, 1, 0},
	{"optional completion: 0x1 in irecv's request slot", optional, 1, 9},
	{"test with sizes NULL", no_sizes, 1, 0},
	{"32 outstanding requests and more, then NULL", crowd_single, 2, 0},
	{"32 x maxRecvs outstanding requests and more, then NULL", crowd_groups, 2, 0},
	{"iflush", flushes, 1, 0},
	{"communicators in threads of their own, memory coming and going", threads, THREADS, 0},
	{0},
};
