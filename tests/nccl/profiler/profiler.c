/*
 * A profiler for NCCL (its interface 5, of 2.28.9 and later), which wants network events and counts
 * them. At its communicator's end it prints what there were, and what was wrong with them. With
 * WITHOUT_NETWORK set it wants others instead.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLL = 1 << 1, PROXY_OP = 1 << 3, NET_PLUGIN = 1 << 7, ROOM = 8 };
enum { IB_V1 = 1 << 16 | 1, SOCKET_V1 = 2 << 16 | 1 };

/* Of an event only these are looked at. */
struct description {
	uint64_t type;
	void *parent;
	int rank;
	struct {
		int64_t id;
		void *data;
	} net;
};

/* What NCCL's own networks say: net_ib_v1.h and net_socket_v1.h in its src/include/plugin/profiler. */
struct ib {
	uint8_t type;
	struct {
		int device;
		uint64_t wr_id;
		int opcode, number;
		size_t length;
	} qp;
};

struct socket {
	uint8_t type;
	struct {
		int fd, operation;
		size_t length;
	} sock;
};

struct event {
	int network;
	struct event *parent; /* a network event's step */
	atomic_int under_way; /* itself, and a step's network events */
	atomic_int events;    /* a step's */
};

static atomic_long ib_events, socket_events, bytes, wrong;

static int init(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, void *log)
{
	(void)id, (void)name, (void)nodes, (void)ranks, (void)rank, (void)log;
	*context = &wrong;
	*mask = getenv("WITHOUT_NETWORK") ? COLL | PROXY_OP : NET_PLUGIN;
	return 0;
}

static void describe(const struct description *d)
{
	const struct socket *socket = d->net.data;
	const struct ib *ib = d->net.data;

	if (d->net.id == IB_V1) {
		ib_events++;
		bytes += (long)ib->qp.length;
		wrong += ib->type != 1 || ib->qp.number <= 0;
	} else if (d->net.id == SOCKET_V1) {
		socket_events++;
		bytes += (long)socket->sock.length;
		wrong += socket->type != 1 || socket->sock.fd <= 2;
	} else {
		wrong++;
	}
}

/* Events are never given back: it is for short jobs. */
static int start(void *context, void **handle, struct description *d)
{
	struct event *e = calloc(1, sizeof *e);

	(void)context;
	e->under_way = 1;
	*handle = e;
	if (d->type != NET_PLUGIN)
		return 0;
	e->network = 1;
	e->parent = d->parent;
	describe(d);
	if (!e->parent || !e->parent->under_way || ++e->parent->events > ROOM)
		wrong++;
	else
		e->parent->under_way++;
	return 0;
}

static int stop(void *handle)
{
	struct event *e = handle;

	if (!e)
		return 0;
	if (e->network)
		wrong += --e->under_way != 0 || (e->parent && --e->parent->under_way < 1);
	else if (e->events)
		wrong += --e->under_way != 0; /* a step ends when its network events have */
	return 0;
}

static int record(void *handle, int state, void *arguments)
{
	(void)handle, (void)state, (void)arguments;
	return 0;
}

static int finalize(void *context)
{
	(void)context;
	printf("profiler: %ld of queue pairs, %ld of sockets, %ld bytes, %ld wrong\n", ib_events, socket_events, bytes, wrong);
	fflush(stdout);
	return 0;
}

__attribute__((visibility("default"))) const struct {
	const char *name;
	int (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
	int (*start)(void *, void **, struct description *);
	int (*stop)(void *);
	int (*record)(void *, int, void *);
	int (*finalize)(void *);
} ncclProfiler_v5 = {"counts", init, start, stop, record, finalize};
