#include "profiler.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>

#include "log.h"

enum {
	OLDEST_INTERFACE = 11, /* before, NCCL cannot take events in test */
	STEPS = 1 << 14,       /* as many messages later a step is another's */
	EVENTS = 8,            /* of a message; existing profilers have no room for more */
	REFUSED = 5,           /* of so many messages one is refused */
	MAX_LANES = 32,
	FIRST_WC_OPCODE = 128, /* of what a receiver's device completes */
};

struct event {
	bool open;
	size_t length;
};

enum { STEP_FREE, STEP_POSTED, STEP_OVER };

struct step {
	atomic_int state;
	bool sending, refused;
	int starts; /* events, made or refused */
	struct event events[EVENTS];
};

static struct {
	bool listens;
	int version;
	atomic_ulong taken, events;
	struct step steps[STEPS];
} profiler;

static _Thread_local bool in_test;

void profiler_open(bool listens, int version)
{
	profiler.listens = listens;
	profiler.version = version;
}

void profiler_close(void)
{
	if (profiler.listens)
		say("profiler: %lu network events", atomic_load(&profiler.events));
}

void profiler_in_test(bool inside)
{
	in_test = inside;
}

struct step *step_begin(bool sending)
{
	static struct step nobody = {.state = STEP_POSTED, .refused = true};
	unsigned long turn;
	struct step *step;

	if (!profiler.listens)
		return &nobody;
	do {
		turn = atomic_fetch_add(&profiler.taken, 1);
		step = &profiler.steps[turn % STEPS];
	} while (step->state == STEP_POSTED);
	*step = (struct step){.state = STEP_POSTED, .sending = sending, .refused = turn % REFUSED == 0};
	return step;
}

void step_end(struct step *step, long size)
{
	size_t sum = 0;

	if (!step || !profiler.listens)
		return;
	for (int i = 0; i < step->starts && i < EVENTS; i++) {
		sum += step->events[i].length;
		if (step->events[i].open)
			wrong("profiler: event %d of a message is under way, and test says that it is done", i);
	}
	step->state = STEP_OVER;
	if (profiler.version < OLDEST_INTERFACE || (step->refused && !step->starts))
		return;
	if (!step->starts)
		wrong("profiler: there was no event of a message");
	else if (size == 0 && step->starts > 1)
		wrong("profiler: %d events of an empty message", step->starts);
	else if (size >= 0 && (step->starts < EVENTS ? sum != (size_t)size : sum > (size_t)size))
		wrong("profiler: the events of a message of %ld bytes tell of %zu", size, sum);
}

static bool is_socket(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* described checks what an event says of itself, and returns its length. */
static size_t described(const struct step *step, int64_t id, const void *data)
{
	const ncclProfilerNetSockDescr_v1_t *sock = data;
	const ncclProfilerNetIbDescr_v1_t *ib = data;

	if (id == (NCCL_PROFILER_NET_TYPE_IB | 1)) {
		if (ib->type != 1 || ib->qp.device < 0 || ib->qp.device >= MAX_LANES || ib->qp.qpNum <= 0 || ib->qp.qpNum >> 24)
			wrong("profiler: event type %d, device %d, queue pair %d", ib->type, ib->qp.device, ib->qp.qpNum);
		if (ib->qp.opcode < 0 || (ib->qp.opcode < FIRST_WC_OPCODE) != step->sending)
			wrong("profiler: opcode %d of %s", ib->qp.opcode, step->sending ? "a send" : "a receive");
		return ib->qp.length;
	}
	if (id != (NCCL_PROFILER_NET_TYPE_SOCK | 1)) {
		wrong("profiler: nothing is known of network events of kind %#llx", (unsigned long long)id);
		return 0;
	}
	if (sock->type != 1 || !is_socket(sock->sock.fd))
		wrong("profiler: event type %d, and descriptor %d is %sa socket", sock->type, sock->sock.fd,
		      is_socket(sock->sock.fd) ? "" : "not ");
	if (sock->sock.op != (step->sending ? NCCL_SOCKET_SEND : NCCL_SOCKET_RECV))
		wrong("profiler: operation %d of %s", sock->sock.op, step->sending ? "a send" : "a receive");
	return sock->sock.length;
}

static void start(void **eHandle, void *phandle, int64_t id, void *data)
{
	struct step *step = phandle;
	struct event *event;

	if (!profiler.listens)
		return; /* as NCCL without a profiler */
	if ((uintptr_t)step - (uintptr_t)profiler.steps >= sizeof profiler.steps) {
		wrong("profiler: an event of step %p, which is none", phandle);
		return;
	}
	if (*eHandle)
		wrong("profiler: the handle of an event is %p before it starts", *eHandle);
	if (step->state != STEP_POSTED) {
		wrong("profiler: an event of a message starts after test has said that it is done");
		return;
	}
	if (step->starts == EVENTS) {
		wrong("profiler: more than %d events of a message, and profilers have no room for them", EVENTS);
		return;
	}
	event = &step->events[step->starts++];
	event->length = described(step, id, data);
	if (step->refused)
		return;
	event->open = true;
	*eHandle = event;
	atomic_fetch_add(&profiler.events, 1);
}

/* stop has nothing but the handle, which NCCL hands on unseen. */
static void stop(void **eHandle)
{
	struct event *event = *eHandle;

	if ((uintptr_t)event - (uintptr_t)profiler.steps >= sizeof profiler.steps)
		wrong("profiler: event %p stops, which is none", *eHandle);
	else if (!event->open)
		wrong("profiler: an event stops that is not under way");
	else
		event->open = false;
}

ncclResult_t profiler_callback(void **eHandle, int type, void *phandle, int64_t pluginId, void *extData)
{
	if (profiler.version < OLDEST_INTERFACE)
		wrong("profiler: NCCL takes no events in test before interface %d", OLDEST_INTERFACE);
	if (!in_test)
		wrong("profiler: called outside of test");
	if (type == NCCL_PROFILER_NET_EVENT_START)
		start(eHandle, phandle, pluginId, extData);
	else if (type == NCCL_PROFILER_NET_EVENT_STOP)
		stop(eHandle);
	else
		wrong("profiler: call of type %d", type);
	return ncclSuccess;
}
