/* Cases about calls that come too late: on NULL, on what is closed, after the far end has gone. */
#include <string.h>

#include "contract.h"
#include "log.h"

enum { ROOM = 1 << 20, RECEIVES = 32, PIECE = 16 << 10, EARLY = 4 };

/* Handles as NCCL may hold them when they stand for nothing any more. */
struct relics {
	void *listen_comm, *send_comm, *recv_comm, *send_mhandle, *recv_mhandle, *request;
	unsigned char *data;
};

/* NCCL closes what it has while it cleans up, and takes an error there for the reason of the failure. */
static void expect_closes(struct trial *t, const struct relics *r, const char *when)
{
	struct net *net = &t->job->net;
	const struct { const char *call; ncclResult_t result; } closes[] = {
		{"deregMr of a sendComm's", net_dereg(net, r->send_comm, r->send_mhandle)},
		{"deregMr of a recvComm's", net_dereg(net, r->recv_comm, r->recv_mhandle)},
		{"closeSend", net_close_send(net, r->send_comm)},
		{"closeRecv", net_close_recv(net, r->recv_comm)},
		{"closeListen", net_close_listen(net, r->listen_comm)},
	};

	for (size_t i = 0; i < sizeof closes / sizeof *closes; i++)
		expect(t, closes[i].result == ncclSuccess, "%s %s returned %s", closes[i].call, when,
		       result_name(closes[i].result));
}

/* Nothing else can be done with them, and to try ends nothing. */
static void expect_refusals(struct trial *t, const struct relics *r, const char *when)
{
	struct net *net = &t->job->net;
	void *data = r->data, *mhandle = r->recv_mhandle, *out;
	size_t size = 64;
	int tag = 0, done, sizes = 64;
	const struct { const char *call; ncclResult_t result; } uses[] = {
		{"accept", net_accept(net, r->listen_comm, &out)},
		{"regMr of a sendComm", net_reg(net, r->send_comm, data, size, NCCL_PTR_HOST, &out)},
		{"regMr of a recvComm", net_reg(net, r->recv_comm, data, size, NCCL_PTR_HOST, &out)},
		{"isend", net_isend(net, r->send_comm, data, size, tag, r->send_mhandle, NULL, &out)},
		{"irecv", net_irecv(net, r->recv_comm, 1, &data, &size, &tag, &mhandle, NULL, false, &out)},
		{"iflush", net_iflush(net, r->recv_comm, 1, &data, &sizes, &mhandle, &out)},
		{"test", net_test(net, r->request, &done, 1, &sizes)},
	};

	for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
		expect(t, uses[i].result != ncclSuccess, "%s %s returned ncclSuccess", uses[i].call, when);
}

static void null_handles(struct trial *t)
{
	unsigned char data[64];
	struct relics none = {.data = data};

	expect_closes(t, &none, "of NULL");
	expect_refusals(t, &none, "of NULL");
}

static void closed_handles(struct trial *t)
{
	static unsigned char room[64];
	struct relics r = {.data = room};
	void *data;
	size_t size = 64;
	int tag = 0;
	struct pair p;
	bool open = pair_open(t, &p, 0, 0, ROOM) && exchange_some(t, &p);

	if (open) {
		data = p.recv_region.base;
		expect_ok(t, net_irecv(&t->job->net, p.recv.net_comm, 1, &data, &size, &tag, &p.recv_mhandle, NULL, false,
		                       &r.request), "irecv");
		r.listen_comm = p.recv.listen_comm;
		r.send_comm = p.send.net_comm;
		r.recv_comm = p.recv.net_comm;
		r.send_mhandle = p.send_mhandle;
		r.recv_mhandle = p.recv_mhandle;
	}
	trial_sync(t, NULL, NULL, NULL);
	pair_close(t, &p);
	if (open && !t->failed) {
		expect_refusals(t, &r, "of what is closed");
		expect_closes(t, &r, "of what is closed");
	}
	if (pair_open(t, &p, 0, 0, ROOM))
		exchange_some(t, &p); /* which none of that has harmed */
	pair_close(t, &p);
}

static void finalized_handles(struct trial *t)
{
	struct net *net = &t->job->net;
	unsigned char handle[CONNECT_HANDLE];
	void *ctx, *listen_comm;

	handle_prepare(handle);
	if (!expect_ok(t, net_init(net, &ctx, mix(t->comm.id), -1), "init") ||
	    !expect_ok(t, net_listen(net, ctx, 0, handle, &listen_comm), "listen"))
		return;
	expect_ok(t, net_finalize(net, ctx), "finalize");
	expect_ok(t, net_close_listen(net, listen_comm), "closeListen after finalize");
	expect_ok(t, net_finalize(net, ctx), "a second finalize");
}

/*
 * The receiver deregisters its memory and closes with receives outstanding while the sender still
 * posts: each send that was granted is accepted, and then done, or fails.
 */
static void close_in_flight(struct trial *t)
{
	struct net *net = &t->job->net;
	void *requests[RECEIVES] = {0};
	struct pair p;
	unsigned idle = 0;
	int posted = 0, over = 0;
	bool open = pair_open(t, &p, 0, 0, ROOM), closed = false;

	for (int i = 0; open && i < RECEIVES && !t->failed;) {
		void *data = p.recv_region.base + i * PIECE, *request;
		size_t size = PIECE;
		int tag = 0;

		expect_ok(t, net_irecv(net, p.recv.net_comm, 1, &data, &size, &tag, &p.recv_mhandle, NULL, false, &request),
		          "irecv");
		i += request != NULL;
		expect(t, !trial_late(t), "irecv took only %d requests", i);
	}
	trial_sync(t, NULL, NULL, NULL);
	while (open && !t->failed && posted < RECEIVES) {
		int tag = 0;

		if (!expect_ok(t, net_isend(net, p.send.net_comm, p.send_region.base, PIECE, tag, p.send_mhandle, NULL,
		                            &requests[posted]), "isend that was granted before the receiver closed") ||
		    !expect(t, !trial_late(t), "%d of %d granted sends were accepted", posted, RECEIVES))
			break;
		if (requests[posted])
			posted++;
		else
			progress_idle(&idle);
		if (posted == EARLY && !closed) {
			closed = true;
			expect_ok(t, net_dereg(net, p.recv.net_comm, p.recv_mhandle), "deregMr");
			p.recv_mhandle = NULL;
			region_close(&p.recv_region); /* what touches it now ends the process */
			expect_ok(t, net_close_recv(net, p.recv.net_comm), "closeRecv");
			p.recv.net_comm = NULL;
			trial_sync(t, NULL, NULL, NULL); /* now every receiver has closed */
		}
	}
	while (open && !t->failed && over < posted && expect(t, !trial_late(t), "a send to a closed receiver hangs")) {
		int done, size;
		ncclResult_t result = net_test(net, requests[over], &done, 1, &size);

		expect(t, result == ncclSuccess || result == ncclRemoteError ||
		          (net->version == 5 && result == ncclSystemError),
		       "test of a send to a closed receiver returned %s (%d); ncclRemoteError (6) is wanted",
		       result_name(result), (int)result);
		over += result != ncclSuccess || done;
		progress_idle(&idle);
	}
	pair_close(t, &p);
}

/* A sender that calls nothing but isend gets through what it sent before. */
static void isend_alone(struct trial *t)
{
	enum { LARGE = 32 << 20, OTHER = 1, MANY = 4096 };
	struct net *net = &t->job->net;
	struct pair p;
	void *data, *received = NULL, *sent = NULL, *more = NULL;
	size_t size = LARGE, first;
	int tag = 0, done = 0, got, extra = 0;
	bool open = pair_open(t, &p, 0, 0, LARGE);

	if (open) {
		data = p.recv_region.base;
		pattern_fill(p.send_region.base, LARGE, t->comm.id, 0);
		while (!received && expect_ok(t, net_irecv(net, p.recv.net_comm, 1, &data, &size, &tag, &p.recv_mhandle, NULL,
		                                           false, &received), "irecv"))
			continue;
	}
	while (open && !t->failed && !(sent && done) &&
	       expect(t, !trial_late(t), "a sender that only calls isend stands still")) {
		if (!sent)
			expect_ok(t, net_isend(net, p.send.net_comm, p.send_region.base, LARGE, tag, p.send_mhandle, NULL, &sent),
			          "isend");
		else if (extra < MANY && expect_ok(t, net_isend(net, p.send.net_comm, p.send_region.base, 8, OTHER,
		                                                p.send_mhandle, NULL, &more),
		                                   "isend of what nobody receives"))
			extra += more != NULL; /* of these some may be accepted */
		if (!done)
			expect_ok(t, net_test(net, received, &done, 1, &got), "test");
	}
	if (open && !t->failed && pair_flush(t, &p, 1, &data, &got))
		expect(t, got == LARGE && !pattern_check(p.recv_region.base, LARGE, t->comm.id, 0, &first),
		       "%d of %d bytes came, or others", got, LARGE);
	for (done = 0; open && !t->failed && !done && expect(t, !trial_late(t), "the send is not done");)
		expect_ok(t, net_test(net, sent, &done, 1, &got), "test of the send");
	trial_sync(t, NULL, NULL, NULL);
	pair_close(t, &p);
}

const struct contract_case gone_cases[] = {
	{"calls on NULL: closes succeed", null_handles, 0, 0},
	{"calls on what is closed: closes succeed", closed_handles, 3, 0},
	{"closes after finalize", finalized_handles, 0, 11},
	{"isend alone moves what was sent", isend_alone, 2, 0},
	{"the receiver closes with receives outstanding while the sender posts", close_in_flight, 3, 0},
	{0},
};
