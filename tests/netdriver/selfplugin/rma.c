/*
 * ncclRmaPlugin_v13 to v15, where SELFPLUGIN_GPU offers a GPU's memory. The ranks are processes of one machine: each copies to and from
 * the memory of the others, with the tables of their windows in it, and all hold one lock while they change a word.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fault.h"
#include "rma_abi.h"
#include "selfplugin.h"

#define EXPORT __attribute__((visibility("default")))

enum { MAX_WINDOWS = 256 };

/* A window, as other processes read it: base is where its bytes can be reached. */
struct entry {
	uint64_t base, size;
	_Atomic uint32_t state; /* 0: not registered yet, 1: a window, 2: it has ended */
};

struct table {
	struct entry entries[MAX_WINDOWS];
};

/* What a handle says. */
struct ticket {
	pid_t pid;
	uint64_t table; /* its address there */
};

struct post {
	struct coll *coll;
	uint64_t from, to, size, word, value;
	uint32_t source, target, words; /* windows and 1; 0: none */
	uint32_t rank;
	bool get, inc;
	bool done;
	ncclResult_t result;
	struct post *next;
};

struct coll {
	struct table table; /* of this rank */
	int windows;
	int nranks, rank;
	struct ticket *peers;
	struct post **first, ***last; /* queues, by rank */
	atomic_int failed;
};

struct context {
	struct coll *coll;
};

static int rma_context; /* what init returns the address of */

static bool offered(void)
{
	const char *list = getenv("SELFPLUGIN_GPU");

	return list && *list;
}

static ncclResult_t init(void **ctx, uint64_t commId, ncclDebugLogger_t log)
{
	(void)commId, (void)log;
	*ctx = offered() ? &rma_context : NULL;
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	return ncclSuccess;
}

static ncclResult_t devices(int *ndev)
{
	*ndev = 0;
	return offered() || fault_named("rma-offered") ? self_devices(ndev) : ncclSuccess;
}

static ncclResult_t properties(int dev, ncclNetProperties_v12_t *p)
{
	ncclResult_t result = self_properties_v12(dev, p);

	p->netDeviceType = fault_named("rma-type") ? NCCL_NET_DEVICE_HOST : NCCL_NET_DEVICE_GIN_PROXY;
	if (fault_named("rma-recvs"))
		p->maxRecvs = 3;
	if (fault_named("rma-props"))
		p->speed++;
	return result;
}

static ncclResult_t listen_rma(void *ctx, int dev, void *handle, void **listenComm)
{
	struct coll *c = calloc(1, sizeof *c);
	struct ticket own = {getpid(), (uint64_t)(uintptr_t)&c->table};

	(void)ctx, (void)dev;
	memcpy(handle, &own, sizeof own);
	*listenComm = c;
	return ncclSuccess;
}

static ncclResult_t connect_rma(void *ctx, void *handles[], int nranks, int rank, void *listenComm, void **collComm)
{
	struct coll *c = listenComm;

	if (fault_named("rma-context") && ctx != &rma_context)
		return ncclInternalError;
	c->nranks = nranks;
	c->rank = rank;
	c->peers = calloc((size_t)nranks, sizeof *c->peers);
	c->first = calloc((size_t)nranks, sizeof *c->first);
	c->last = calloc((size_t)nranks, sizeof *c->last);
	for (int r = 0; r < nranks; r++) {
		memcpy(&c->peers[r], handles[r], sizeof c->peers[r]);
		c->last[r] = &c->first[r];
	}
	*collComm = c;
	return ncclSuccess;
}

static ncclResult_t close_listen(void *listenComm)
{
	(void)listenComm; /* it is the collComm */
	return ncclSuccess;
}

static ncclResult_t create_context(void *collComm, void **ctx)
{
	struct context *x = calloc(1, sizeof *x);

	x->coll = collComm;
	*ctx = x;
	return ncclSuccess;
}

static ncclResult_t create_context_v13(void *collComm, ncclGinConfig_v13_t *config, void **ctx, void **device)
{
	(void)config;
	*device = NULL;
	return create_context(collComm, ctx);
}

static ncclResult_t create_context_v14(void *collComm, ncclRmaConfig_v14_t *config, void **ctx)
{
	(void)config;
	return create_context(collComm, ctx);
}

static ncclResult_t reg(void *collComm, void *data, size_t size, int type, void **mhandle)
{
	struct coll *c = collComm;
	struct entry *e = &c->table.entries[c->windows];
	void *bytes = type == NCCL_PTR_CUDA ? self_reach(data, size) : data;

	if (!bytes || c->windows == MAX_WINDOWS)
		return ncclInvalidArgument;
	e->base = (uint64_t)(uintptr_t)bytes;
	e->size = size;
	atomic_store(&e->state, 1);
	*mhandle = fault("rma-mhandle") ? NULL : (void *)(uintptr_t)++c->windows;
	return ncclSuccess;
}

static ncclResult_t reg_v13(void *c, void *data, size_t size, int type, uint64_t flags, void **mhandle, void **gin)
{
	ncclResult_t result = reg(c, data, size, type, mhandle);

	(void)flags;
	*gin = *mhandle;
	return result;
}

static ncclResult_t reg_v14(void *c, void *data, size_t size, int type, uint64_t flags, void **mhandle)
{
	(void)flags;
	return reg(c, data, size, type, mhandle);
}

static ncclResult_t reg_dmabuf_v13(void *c, void *data, size_t size, int type, uint64_t offset, int fd, uint64_t flags, void **mhandle,
                                   void **gin)
{
	(void)offset, (void)fd;
	return reg_v13(c, data, size, type, flags, mhandle, gin);
}

static ncclResult_t reg_dmabuf_v14(void *c, void *data, size_t size, int type, uint64_t offset, int fd, uint64_t flags, void **mhandle)
{
	(void)offset, (void)fd;
	return reg_v14(c, data, size, type, flags, mhandle);
}

static ncclResult_t dereg(void *collComm, void *mhandle)
{
	struct coll *c = collComm;
	struct entry *e = &c->table.entries[(uintptr_t)mhandle - 1];

	atomic_store(&e->state, 2);
	if (fault("rma-dereg"))
		fault_touch_later((void *)(uintptr_t)e->base, true);
	return ncclSuccess;
}

static ncclResult_t destroy_context(void *ctx)
{
	free(ctx);
	return ncclSuccess;
}

static ncclResult_t close_coll(void *collComm)
{
	(void)collComm; /* the others may still read its table */
	return ncclSuccess;
}

/* copy moves bytes to a process or from it. */
static ncclResult_t copy(pid_t pid, uint64_t there, void *here, uint64_t size, bool to)
{
	for (uint64_t done = 0; done < size;) {
		struct iovec own = {(char *)here + done, size - done}, other = {(void *)(uintptr_t)(there + done), size - done};
		ssize_t n = to ? process_vm_writev(pid, &own, 1, &other, 1, 0) : process_vm_readv(pid, &own, 1, &other, 1, 0);

		if (n <= 0)
			return fault_named("rma-error-kind") ? ncclSystemError : ncclRemoteError;
		done += (uint64_t)n;
	}
	return ncclSuccess;
}

static ncclResult_t look_up(struct coll *c, uint32_t rank, uint32_t window, struct entry *e)
{
	return copy(c->peers[rank].pid, c->peers[rank].table + (window - 1) * sizeof *e, e, sizeof *e, false);
}

static ncclResult_t signal_word(pid_t pid, uint64_t at, uint64_t value)
{
	int lock = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	uint64_t word;
	ncclResult_t result;

	flock(lock, LOCK_EX);
	result = copy(pid, at, &word, 8, false);
	word += value;
	if (result == ncclSuccess)
		result = copy(pid, at, &word, 8, true);
	close(lock);
	return result;
}

static uint64_t own_address(struct coll *c, uint32_t window, uint64_t offset)
{
	return c->table.entries[window - 1].base + offset;
}

/* carry carries a post out. It returns ncclInProgress if the rank has not registered a window yet. */
static ncclResult_t carry(struct coll *c, struct post *p)
{
	pid_t pid = c->peers[p->rank].pid;
	struct entry target = {0}, words = {0};
	uint64_t add = p->inc || fault("rma-add") ? 1 : p->value;
	ncclResult_t result = ncclSuccess;

	if (p->target)
		result = look_up(c, p->rank, p->target, &target);
	if (p->words && result == ncclSuccess)
		result = look_up(c, p->rank, p->words, &words);
	if (result != ncclSuccess)
		return result;
	if ((p->target && target.state == 0) || (p->words && words.state == 0))
		return ncclInProgress;
	if (p->words && fault("rma-signal-early")) {
		result = signal_word(pid, words.base + p->word, add);
		p->words = 0;
		usleep(20000);
	}
	if (p->target && result == ncclSuccess && !(p->get && fault("rma-get-none")))
		result = copy(pid, target.base + (p->get ? p->from : p->to),
		              (void *)(uintptr_t)own_address(c, p->source, p->get ? p->to : p->from),
		              p->size + (!p->get && p->size && fault("rma-overrun")), !p->get);
	if (p->words && result == ncclSuccess && !fault("rma-signal-lost"))
		result = signal_word(pid, words.base + p->word, add);
	if (p->words && result == ncclSuccess && fault("rma-signal-twice"))
		result = signal_word(pid, words.base + p->word, add);
	return result;
}

/* advance carries the posts to a rank out, in their order. */
static void advance(struct coll *c, uint32_t rank)
{
	for (struct post *p; (p = c->first[rank]);) {
		ncclResult_t result = carry(c, p);

		if (result == ncclInProgress)
			return;
		if (result != ncclSuccess && fault_named("rma-error-hidden"))
			result = ncclSuccess;
		if (result != ncclSuccess)
			atomic_store(&c->failed, 1);
		if (!(c->first[rank] = p->next))
			c->last[rank] = &c->first[rank];
		p->result = result;
		p->done = true;
	}
}

static ncclResult_t post(void *ctx, struct post what, void **request)
{
	struct coll *c = ((struct context *)ctx)->coll;
	struct post *p = malloc(sizeof *p);

	if (what.rank == (uint32_t)c->rank && fault_named("rma-self"))
		return ncclInvalidUsage;
	if (what.words && !what.target && fault_named("rma-handles"))
		return ncclInvalidArgument;
	*p = what;
	p->coll = c;
	*c->last[p->rank] = p;
	c->last[p->rank] = &p->next;
	advance(c, p->rank);
	*request = fault("rma-request") ? NULL : p;
	return ncclSuccess;
}

static uint32_t window(void *mhandle)
{
	return (uint32_t)(uintptr_t)mhandle;
}

static ncclResult_t put_v13(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst, uint32_t rank,
                            void **request)
{
	(void)context;
	return post(ctx, (struct post){.from = srcOff, .to = dstOff, .size = size, .source = window(src), .target = window(dst), .rank = rank},
	            request);
}

static ncclResult_t put_v15(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst, uint32_t rank,
                            uint32_t flags, void **request)
{
	(void)flags;
	return put_v13(ctx, context, srcOff, src, size, dstOff, dst, rank, request);
}

static ncclResult_t signal_v13(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst,
                               uint32_t rank, uint64_t signalOff, void *signal, uint64_t value, uint32_t op, void **request)
{
	(void)context;
	return post(ctx, (struct post){.from = srcOff, .to = dstOff, .size = size, .source = window(src), .target = window(dst), .rank = rank,
	                               .word = signalOff, .words = window(signal), .value = value, .inc = op == NCCL_NET_SIGNAL_OP_INC},
	            request);
}

static ncclResult_t signal_v14(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst,
                               uint32_t rank, uint64_t signalOff, void *signal, uint64_t value, uint32_t op, bool strong, void **request)
{
	(void)strong;
	return signal_v13(ctx, context, srcOff, src, size, dstOff, dst, rank, signalOff, signal, value, op, request);
}

static ncclResult_t signal_v15(void *ctx, int context, uint64_t srcOff, void *src, size_t size, uint64_t dstOff, void *dst,
                               uint32_t rank, uint64_t signalOff, void *signal, uint64_t value, uint32_t op, bool strong, uint32_t flags,
                               void **request)
{
	(void)flags;
	return signal_v14(ctx, context, srcOff, src, size, dstOff, dst, rank, signalOff, signal, value, op, strong, request);
}

static ncclResult_t get_v13(void *ctx, int context, uint64_t remoteOff, void *remote, size_t size, uint64_t localOff, void *local,
                            uint32_t rank, void **request)
{
	(void)context;
	return post(ctx, (struct post){.from = remoteOff, .to = localOff, .size = size, .source = window(local), .target = window(remote),
	                               .rank = rank, .get = true},
	            request);
}

static ncclResult_t get_v15(void *ctx, int context, uint64_t remoteOff, void *remote, size_t size, uint64_t localOff, void *local,
                            uint32_t rank, uint32_t flags, void **request)
{
	(void)flags;
	return get_v13(ctx, context, remoteOff, remote, size, localOff, local, rank, request);
}

static ncclResult_t flush(void *ctx, int context, void *mhandle, uint32_t rank, void **request)
{
	(void)ctx, (void)context, (void)mhandle, (void)rank;
	*request = NULL; /* a get that has been carried out is there */
	return ncclSuccess;
}

static ncclResult_t test(void *collComm, void *request, int *done)
{
	struct post *p = request;
	ncclResult_t result = p->result;

	if (fault("rma-done"))
		return ncclSuccess;
	advance(collComm, p->rank);
	*done = p->done;
	result = p->result;
	if (p->done)
		free(p);
	return result;
}

static ncclResult_t progress(void *ctx)
{
	struct coll *c = ((struct context *)ctx)->coll;

	for (int r = 0; r < c->nranks; r++)
		advance(c, (uint32_t)r);
	return ncclSuccess;
}

static ncclResult_t query_last_error(void *ctx, bool *error)
{
	*error = (atomic_load(&((struct context *)ctx)->coll->failed) && !fault_named("rma-query-never")) || fault_named("rma-query-always");
	return ncclSuccess;
}

static ncclResult_t finalize(void *ctx)
{
	return ctx == &rma_context ? ncclSuccess : ncclInternalError;
}

#define TABLE(version, context, dmabuf, registration, put, signal, get) \
	EXPORT const ncclRma_t ncclRmaPlugin_v##version = { \
		.name = "self", .init = init, .devices = devices, .getProperties = properties, .listen = listen_rma, \
		.connect = connect_rma, .createContext = context, .regMrSym = registration, .regMrSymDmaBuf = dmabuf, .deregMrSym = dereg, \
		.destroyContext = destroy_context, .closeColl = close_coll, .closeListen = close_listen, .iput = put, .iputSignal = signal, \
		.iget = get, .iflush = flush, .test = test, .rmaProgress = progress, .queryLastError = query_last_error, \
		.finalize = finalize, \
	}

TABLE(13, create_context_v13, reg_dmabuf_v13, reg_v13, put_v13, signal_v13, get_v13);
TABLE(14, create_context_v14, reg_dmabuf_v14, reg_v14, put_v13, signal_v14, get_v13);
TABLE(15, create_context_v14, reg_dmabuf_v14, reg_v14, put_v15, signal_v15, get_v15);
