/* Cases about devices, properties, listening, connecting and memory. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "contract.h"
#include "log.h"

enum { ROOM = 1 << 20, MANY = 24 };

static bool same_props(struct trial *t, const struct net_props *a, const struct net_props *b,
                       const char *when)
{
	static const char text[] = "%s: %s is not always written or not stable";

#define SAME(field) \
	if (memcmp(&a->field, &b->field, sizeof a->field)) \
	return expect(t, false, text, when, #field)
	SAME(name);
	SAME(pciPath);
	SAME(guid);
	SAME(ptrSupport);
	SAME(regIsGlobal);
	SAME(forceFlush);
	SAME(speed);
	SAME(port);
	SAME(latency);
	SAME(maxComms);
	SAME(maxRecvs);
	SAME(netDeviceType);
	SAME(netDeviceVersion);
	SAME(ndevs);
	SAME(maxP2pBytes);
	SAME(maxCollBytes);
	SAME(maxMultiRequestSize);
	SAME(railId);
	SAME(planeId);
#undef SAME
	return expect(t, !memcmp(a->devs, b->devs, sizeof(int) * (size_t)a->ndevs), text, when, "vProps.devs");
}

static bool check_props(struct trial *t, int dev, const struct net_props *p)
{
	return expect(t, p->name && *p->name, "device %d has no name", dev) &&
	       expect(t, p->ptrSupport & NCCL_PTR_HOST, "ptrSupport %d lacks NCCL_PTR_HOST", p->ptrSupport) &&
	       expect(t, p->speed > 0, "speed is %d Mb/s", p->speed) &&
	       expect(t, p->latency >= 0 && p->latency < 1e6f, "latency is %g us", (double)p->latency) &&
	       expect(t, p->maxComms > 0, "maxComms is %d", p->maxComms) &&
	       expect(t, p->maxRecvs >= 1 && p->maxRecvs <= NCCL_NET_MAX_RECVS, "maxRecvs is %d", p->maxRecvs) &&
	       expect(t, p->regIsGlobal == 0 || p->regIsGlobal == 1, "regIsGlobal is %d", p->regIsGlobal) &&
	       expect(t, p->forceFlush == 0 || p->forceFlush == 1, "forceFlush is %d", p->forceFlush) &&
	       expect(t, p->netDeviceType == NCCL_NET_DEVICE_HOST, "netDeviceType is %d", p->netDeviceType) &&
	       expect(t, p->ndevs >= 1 && p->ndevs <= MAX_DEVS_PER_NIC, "vProps.ndevs is %d", p->ndevs) &&
	       expect(t, p->maxP2pBytes > 0 && p->maxP2pBytes <= 1ull << 40, "maxP2pBytes is %zu", p->maxP2pBytes) &&
	       expect(t, p->maxCollBytes > 0 && p->maxCollBytes <= 1ull << 40, "maxCollBytes is %zu",
	              p->maxCollBytes) &&
	       expect(t, p->maxMultiRequestSize >= 1, "maxMultiRequestSize is %d", p->maxMultiRequestSize);
}

static void properties(struct trial *t)
{
	struct net *net = &t->job->net;
	struct net_props all[t->job->ndev], again;

	for (int dev = 0; dev < t->job->ndev; dev++) {
		if (!expect_ok(t, net_properties(net, dev, 0xAA, &all[dev]), "getProperties") ||
		    !expect_ok(t, net_properties(net, dev, 0x55, &again), "getProperties") ||
		    !same_props(t, &all[dev], &again, "filled with 0xAA and with 0x55") ||
		    !check_props(t, dev, &all[dev]))
			return;
		for (int other = 0; other < dev; other++)
			if (!expect(t, strcmp(all[other].name, all[dev].name), "devices %d and %d are both named %s", other,
			            dev, all[dev].name))
				return;
	}
	for (int dev = 0; dev < t->job->ndev; dev++)
		if (!expect_ok(t, net_properties(net, dev, 0, &again), "getProperties") ||
		    !same_props(t, &all[dev], &again, "after other devices"))
			return;
	trial_tell(t, "%d device%s, %s: %d Mb/s, maxRecvs %d", t->job->ndev, t->job->ndev == 1 ? "" : "s",
	           all[0].name, all[0].speed, all[0].maxRecvs);
}

/* NCCL of another version, and the same NCCL when it asks again, must come to the same decision about a GPU's memory. */
static void pointers(struct trial *t)
{
	struct net_props own, other;
	char names[64] = "host";

	if (!expect_ok(t, net_properties(&t->job->net, 0, 0xAA, &own), "getProperties"))
		return;
	for (int version = API_OLDEST; version <= API_NEWEST; version++) {
		struct net net;

		if (!net_other(&t->job->net, &net, version))
			continue;
		for (int i = 0; i < 3; i++)
			if (!expect_ok(t, net_properties(&net, 0, i % 2 ? 0xAA : 0x55, &other), "getProperties") ||
			    !expect(t, other.ptrSupport == own.ptrSupport, "ptrSupport is %d in v%d and %d in v%d", own.ptrSupport,
			            t->job->net.version, other.ptrSupport, version))
				return;
	}
	expect(t, !(own.ptrSupport & ~(NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF)), "ptrSupport is %d", own.ptrSupport);
	snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", own.ptrSupport & NCCL_PTR_CUDA ? ", cuda" : "",
	         own.ptrSupport & NCCL_PTR_DMABUF ? ", dmabuf" : "");
	trial_tell(t, "%s", names);
}

static void devices(struct trial *t)
{
	for (int i = 0; i < 8; i++) {
		int ndev;

		if (!expect_ok(t, net_devices(&t->job->net, &ndev), "devices"))
			return;
		if (!expect(t, ndev == t->job->ndev, "%d devices first, then %d", t->job->ndev, ndev))
			return;
	}
}

static void contexts(struct trial *t)
{
	void *ctx[3];
	struct pair p;

	for (int i = 0; i < 3; i++)
		if (!expect_ok(t, net_init(&t->job->net, &ctx[i], mix((uint64_t)i), -1), "init"))
			return;
	for (int i = 0; i < 3; i++)
		if (!expect_ok(t, net_finalize(&t->job->net, ctx[2 - i]), "finalize"))
			return;
	if (pair_open(t, &p, 0, 0, ROOM))
		exchange_some(t, &p);
	pair_close(t, &p);
}

static void finalize_null(struct trial *t)
{
	expect_ok(t, net_finalize(&t->job->net, NULL), "finalize(NULL)");
}

static void listen_and_close(struct trial *t)
{
	for (int i = 0; i < 64; i++) {
		unsigned char handle[CONNECT_HANDLE];
		void *listen_comm;

		handle_prepare(handle);
		if (!expect_ok(t, net_listen(&t->job->net, t->comm.ctx, i % t->job->ndev, handle, &listen_comm),
		               "listen"))
			return;
		handle_check(handle, "listen");
		if (!expect_ok(t, net_close_listen(&t->job->net, listen_comm), "closeListen"))
			return;
	}
}

/* Nobody connects, nobody accepts; and neither is any reason to wait, or for an error. */
static void accept_alone(struct trial *t)
{
	struct net *net = &t->job->net;
	unsigned char handle[CONNECT_HANDLE];
	uint64_t until = now_ns() + 200000000u;
	void *listen_comm, *recv_comm;
	unsigned idle = 2000;

	handle_prepare(handle);
	if (!expect_ok(t, net_listen(net, t->comm.ctx, 0, handle, &listen_comm), "listen"))
		return;
	while (now_ns() < until) {
		if (!expect_ok(t, net_accept(net, listen_comm, &recv_comm), "accept") ||
		    !expect(t, !recv_comm, "accept gave a connection that nobody had asked for"))
			break;
		progress_idle(&idle);
	}
	expect_ok(t, net_close_listen(net, listen_comm), "closeListen");
}

static void connect_alone(struct trial *t)
{
	struct net *net = &t->job->net;
	unsigned char own[CONNECT_HANDLE], handle[CONNECT_HANDLE];
	void *listen_comm = NULL, *send_comm = NULL;
	unsigned idle = 2000;
	bool told = false;

	handle_prepare(own);
	expect_ok(t, net_listen(net, t->comm.ctx, 0, own, &listen_comm), "listen");
	trial_sync(t, own, NULL, handle);
	for (uint64_t until = now_ns() + 300000000u; now_ns() < until && !send_comm && !t->failed;) {
		expect_ok(t, net_connect(net, t->comm.ctx, 0, NULL, handle, &send_comm), "connect");
		progress_idle(&idle);
	}
	trial_sync(t, NULL, NULL, NULL);
	if (listen_comm)
		expect_ok(t, net_close_listen(net, listen_comm), "closeListen");
	/* The listener is gone: connect may go on saying nothing, or fail. */
	for (uint64_t until = now_ns() + 300000000u; now_ns() < until && !send_comm && !told && !t->failed;) {
		told = net_connect(net, t->comm.ctx, 0, NULL, handle, &send_comm) != ncclSuccess;
		progress_idle(&idle);
	}
	if (send_comm)
		expect_ok(t, net_close_send(net, send_comm), "closeSend");
	trial_tell(t, "%s", send_comm ? "connect completed" : told ? "connect failed once the listener was gone"
	                                                         : "connect said nothing");
}

static void connect_self(struct trial *t)
{
	struct pair p = {.send = {.comm = &t->comm, .sending = true, .peer = t->job->opt.rank},
	                 .recv = {.comm = &t->comm, .peer = t->job->opt.rank}};

	handle_prepare(p.recv.handle);
	if (expect_ok(t, net_listen(&t->job->net, t->comm.ctx, 0, p.recv.handle, &p.recv.listen_comm), "listen")) {
		memcpy(p.send.handle, p.recv.handle, CONNECT_HANDLE);
		if (pair_connect(t, &p, 0) && pair_register(t, &p, ROOM))
			exchange_some(t, &p);
	}
	pair_close(t, &p);
}

/* Many connections come up in one loop of one thread. */
static void connect_many(struct trial *t)
{
	static struct pair pairs[MANY];
	struct net *net = &t->job->net;
	int open = 0;
	unsigned idle = 0;

	memset(pairs, 0, sizeof pairs);
	for (int i = 0; i < MANY; i++) {
		handle_prepare(pairs[i].recv.handle);
		expect_ok(t, net_listen(net, t->comm.ctx, i % t->job->ndev, pairs[i].recv.handle,
		                        &pairs[i].recv.listen_comm), "listen");
		trial_sync(t, pairs[i].recv.handle, NULL, pairs[i].send.handle);
	}
	while (open < 2 * MANY && !t->failed && expect(t, !trial_late(t), "%d of %d ends came up in time", open,
	                                               2 * MANY)) {
		for (int i = 0; i < MANY && !t->failed; i++) {
			struct conn *s = &pairs[i].send, *r = &pairs[i].recv;

			if (!s->net_comm) {
				expect_ok(t, net_connect(net, t->comm.ctx, i % t->job->ndev, NULL, s->handle, &s->net_comm),
				          "connect");
				open += s->net_comm != NULL;
			}
			if (!r->net_comm && !t->failed) {
				expect_ok(t, net_accept(net, r->listen_comm, &r->net_comm), "accept");
				if (r->net_comm)
					expect_ok(t, net_close_listen(net, r->listen_comm), "closeListen");
				open += r->net_comm != NULL;
			}
		}
		progress_idle(&idle);
	}
	for (int i = 0; i < MANY; i++)
		pair_close(t, &pairs[i]);
}

static void any_device(struct trial *t)
{
	int last = t->job->ndev - 1;
	struct pair p;

	if (pair_open(t, &p, 0, last, ROOM))
		exchange_some(t, &p);
	pair_close(t, &p);
	if (pair_open(t, &p, last, 0, ROOM))
		exchange_some(t, &p);
	pair_close(t, &p);
}

static void dereg_null(struct trial *t)
{
	struct pair p;

	if (pair_open(t, &p, 0, 0, ROOM)) {
		expect_ok(t, net_dereg(&t->job->net, p.send.net_comm, NULL), "deregMr(sendComm, NULL)");
		expect_ok(t, net_dereg(&t->job->net, p.recv.net_comm, NULL), "deregMr(recvComm, NULL)");
	}
	pair_close(t, &p);
}

static void reg_overlap(struct trial *t)
{
	struct net *net = &t->job->net;
	void *more[3] = {0};
	struct pair p;

	if (pair_open(t, &p, 0, 0, ROOM)) {
		for (int i = 0; i < 3; i++)
			expect_ok(t, memory_reg(net, p.recv.net_comm, p.recv_region.base + i * 1000, 100000, &more[i]), "regMr");
		for (int i = 0; i < 3 && !t->failed; i++)
			expect_ok(t, net_dereg(net, p.recv.net_comm, more[(i + 1) % 3]), "deregMr");
		if (!t->failed)
			exchange_some(t, &p); /* over the first registration, which still holds */
	}
	pair_close(t, &p);
}

static void reg_empty(struct trial *t)
{
	void *mhandle = NULL;
	ncclResult_t result;
	struct pair p;

	if (pair_open(t, &p, 0, 0, ROOM)) {
		result = net_reg(&t->job->net, p.send.net_comm, p.send_region.base, 0, NCCL_PTR_HOST, &mhandle);
		if (result == ncclSuccess)
			expect_ok(t, net_dereg(&t->job->net, p.send.net_comm, mhandle), "deregMr");
		trial_tell(t, "regMr of no bytes returned %s", result_name(result));
		if (!t->failed)
			exchange_some(t, &p);
	}
	pair_close(t, &p);
}

/* What getProperties does not offer is refused, and a refusal ends nothing: NCCL falls back for the memory of users. */
static void reg_refused(struct trial *t)
{
	struct net *net = &t->job->net;
	struct net_props props;
	char told[128] = "";
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC), offered;
	struct region spare; /* of which nothing is registered */
	struct pair p;

	region_open(&spare, 65536);
	if (!pair_open(t, &p, 0, 0, ROOM) || !expect_ok(t, net_properties(net, 0, 0, &props), "getProperties")) {
		pair_close(t, &p);
		region_close(&spare);
		close(fd);
		return;
	}
	offered = props.ptrSupport & (NCCL_PTR_CUDA | NCCL_PTR_DMABUF);
	for (int i = 0; i < 2 && !t->failed; i++) {
		void *comm = i ? p.recv.net_comm : p.send.net_comm, *data = spare.base, *out;
		static const int types[] = {0, NCCL_PTR_DMABUF, NCCL_PTR_HOST | NCCL_PTR_CUDA, 8, -1};

		for (size_t k = 0; k < sizeof types / sizeof *types; k++)
			expect(t, net_reg(net, comm, data, 4096, types[k], &out) != ncclSuccess, "regMr of type %d returned ncclSuccess",
			       types[k]);
		if (!(offered & NCCL_PTR_CUDA))
			expect(t, net_reg(net, comm, data, 4096, NCCL_PTR_CUDA, &out) != ncclSuccess,
			       "regMr of CUDA memory, which getProperties does not offer, returned ncclSuccess");
		if (!net->regMrDmaBuf)
			continue;
		for (size_t k = 0; k < 2; k++) /* a descriptor of nothing, and one of no DMA-BUF */
			expect(t, net_reg_dmabuf(net, comm, data, 4096, NCCL_PTR_CUDA, 0, k ? fd : -1, &out) != ncclSuccess,
			       "regMrDmaBuf of %s returned ncclSuccess", k ? "/dev/null" : "descriptor -1");
	}
	close(fd);
	region_close(&spare);
	snprintf(told, sizeof told, "%s%s", offered & NCCL_PTR_CUDA ? "" : "CUDA memory, ",
	         offered & NCCL_PTR_DMABUF ? "" : "DMA-BUFs, ");
	trial_tell(t, "%sother types, bad descriptors", told);
	if (!t->failed)
		exchange_some(t, &p);
	pair_close(t, &p);
}

/* The memory of users starts and ends anywhere. */
static void reg_unaligned(struct trial *t)
{
	static const size_t starts[] = {1, 13, 4095, 4097, 65536 + 511};
	struct net *net = &t->job->net;
	struct pair p;
	bool ok = pair_open(t, &p, 0, 0, ROOM);

	for (size_t i = 0; ok && i < sizeof starts / sizeof *starts; i++) {
		struct pair part = p; /* messages lie in a part of the pair's memory, which is registered by itself */

		part.send_region = (struct region){.base = p.send_region.base + starts[i], .size = ROOM / 2 - 3 * i};
		part.recv_region = (struct region){.base = p.recv_region.base + 2 * starts[i], .size = ROOM / 2 - i};
		ok = expect_ok(t, memory_reg(net, p.send.net_comm, part.send_region.base, part.send_region.size, &part.send_mhandle),
		               "regMr") &&
		     expect_ok(t, memory_reg(net, p.recv.net_comm, part.recv_region.base, part.recv_region.size, &part.recv_mhandle),
		               "regMr") &&
		     exchange_some(t, &part) && expect_ok(t, net_dereg(net, p.send.net_comm, part.send_mhandle), "deregMr") &&
		     expect_ok(t, net_dereg(net, p.recv.net_comm, part.recv_mhandle), "deregMr");
	}
	if (ok)
		exchange_some(t, &p); /* the whole still is */
	pair_close(t, &p);
}

/* Memory is freed, and other memory has its address. */
static void reg_again(struct trial *t)
{
	unsigned char *sends[4], *recvs[4];
	struct pair p;
	bool ok = pair_open(t, &p, 0, 0, ROOM);
	int same = 0;

	for (int i = 0; ok && i < 4; i++) {
		sends[i] = p.send_region.base;
		recvs[i] = p.recv_region.base;
		for (int k = 0; k < i; k++)
			same += sends[i] == sends[k] || sends[i] == recvs[k] || recvs[i] == sends[k] || recvs[i] == recvs[k];
		ok = exchange_some(t, &p);
		pair_deregister(t, &p);
		ok = ok && !t->failed && pair_register(t, &p, ROOM);
	}
	trial_tell(t, "%s", same ? "at an address of before" : "but at other addresses");
	pair_close(t, &p);
}

static void reg_left(struct trial *t)
{
	struct pair p;

	for (int round = 0; round < 3; round++) {
		bool open = pair_open(t, &p, 0, 0, ROOM) && exchange_some(t, &p);

		p.send_mhandle = p.recv_mhandle = NULL; /* up to 2.28.9 NCCL leaves user buffers registered */
		if (p.send.net_comm)
			expect_ok(t, net_close_send(&t->job->net, p.send.net_comm), "closeSend");
		if (p.recv.net_comm)
			expect_ok(t, net_close_recv(&t->job->net, p.recv.net_comm), "closeRecv");
		region_close(&p.send_region);
		region_close(&p.recv_region);
		if (!open)
			return;
	}
}

const struct contract_case setup_cases[] = {
	{"getProperties writes every field, the same each time", properties, 0, 0},
	{"ptrSupport is the same in every version", pointers, 0, 0},
	{"devices is stable", devices, 0, 0},
	{"a context per communicator, ended in any order", contexts, 1, 0},
	{"finalize(NULL)", finalize_null, 0, 11},
	{"listen closed without accept, 64 times", listen_and_close, 0, 0},
	{"accept while nobody connects", accept_alone, 0, 0},
	{"connect while nobody accepts, then the listener goes", connect_alone, 2, 0},
	{"connect to oneself", connect_self, 0, 0},
	{"24 connections come up in one loop", connect_many, MANY, 0},
	{"listen and connect on different devices", any_device, 2, 0},
	{"deregMr(comm, NULL)", dereg_null, 1, 0},
	{"registrations overlap and end in any order", reg_overlap, 1, 0},
	{"regMr of no bytes", reg_empty, 1, 0},
	{"memory of a type that is not offered, and what is none, is refused", reg_refused, 1, 0},
	{"memory that starts and ends anywhere", reg_unaligned, 1, 0},
	{"memory that is freed and allocated again", reg_again, 1, 0},
	{"close with memory still registered", reg_left, 3, 0},
	{0},
};
