/* A network plugin, called as NCCL calls it and with nothing between. */
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "bench.h"

enum { CONNECT_SECONDS = 30, TAG = 7 };

struct half {
	void *comm, *mhandle;
};

/* The plugin's table: of v11 what is called here is as in v12. */
static ncclNet_v12_t net;
static void *context;
static bool verbose;

__attribute__((format(printf, 5, 6)))
static void logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	(void)flags, (void)file, (void)line;
	if (level > NCCL_LOG_WARN && !verbose)
		return;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static void ok(ncclResult_t result, const char *call)
{
	if (result != ncclSuccess)
		die("%s returned %d", call, (int)result);
}

static void read_table(void *library, const char *name)
{
	const ncclNet_v12_t *v12 = dlsym(library, "ncclNetPlugin_v12");
	const ncclNet_v11_t *v11 = dlsym(library, "ncclNetPlugin_v11");

	if (v12)
		net = *v12;
	else if (v11)
		net = (ncclNet_v12_t){
			.name = v11->name, .init = v11->init, .devices = v11->devices, .listen = v11->listen, .connect = v11->connect,
			.accept = v11->accept, .regMr = v11->regMr, .deregMr = v11->deregMr, .isend = v11->isend, .irecv = v11->irecv,
			.test = v11->test, .closeSend = v11->closeSend, .closeRecv = v11->closeRecv, .closeListen = v11->closeListen,
			.finalize = v11->finalize,
		};
	else
		die("%s exports neither ncclNetPlugin_v12 nor ncclNetPlugin_v11", name);
}

void net_init(const struct options *o)
{
	ncclNetCommConfig_t config = {.trafficClass = -1};
	void *library;
	int n;

	verbose = getenv("NCCL_DEBUG") && strcmp(getenv("NCCL_DEBUG"), "INFO") == 0;
	if (!o->plugin)
		die("--plugin FILE is missing");
	library = dlopen(o->plugin, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		die("%s", dlerror());
	read_table(library, o->plugin);
	ok(net.init(&context, 1, &config, logger, NULL), "init");
	ok(net.devices(&n), "devices");
	if (n < 1)
		die("devices: none");
}

void net_connect(struct conn *conns, int n)
{
	char(*own)[NCCL_NET_HANDLE_MAXSIZE] = calloc((size_t)n, sizeof *own), (*handles)[NCCL_NET_HANDLE_MAXSIZE];
	void **listeners = calloc((size_t)n, sizeof *listeners);
	uint64_t until = now_ns() + CONNECT_SECONDS * 1000000000ull;
	int open = 0;

	handles = calloc((size_t)n, sizeof *handles);
	for (int i = 0; i < n; i++) {
		conns[i].half = calloc(1, sizeof(struct half));
		if (!conns[i].sending)
			ok(net.listen(context, 0, own[i], &listeners[i]), "listen");
	}
	meet_exchange(own, handles, (size_t)n * sizeof *own);
	while (open < n) {
		bool moved = false;

		for (int i = 0; i < n; i++) {
			struct half *h = conns[i].half;

			if (h->comm)
				continue;
			if (conns[i].sending)
				ok(net.connect(context, 0, handles[i], &h->comm, NULL), "connect");
			else
				ok(net.accept(listeners[i], &h->comm, NULL), "accept");
			if (!h->comm)
				continue;
			if (!conns[i].sending)
				ok(net.closeListen(listeners[i]), "closeListen");
			moved = true;
			open++;
		}
		if (!moved)
			sched_yield();
		if (now_ns() > until)
			die("%d of %d connections are open after %d s", open, n, CONNECT_SECONDS);
	}
	free(own);
	free(handles);
	free(listeners);
}

void net_close(struct conn *conns, int n)
{
	meet_barrier();
	for (int i = 0; i < n; i++) {
		struct half *h = conns[i].half;

		if (h->mhandle)
			ok(net.deregMr(h->comm, h->mhandle), "deregMr");
		ok(conns[i].sending ? net.closeSend(h->comm) : net.closeRecv(h->comm), "close");
	}
	ok(net.finalize(context), "finalize");
	meet_barrier();
}

size_t net_beside(void) { return sizeof(struct half); }

void net_register(struct conn *c, void *data, size_t size)
{
	struct half *h = c->half;

	ok(net.regMr(h->comm, data, size, NCCL_PTR_HOST, &h->mhandle), "regMr");
}

bool net_isend(struct conn *c, void *data, size_t size, uint64_t *request)
{
	struct half *h = c->half;
	void *r = NULL;

	ok(net.isend(h->comm, data, size, TAG, h->mhandle, NULL, &r), "isend");
	*request = (uint64_t)r;
	return r != NULL;
}

bool net_irecv(struct conn *c, void *data, size_t size, uint64_t *request)
{
	struct half *h = c->half;
	void *r = NULL;
	int tag = TAG;

	ok(net.irecv(h->comm, 1, &data, &size, &tag, &h->mhandle, NULL, &r), "irecv");
	*request = (uint64_t)r;
	return r != NULL;
}

bool net_test(struct conn *c, uint64_t request)
{
	int done = 0;

	(void)c;
	ok(net.test((void *)request, &done, NULL), "test");
	return done != 0;
}
