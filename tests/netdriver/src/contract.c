/* Running contract cases, and what they share. */
#include "contract.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "report.h"
#include "watchdog.h"
#include "work.h"

void trial_fail(struct trial *t, const char *fmt, ...)
{
	va_list args;

	if (t->failed)
		return;
	t->failed = true;
	va_start(args, fmt);
	vsnprintf(t->why, sizeof t->why, fmt, args);
	va_end(args);
}

void trial_tell(struct trial *t, const char *fmt, ...)
{
	va_list args;

	if (t->failed)
		return;
	va_start(args, fmt);
	vsnprintf(t->why, sizeof t->why, fmt, args);
	va_end(args);
}

bool expect_ok(struct trial *t, ncclResult_t result, const char *call)
{
	return expect(t, result == ncclSuccess, "%s returned %s (%d)", call, result_name(result), (int)result);
}

void trial_patience(struct trial *t)
{
	t->deadline = now_ns() + (uint64_t)(t->job->opt.timeout / 4 * 1e9);
	watchdog_fed();
}

bool trial_late(struct trial *t)
{
	return now_ns() > t->deadline;
}

void trial_pause(int ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

void trial_sync(struct trial *t, const void *own, void *previous, void *next)
{
	int n = t->job->opt.nranks, rank = t->job->opt.rank;
	unsigned char blob[SYNC_BYTES] = {0}, *all = malloc((size_t)n * SYNC_BYTES);

	if (own)
		memcpy(blob, own, SYNC_BYTES);
	rendezvous_gather(&t->job->rv, blob, all, SYNC_BYTES);
	if (previous)
		memcpy(previous, all + (rank + n - 1) % n * SYNC_BYTES, SYNC_BYTES);
	if (next)
		memcpy(next, all + (rank + 1) % n * SYNC_BYTES, SYNC_BYTES);
	free(all);
	if (++t->syncs > t->wanted_syncs)
		die("contract case \"%s\" meets the other ranks more often than its table says", t->name);
	trial_patience(t);
}

/* Pairs. */

static bool pair_listen(struct trial *t, struct pair *p, int dev)
{
	handle_prepare(p->recv.handle);
	if (!expect_ok(t, net_listen(&t->job->net, t->comm.ctx, dev, p->recv.handle, &p->recv.listen_comm),
	               "listen"))
		return false;
	handle_check(p->recv.handle, "listen");
	return true;
}

bool pair_connect(struct trial *t, struct pair *p, int dev)
{
	struct net *net = &t->job->net;
	unsigned idle = 0;

	while (!p->send.net_comm || !p->recv.net_comm) {
		if (!p->send.net_comm) {
			net_attributes(net, t->comm.ctx);
			if (!expect_ok(t, net_connect(net, t->comm.ctx, dev, NULL, p->send.handle, &p->send.net_comm),
			               "connect"))
				return false;
			handle_check(p->send.handle, "connect");
		}
		if (!p->recv.net_comm) {
			if (!expect_ok(t, net_accept(net, p->recv.listen_comm, &p->recv.net_comm), "accept"))
				return false;
			if (p->recv.net_comm && !expect_ok(t, net_close_listen(net, p->recv.listen_comm), "closeListen"))
				return false;
		}
		if (!expect(t, !trial_late(t), "not connected in time: connect %s, accept %s",
		            p->send.net_comm ? "done" : "pending", p->recv.net_comm ? "done" : "pending"))
			return false;
		progress_idle(&idle);
	}
	return true;
}

bool pair_register(struct trial *t, struct pair *p, size_t room)
{
	region_open(&p->send_region, room);
	region_open(&p->recv_region, room);
	return expect_ok(t, memory_reg(&t->job->net, p->send.net_comm, p->send_region.base, p->send_region.size,
	                               &p->send_mhandle), "regMr") &&
	       expect_ok(t, memory_reg(&t->job->net, p->recv.net_comm, p->recv_region.base, p->recv_region.size,
	                               &p->recv_mhandle), "regMr");
}

bool pair_open(struct trial *t, struct pair *p, int listen_dev, int connect_dev, size_t room)
{
	int n = t->job->opt.nranks, rank = t->job->opt.rank;
	bool listening;

	memset(p, 0, sizeof *p);
	p->send.comm = p->recv.comm = &t->comm;
	p->send.sending = true;
	p->send.peer = (rank + 1) % n;
	p->recv.peer = (rank + n - 1) % n;
	listening = pair_listen(t, p, listen_dev);
	trial_sync(t, p->recv.handle, NULL, p->send.handle);
	return listening && pair_connect(t, p, connect_dev) && pair_register(t, p, room);
}

bool pair_flush(struct trial *t, struct pair *p, int n, void **data, int *sizes)
{
	void *mhandles[NCCL_NET_MAX_RECVS], *request;
	int done = 0;

	if (!memory_is_device(data[0]))
		return true;
	for (int i = 0; i < n; i++)
		mhandles[i] = p->recv_mhandle;
	if (!expect_ok(t, net_iflush(&t->job->net, p->recv.net_comm, n, data, sizes, mhandles, &request), "iflush"))
		return false;
	while (request && !done)
		if (!expect_ok(t, net_test(&t->job->net, request, &done, 1, NULL), "test of a flush") ||
		    !expect(t, !trial_late(t), "iflush did not complete"))
			return false;
	return true;
}

void pair_deregister(struct trial *t, struct pair *p)
{
	if (p->send_mhandle)
		expect_ok(t, net_dereg(&t->job->net, p->send.net_comm, p->send_mhandle), "deregMr");
	if (p->recv_mhandle)
		expect_ok(t, net_dereg(&t->job->net, p->recv.net_comm, p->recv_mhandle), "deregMr");
	p->send_mhandle = p->recv_mhandle = NULL;
	region_close(&p->send_region);
	region_close(&p->recv_region);
}

void pair_close(struct trial *t, struct pair *p)
{
	pair_deregister(t, p);
	if (p->send.net_comm)
		expect_ok(t, net_close_send(&t->job->net, p->send.net_comm), "closeSend");
	if (p->recv.net_comm)
		expect_ok(t, net_close_recv(&t->job->net, p->recv.net_comm), "closeRecv");
	p->send.net_comm = p->recv.net_comm = NULL;
}

/* Cases. */

static void run_case(struct job *job, const struct contract_case *c)
{
	struct trial t = {.job = job, .name = c->name, .wanted_syncs = c->syncs};
	struct { int failed; char why[SYNC_BYTES - 4]; } own = {0}, *all;
	long before = wrongs();
	char detail[320] = "";
	bool failed = false;

	if (job->net.version < c->min_api) {
		snprintf(detail, sizeof detail, "version %d cannot", job->net.version);
		report_case(job, c->name, "SKIP", detail);
		return;
	}
	t.comm.job = job;
	t.comm.id = mix(job->opt.seed ^ ++job->sequence);
	plugin_init(job, &t.comm.ctx, t.comm.id);
	trial_patience(&t);
	c->run(&t);
	while (t.syncs < t.wanted_syncs) {
		if (!t.failed)
			die("contract case \"%s\" meets the other ranks less often than its table says", c->name);
		trial_sync(&t, NULL, NULL, NULL);
	}
	plugin_fini(job, t.comm.ctx);
	if (wrongs() > before)
		trial_fail(&t, "see the lines above");
	own.failed = t.failed;
	snprintf(own.why, sizeof own.why, "%s", t.why);
	all = malloc((size_t)job->opt.nranks * sizeof *all);
	rendezvous_gather(&job->rv, &own, all, sizeof own);
	snprintf(detail, sizeof detail, "%s", all[0].why);
	for (int r = job->opt.nranks - 1; r >= 0; r--)
		if (all[r].failed) {
			failed = true;
			snprintf(detail, sizeof detail, "rank %d: %s", r, all[r].why);
		}
	free(all);
	if (t.failed)
		wrong("contract: %s: %s", c->name, t.why);
	report_case(job, c->name, failed ? "FAIL" : "PASS", detail);
	watchdog_fed();
}

static void run_cases(struct job *job, const struct contract_case *cases)
{
	for (const struct contract_case *c = cases; c->name; c++)
		run_case(job, c);
}

static void head(struct job *job, const char *what)
{
	if (job->opt.rank == 0)
		fprintf(log_out(), "#\n# %s: %d ranks, network %s (v%d)\n#\n", what, job->opt.nranks, job->net.name,
		        job->net.version);
}

void work_contract(struct job *job)
{
	head(job, "contract");
	run_cases(job, setup_cases);
	run_cases(job, data_cases);
	run_cases(job, end_cases);
	run_cases(job, gone_cases);
	run_cases(job, process_cases);
}

void work_tuner(struct job *job)
{
	head(job, "tuner");
	run_cases(job, tuner_cases);
}
