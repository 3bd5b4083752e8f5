/* The calls: each version's signature, garbage in every output argument, the time each took. */
#include <limits.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "log.h"
#include "plugin.h"
#include "profiler.h"

enum { GARBAGE_INT = INT_MIN + 0x5A5A };

static struct {
	_Atomic uint64_t calls, longest_ns;
	atomic_int inside;
} times[NET_CALLS];

struct moment {
	uint64_t wall_ns, cpu_ns;
	long waits;
};

static bool on_data_path(enum net_call call)
{
	return call == NET_ISEND || call == NET_IRECV || call == NET_TEST || call == NET_IFLUSH;
}

static struct moment moment(enum net_call call)
{
	struct moment m = {.wall_ns = now_ns()};
	struct timespec cpu;
	struct rusage usage;

	if (on_data_path(call))
		return m;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	getrusage(RUSAGE_THREAD, &usage);
	m.cpu_ns = (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
	m.waits = usage.ru_nvcsw;
	return m;
}

static struct moment begin(enum net_call call)
{
	atomic_fetch_add(&times[call].inside, 1);
	return moment(call);
}

/* A thread that lost its core has not been kept waiting by the plugin: where the call itself did
 * not wait for anything, its time is what it computed. The data path has no time to ask. */
static ncclResult_t end(enum net_call call, struct moment began, ncclResult_t result)
{
	struct moment now = moment(call);
	uint64_t took = now.wall_ns - began.wall_ns, longest = atomic_load(&times[call].longest_ns);

	if (!on_data_path(call) && now.waits == began.waits)
		took = now.cpu_ns - began.cpu_ns;
	atomic_fetch_sub(&times[call].inside, 1);
	atomic_fetch_add(&times[call].calls, 1);
	while (took > longest && !atomic_compare_exchange_weak(&times[call].longest_ns, &longest, took))
		continue;
	if (result == ncclInProgress)
		wrong("%s returned ncclInProgress (7), which NCCL takes for an error", call_name(call));
	return result;
}

struct call_time call_time(enum net_call call)
{
	return (struct call_time){
		.calls = atomic_load(&times[call].calls),
		.longest_ns = atomic_load(&times[call].longest_ns),
		.inside = atomic_load(&times[call].inside),
	};
}

const char *call_name(enum net_call call)
{
	static const char *const names[NET_CALLS] = {
		"init", "finalize", "devices", "getProperties", "listen", "connect", "accept", "regMr", "regMrDmaBuf",
		"deregMr", "isend", "irecv", "iflush", "test", "closeSend", "closeRecv", "closeListen",
	};

	return names[call];
}

bool call_may_wait(enum net_call call)
{
	return call == NET_INIT || call == NET_FINALIZE || call == NET_DEVICES || call == NET_PROPERTIES ||
	       call == NET_REG || call == NET_REG_DMABUF || call == NET_DEREG || call == NET_CLOSE_SEND || call == NET_CLOSE_RECV ||
	       call == NET_CLOSE_LISTEN;
}

const char *result_name(ncclResult_t result)
{
	static const char *const names[] = {
		"ncclSuccess", "ncclUnhandledCudaError", "ncclSystemError", "ncclInternalError",
		"ncclInvalidArgument", "ncclInvalidUsage", "ncclRemoteError", "ncclInProgress",
	};

	return (unsigned)result < sizeof names / sizeof *names ? names[result] : "not an ncclResult_t";
}

void *net_garbage(void)
{
	static _Atomic(void *) page;
	void *have = atomic_load(&page), *made;

	if (have)
		return have;
	made = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		die("cannot map a page");
	if (atomic_compare_exchange_strong(&page, &have, made))
		return made;
	munmap(made, 4096);
	return have;
}

/* written checks an output slot after a successful call; an unwritten one counts as NULL. */
static ncclResult_t written(enum net_call call, const char *what, ncclResult_t result, void **slot)
{
	if (*slot != net_garbage())
		return result;
	*slot = NULL;
	if (result != ncclSuccess)
		return result;
	wrong("%s returned ncclSuccess and left *%s as it was", call_name(call), what);
	return ncclInternalError;
}

ncclResult_t net_init(struct net *net, void **ctx, uint64_t commId, int trafficClass)
{
	struct moment t = begin(NET_INIT);
	ncclNetCommConfig_t config = {trafficClass};
	ncclResult_t r;

	*ctx = NULL; /* NCCL's netContext starts as NULL, and a plugin may leave it so */
	if (net->init_v11)
		r = net->init_v11(ctx, commId, &config, nccl_logger, profiler_callback);
	else if (net->init_v10)
		r = net->init_v10(nccl_logger, profiler_callback);
	else
		r = net->init_v5(nccl_logger);
	memset(&config, 0x5A, sizeof config); /* it was on NCCL's stack */
	return end(NET_INIT, t, r);
}

ncclResult_t net_finalize(struct net *net, void *ctx)
{
	struct moment t = begin(NET_FINALIZE);

	return end(NET_FINALIZE, t, net->finalize ? net->finalize(ctx) : ncclSuccess);
}

ncclResult_t net_devices(struct net *net, int *ndev)
{
	struct moment t = begin(NET_DEVICES);
	ncclResult_t r;

	*ndev = GARBAGE_INT;
	r = end(NET_DEVICES, t, net->devices(ndev));
	if (r == ncclSuccess && *ndev == GARBAGE_INT) {
		wrong("devices returned ncclSuccess and left *ndev as it was");
		r = ncclInternalError;
	}
	return r;
}

#define COPY(field) (props->field = raw.field)
#define COPY_COMMON() \
	(COPY(name), COPY(pciPath), COPY(guid), COPY(ptrSupport), COPY(speed), COPY(port), COPY(latency), \
	 COPY(maxComms), COPY(maxRecvs))
#define COPY_DEVICE() (COPY(netDeviceType), COPY(netDeviceVersion))
#define COPY_VPROPS() \
	(COPY(regIsGlobal), COPY(forceFlush), COPY(maxP2pBytes), COPY(maxCollBytes), \
	 props->ndevs = raw.vProps.ndevs, memcpy(props->devs, raw.vProps.devs, sizeof raw.vProps.devs))
#define GET(type, version) \
	type raw; \
	memset(&raw, fill, sizeof raw); \
	r = net->props_v##version(dev, &raw); \
	COPY_COMMON()

ncclResult_t net_properties(struct net *net, int dev, unsigned char fill, struct net_props *props)
{
	struct moment t = begin(NET_PROPERTIES);
	ncclResult_t r;

	*props = (struct net_props){
		.ndevs = 1, .devs = {dev}, .maxP2pBytes = 1u << 30, .maxCollBytes = 1u << 29,
		.maxMultiRequestSize = 1, .railId = -1, .planeId = -1,
	};
	if (net->props_v5) {
		GET(ncclNetProperties_v5_t, 5);
	} else if (net->props_v7) {
		GET(ncclNetProperties_v7_t, 7);
		COPY_DEVICE();
	} else if (net->props_v8) {
		GET(ncclNetProperties_v8_t, 8);
		COPY_DEVICE();
		COPY(regIsGlobal);
	} else if (net->props_v9) {
		GET(ncclNetProperties_v9_t, 9);
		COPY_DEVICE();
		COPY_VPROPS();
	} else if (net->props_v11) {
		GET(ncclNetProperties_v11_t, 11);
		COPY_DEVICE();
		COPY_VPROPS();
		COPY(maxMultiRequestSize);
	} else {
		GET(ncclNetProperties_v12_t, 12);
		COPY_DEVICE();
		COPY_VPROPS();
		COPY(maxMultiRequestSize);
		COPY(railId);
		COPY(planeId);
	}
	return end(NET_PROPERTIES, t, r);
}

ncclResult_t net_listen(struct net *net, void *ctx, int dev, void *handle, void **listenComm)
{
	struct moment t = begin(NET_LISTEN);
	ncclResult_t r;

	*listenComm = net_garbage();
	r = net->listen_v11 ? net->listen_v11(ctx, dev, handle, listenComm)
	                    : net->listen_v5(dev, handle, listenComm);
	r = written(NET_LISTEN, "listenComm", end(NET_LISTEN, t, r), listenComm);
	if (r == ncclSuccess && !*listenComm) {
		wrong("listen returned ncclSuccess and no listenComm");
		r = ncclInternalError;
	}
	return r;
}

/*
 * The device handle that NCCL passes points to NULL on odd calls and is NULL itself on even ones,
 * as in its loopback probe; neither may be written through by a plugin that offloads nothing.
 */
static ncclNetDeviceHandle_t **device_handle(ncclNetDeviceHandle_t **slot)
{
	static atomic_uint turn;

	*slot = NULL;
	return atomic_fetch_add(&turn, 1) % 2 ? slot : NULL;
}

static void check_device_handle(enum net_call call, ncclNetDeviceHandle_t *handle)
{
	if (handle)
		wrong("%s set a device handle without device offload", call_name(call));
}

ncclResult_t net_connect(struct net *net, void *ctx, int dev, ncclNetCommConfig_t *config, void *handle,
                         void **sendComm)
{
	ncclNetDeviceHandle_t *slot, **devComm = device_handle(&slot);
	struct moment t = begin(NET_CONNECT);
	ncclResult_t r;

	*sendComm = net_garbage();
	if (net->connect_v11)
		r = net->connect_v11(ctx, dev, handle, sendComm, devComm);
	else if (net->connect_v10)
		r = net->connect_v10(dev, config, handle, sendComm, devComm);
	else if (net->connect_v7)
		r = net->connect_v7(dev, handle, sendComm, devComm);
	else
		r = net->connect_v5(dev, handle, sendComm);
	r = written(NET_CONNECT, "sendComm", end(NET_CONNECT, t, r), sendComm);
	check_device_handle(NET_CONNECT, slot);
	return r;
}

ncclResult_t net_accept(struct net *net, void *listenComm, void **recvComm)
{
	ncclNetDeviceHandle_t *slot, **devComm = device_handle(&slot);
	struct moment t = begin(NET_ACCEPT);
	ncclResult_t r;

	*recvComm = net_garbage();
	r = net->accept_v7 ? net->accept_v7(listenComm, recvComm, devComm)
	                   : net->accept_v5(listenComm, recvComm);
	r = written(NET_ACCEPT, "recvComm", end(NET_ACCEPT, t, r), recvComm);
	check_device_handle(NET_ACCEPT, slot);
	return r;
}

ncclResult_t net_reg(struct net *net, void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct moment t = begin(NET_REG);
	ncclResult_t r;

	*mhandle = net_garbage();
	r = net->regMr_v8 ? net->regMr_v8(comm, data, size, type, mhandle)
	                  : net->regMr_v5(comm, data, (int)size, type, mhandle);
	return written(NET_REG, "mhandle", end(NET_REG, t, r), mhandle);
}

ncclResult_t net_reg_dmabuf(struct net *net, void *comm, void *data, size_t size, int type, uint64_t offset, int fd,
                            void **mhandle)
{
	struct moment t = begin(NET_REG_DMABUF);
	ncclResult_t r;

	*mhandle = net_garbage();
	r = net->regMrDmaBuf(comm, data, size, type, offset, fd, mhandle);
	return written(NET_REG_DMABUF, "mhandle", end(NET_REG_DMABUF, t, r), mhandle);
}

ncclResult_t net_dereg(struct net *net, void *comm, void *mhandle)
{
	struct moment t = begin(NET_DEREG);

	return end(NET_DEREG, t, net->deregMr(comm, mhandle));
}

ncclResult_t net_isend(struct net *net, void *sendComm, void *data, size_t size, int tag, void *mhandle,
                       void *phandle, void **request)
{
	struct moment t = begin(NET_ISEND);
	ncclResult_t r;

	*request = net_garbage();
	if (net->isend_v10)
		r = net->isend_v10(sendComm, data, size, tag, mhandle, phandle, request);
	else if (net->isend_v9)
		r = net->isend_v9(sendComm, data, size, tag, mhandle, request);
	else
		r = net->isend_v5(sendComm, data, (int)size, tag, mhandle, request);
	return written(NET_ISEND, "request", end(NET_ISEND, t, r), request);
}

ncclResult_t net_irecv(struct net *net, void *recvComm, int n, void **data, size_t *sizes, int *tags,
                       void **mhandles, void **phandles, bool optional, void **request)
{
	void *const hint = (void *)NCCL_NET_OPTIONAL_RECV_COMPLETION;
	int narrow[NCCL_NET_MAX_RECVS];
	struct moment t = begin(NET_IRECV);
	ncclResult_t r;

	*request = optional && net->version >= 9 ? hint : net_garbage();
	if (net->irecv_v10) {
		r = net->irecv_v10(recvComm, n, data, sizes, tags, mhandles, phandles, request);
	} else if (net->irecv_v9) {
		r = net->irecv_v9(recvComm, n, data, sizes, tags, mhandles, request);
	} else {
		for (int i = 0; i < n; i++)
			narrow[i] = (int)sizes[i];
		r = net->irecv_v5(recvComm, n, data, narrow, tags, mhandles, request);
	}
	if (*request == hint)
		*request = net_garbage();
	return written(NET_IRECV, "request", end(NET_IRECV, t, r), request);
}

ncclResult_t net_iflush(struct net *net, void *recvComm, int n, void **data, int *sizes, void **mhandles,
                        void **request)
{
	struct moment t = begin(NET_IFLUSH);
	ncclResult_t r;

	*request = net_garbage();
	r = net->iflush(recvComm, n, data, sizes, mhandles, request);
	return written(NET_IFLUSH, "request", end(NET_IFLUSH, t, r), request);
}

ncclResult_t net_test(struct net *net, void *request, int *done, int n, int *sizes)
{
	int flag[3] = {GARBAGE_INT, GARBAGE_INT, GARBAGE_INT}, room[NCCL_NET_MAX_RECVS + 2];
	struct moment t;
	ncclResult_t r;

	for (int i = 0; i < NCCL_NET_MAX_RECVS + 2; i++)
		room[i] = GARBAGE_INT;
	profiler_in_test(true);
	t = begin(NET_TEST);
	r = end(NET_TEST, t, net->test(request, &flag[1], sizes ? &room[1] : NULL));
	profiler_in_test(false);
	*done = 0;
	if (r == ncclSuccess && flag[1] != 0 && flag[1] != 1) {
		if (flag[1] == GARBAGE_INT)
			wrong("test returned ncclSuccess and left *done as it was");
		else
			wrong("test set *done to %d; 0 and 1 are its values", flag[1]);
		return ncclInternalError;
	}
	if (flag[0] != GARBAGE_INT || flag[2] != GARBAGE_INT)
		wrong("test wrote beside *done");
	for (int i = 0; i < NCCL_NET_MAX_RECVS + 2; i++)
		if (room[i] != GARBAGE_INT && (i < 1 || i > n))
			wrong("test wrote sizes[%d] of a request with %d", i - 1, n);
	if (r == ncclSuccess)
		*done = flag[1];
	if (sizes)
		memcpy(sizes, &room[1], (size_t)n * sizeof *sizes);
	return r;
}

ncclResult_t net_close_send(struct net *net, void *sendComm)
{
	struct moment t = begin(NET_CLOSE_SEND);

	return end(NET_CLOSE_SEND, t, net->closeSend(sendComm));
}

ncclResult_t net_close_recv(struct net *net, void *recvComm)
{
	struct moment t = begin(NET_CLOSE_RECV);

	return end(NET_CLOSE_RECV, t, net->closeRecv(recvComm));
}

ncclResult_t net_close_listen(struct net *net, void *listenComm)
{
	struct moment t = begin(NET_CLOSE_LISTEN);

	return end(NET_CLOSE_LISTEN, t, net->closeListen(listenComm));
}

void net_attributes(struct net *net, void *ctx)
{
	ncclNetAttr_t attributes;

	if (!net->setNetAttr)
		return;
	memset(&attributes, 0xFF, sizeof attributes); /* every hint undefined */
	net->setNetAttr(ctx, &attributes);
}
