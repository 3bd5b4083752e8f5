/* Cases about how things end: memory taken away, peers closing, nothing left. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "log.h"

enum { ROOM = 8 << 20, BIG = 2 << 20, FEW = 4 };

/* A few large messages in flight, from the rank before and to the rank after. */
struct flow {
	struct trial *trial;
	struct pair *pair;
	void *sends[FEW], *recvs[FEW];
	bool sent[FEW], received[FEW];
	ncclResult_t send_error, recv_error;
};

static void flow_recv(struct flow *f)
{
	unsigned idle = 0;

	for (int i = 0; i < FEW && !f->trial->failed;) {
		void *data = f->pair->recv_region.base + i * BIG;
		size_t size = BIG;
		int tag = i;

		expect_ok(f->trial, net_irecv(&f->trial->job->net, f->pair->recv.net_comm, 1, &data, &size, &tag,
		                              &f->pair->recv_mhandle, NULL, false, &f->recvs[i]), "irecv");
		if (f->recvs[i])
			i++;
		else
			progress_idle(&idle);
		expect(f->trial, !trial_late(f->trial), "irecv took only %d requests", i);
	}
}

/* flow_send posts what it can of the first n and tests it, once around; an error stops it for good. */
static void flow_send(struct flow *f, int n)
{
	struct net *net = &f->trial->job->net;

	for (int i = 0; i < n && !f->send_error; i++) {
		unsigned char *data = f->pair->send_region.base + i * BIG;
		int done, size;

		if (!f->sends[i] && !f->sent[i]) {
			f->send_error = net_isend(net, f->pair->send.net_comm, data, BIG, i, f->pair->send_mhandle, NULL,
			                          &f->sends[i]);
			if (!f->sends[i])
				return;
		} else if (!f->sent[i]) {
			f->send_error = net_test(net, f->sends[i], &done, 1, &size);
			f->sent[i] = done;
		}
	}
}

/* flow_receive tests the receives once around; a complete one has to be right. */
static void flow_receive(struct flow *f)
{
	for (int i = 0; i < FEW && !f->recv_error; i++) {
		int done = 0, size = -1;
		size_t first;

		if (f->received[i])
			continue;
		f->recv_error = net_test(&f->trial->job->net, f->recvs[i], &done, 1, &size);
		if (f->recv_error || !done)
			continue;
		f->received[i] = true;
		if (!pair_flush(f->trial, f->pair, 1, (void *[]){f->pair->recv_region.base + i * BIG}, &size))
			return;
		expect(f->trial, size == BIG && !pattern_check(f->pair->recv_region.base + i * BIG, BIG, (uint64_t)i, 0,
		                                               &first),
		       "receive %d was said to be complete and is wrong", i);
	}
}

static bool all(const bool *flags)
{
	for (int i = 0; i < FEW; i++)
		if (!flags[i])
			return false;
	return true;
}

static void flow_fill(struct flow *f)
{
	for (int i = 0; i < FEW; i++)
		pattern_fill(f->pair->send_region.base + i * BIG, BIG, (uint64_t)i, 0);
}

/* remote: the far end vanished. Its error is ncclRemoteError; version 5's NCCL has none such. */
static void expect_remote(struct flow *f, ncclResult_t result, const char *what)
{
	bool old = f->trial->job->net.version == 5 && result == ncclSystemError;

	expect(f->trial, result == ncclSuccess || result == ncclRemoteError || old,
	       "%s returned %s (%d) when the peer had gone; ncclRemoteError (6) is wanted", what,
	       result_name(result), (int)result);
}

static void take_away_recv(struct trial *t)
{
	struct pair p;
	struct flow f = {.trial = t, .pair = &p};
	bool open = pair_open(t, &p, 0, 0, ROOM);
	unsigned idle = 0;
	size_t touched;

	if (open) {
		flow_fill(&f);
		flow_recv(&f);
	}
	trial_sync(t, NULL, NULL, NULL);
	if (open && !t->failed) {
		/* Until the first bytes are in, so that more are on their way; the last message is kept back,
		 * so that there is a receive outstanding however fast the others are. */
		for (uint64_t until = now_ns() + 300000000u;
		     now_ns() < until && canary_check(p.recv_region.base, 8) == 8;) {
			int done, size;

			flow_send(&f, FEW - 1);
			f.recv_error = net_test(&t->job->net, f.recvs[FEW - 1], &done, 1, &size);
			if (f.recv_error || (f.received[FEW - 1] = done))
				break;
		}
		expect_ok(t, net_dereg(&t->job->net, p.recv.net_comm, p.recv_mhandle), "deregMr");
		p.recv_mhandle = NULL;
		canary_fill(p.recv_region.base, p.recv_region.size);
	}
	trial_sync(t, NULL, NULL, NULL); /* now every rank's receive buffer is gone */
	if (open && !t->failed) {
		for (uint64_t until = now_ns() + 200000000u; now_ns() < until;) {
			flow_send(&f, FEW);
			progress_idle(&idle);
		}
		touched = canary_check(p.recv_region.base, p.recv_region.size);
		expect(t, touched == p.recv_region.size, "byte %zu was written after deregMr had returned", touched);
		region_close(&p.recv_region);
		trial_pause(100); /* what touches it now ends the process */
		expect_ok(t, net_close_recv(&t->job->net, p.recv.net_comm), "closeRecv");
		p.recv.net_comm = NULL;
		while (!f.send_error && !all(f.sent) && expect(t, !trial_late(t), "a send to a closed receiver hangs")) {
			flow_send(&f, FEW);
			progress_idle(&idle);
		}
		expect_remote(&f, f.send_error, "the send side");
	}
	trial_tell(t, "the sender saw %s", f.send_error ? result_name(f.send_error) : "a clean end");
	pair_close(t, &p);
}

static void take_away_send(struct trial *t)
{
	struct pair p;
	struct flow f = {.trial = t, .pair = &p};
	bool open = pair_open(t, &p, 0, 0, ROOM);
	unsigned idle = 0;

	if (open) {
		flow_fill(&f);
		flow_recv(&f);
	}
	trial_sync(t, NULL, NULL, NULL);
	if (open && !t->failed) {
		for (uint64_t until = now_ns() + 200000000u; now_ns() < until && !f.sends[0] && !f.send_error;)
			flow_send(&f, FEW);
		expect_ok(t, net_dereg(&t->job->net, p.send.net_comm, p.send_mhandle), "deregMr");
		p.send_mhandle = NULL;
		canary_fill(p.send_region.base, p.send_region.size); /* must not go out as a message */
		trial_pause(50);
		region_close(&p.send_region);
		expect_ok(t, net_close_send(&t->job->net, p.send.net_comm), "closeSend");
		p.send.net_comm = NULL;
		while (!f.recv_error && !all(f.received) && !t->failed &&
		       expect(t, !trial_late(t), "a receive from a closed sender hangs")) {
			flow_receive(&f);
			progress_idle(&idle);
		}
		expect_remote(&f, f.recv_error, "the receive side");
	}
	trial_tell(t, "the receiver saw %s", f.recv_error ? result_name(f.recv_error) : "a clean end");
	pair_close(t, &p);
}

/* The sender closes as soon as its sends are done; what it has sent must still arrive. */
static void sender_leaves(struct trial *t)
{
	struct pair p;
	struct flow f = {.trial = t, .pair = &p};
	bool open = pair_open(t, &p, 0, 0, ROOM);
	void *data, *request = NULL;
	size_t size = 64;
	int tag = 0, done = 0, got;
	unsigned idle = 0;

	if (open) {
		flow_fill(&f);
		flow_recv(&f);
	}
	trial_sync(t, NULL, NULL, NULL);
	while (open && !t->failed && !(all(f.sent) && all(f.received)) &&
	       expect(t, !trial_late(t), "messages do not arrive when the sender closes behind them")) {
		if (p.send.net_comm)
			flow_send(&f, FEW);
		expect_ok(t, f.send_error, "the send side");
		flow_receive(&f);
		expect_ok(t, f.recv_error, "the receive side");
		progress_idle(&idle);
		if (p.send.net_comm && all(f.sent)) {
			expect_ok(t, net_dereg(&t->job->net, p.send.net_comm, p.send_mhandle), "deregMr");
			p.send_mhandle = NULL;
			expect_ok(t, net_close_send(&t->job->net, p.send.net_comm), "closeSend");
			p.send.net_comm = NULL;
		}
	}
	/* One more receive, which nobody will ever serve, must not be said to be done. */
	data = p.recv_region.base;
	for (uint64_t until = now_ns() + 300000000u; open && !t->failed && !f.recv_error && now_ns() < until;) {
		if (!request)
			f.recv_error = net_irecv(&t->job->net, p.recv.net_comm, 1, &data, &size, &tag, &p.recv_mhandle, NULL,
			                         false, &request);
		else
			f.recv_error = net_test(&t->job->net, request, &done, 1, &got);
		expect(t, !done, "a receive completed after the sender had closed");
		progress_idle(&idle);
	}
	expect_remote(&f, f.recv_error, "the receive side");
	trial_tell(t, "the receiver then saw %s", f.recv_error ? result_name(f.recv_error) : "nothing");
	pair_close(t, &p);
}

/* Receives that nobody serves are outstanding when everything is closed. */
static void close_waiting(struct trial *t)
{
	struct pair p;
	struct flow f = {.trial = t, .pair = &p};

	if (pair_open(t, &p, 0, 0, ROOM))
		flow_recv(&f);
	trial_sync(t, NULL, NULL, NULL);
	pair_close(t, &p);
}

static int open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

enum { CYCLES = 12, SETTLED = 4 };

static void nothing_left(struct trial *t)
{
	int early = 0, late = 0;

	for (int i = 0; i < CYCLES; i++) {
		struct pair p;

		if (pair_open(t, &p, 0, 0, 1 << 20))
			exchange_some(t, &p);
		pair_close(t, &p);
		if (i == SETTLED)
			early = open_descriptors();
	}
	/* Connections may linger until the far end has closed too. */
	for (int i = 0; i < 50 && (late = open_descriptors()) > early; i++) {
		trial_patience(t);
		trial_pause(100);
	}
	expect(t, late <= early, "%d descriptors after %d connections, %d after %d", early, SETTLED + 1, late,
	       CYCLES);
	trial_tell(t, "%d descriptors", late);
}

const struct contract_case end_cases[] = {
	{"deregMr of a receive buffer in mid-message; then it is gone", take_away_recv, 3, 0},
	{"deregMr of a send buffer in mid-message; then it is gone", take_away_send, 2, 0},
	{"the sender closes behind its last message", sender_leaves, 2, 0},
	{"close with receives outstanding", close_waiting, 2, 0},
	{"connections leave no descriptor behind", nothing_left, CYCLES, 0},
	{0},
};
