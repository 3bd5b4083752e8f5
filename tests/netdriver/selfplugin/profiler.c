/* NCCL's profiler: a network event for each message, which goes over one socket. */
#include <stddef.h>

#include "end.h"

static ncclProfilerCallback_t callback;

void self_profiler(ncclProfilerCallback_t given)
{
	callback = given;
}

static void stop(void *event)
{
	callback(&event, NCCL_PROFILER_NET_EVENT_STOP, NULL, 0, NULL);
}

static void *start(struct end *end, void *step, size_t length)
{
	void *event = fault("profile-preset") ? end : NULL;
	ncclProfilerNetSockDescr_v1_t d = {.type = 1, .sock = {end->fd, !end->sending, length}};
	int64_t id = NCCL_PROFILER_NET_TYPE_SOCK | 1;

	if (fault("profile-kind"))
		id = 1;
	if (fault("profile-descriptor"))
		d.sock.fd = -1;
	if (fault("profile-operation"))
		d.sock.op = !d.sock.op;
	if (fault("profile-length"))
		d.sock.length++;
	callback(&event, NCCL_PROFILER_NET_EVENT_START, step, id, &d);
	return event;
}

static void tell(struct end *end, void *step, size_t length)
{
	void *event = start(end, step, length);

	if (event ? !fault("profile-open") : fault("profile-unmade"))
		stop(event);
	if (event && fault("profile-stop"))
		stop(event);
}

void self_steps(void *request, int n, void **steps)
{
	struct request *r = request;

	for (int i = 0; r && i < n; i++)
		r->steps[i] = callback && steps ? steps[i] : NULL;
	if (r && r->steps[0] && fault("profile-isend"))
		tell(r->end, r->steps[0], 0);
}

void self_tell(struct request *r)
{
	struct end *end = r->end;

	if (end->late && fault("profile-late"))
		tell(end, end->late, 0);
	for (int i = 0; i < r->n; i++) {
		size_t length = end->sending ? r->parts[i].size : r->parts[i].got;

		if (!r->steps[i] || fault("profile-none"))
			continue;
		tell(end, fault("profile-step") ? NULL : r->steps[i], length);
		if (fault("profile-twice"))
			tell(end, r->steps[i], length);
		for (int k = 0; k < 8 && fault_named("profile-many"); k++)
			tell(end, r->steps[i], 0);
		end->late = r->steps[i];
	}
}
