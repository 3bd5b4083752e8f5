/* A network plugin, called as NCCL calls it and with nothing between. */
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

enum { CONNECT_SECONDS = 30 };

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
	net = dlsym(library, "ncclNetPlugin_v12");
	if (!net)
		die("%s exports no ncclNetPlugin_v12", o->plugin);
	ok(net->init(&context, 1, &config, logger, NULL), "init");
	ok(net->devices(&n), "devices");
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
			ok(net->listen(context, 0, own[i], &listeners[i]), "listen");
	}
	meet_exchange(own, handles, (size_t)n * sizeof *own);
	while (open < n) {
		bool moved = false;

		for (int i = 0; i < n; i++) {
			struct half *h = conns[i].half;

			if (h->comm)
				continue;
			if (conns[i].sending)
				ok(net->connect(context, 0, handles[i], &h->comm, NULL), "connect");
			else
				ok(net->accept(listeners[i], &h->comm, NULL), "accept");
			if (!h->comm)
				continue;
			if (!conns[i].sending)
				ok(net->closeListen(listeners[i]), "closeListen");
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
			ok(net->deregMr(h->comm, h->mhandle), "deregMr");
		ok(conns[i].sending ? net->closeSend(h->comm) : net->closeRecv(h->comm), "close");
	}
	ok(net->finalize(context), "finalize");
	meet_barrier();
}

size_t net_beside(void) { return sizeof(struct half); }
