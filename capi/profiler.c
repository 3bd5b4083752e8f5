/* Reports parts of messages to NCCL's profiler, in NCCL's own event descriptions. */
#include "plugin.h"

/* From libibverbs: the opcode that a lane posts, and the one that a receiver's device completes. */
#define IBV_WR_RDMA_WRITE_WITH_IMM 1
#define IBV_WC_RECV_RDMA_WITH_IMM 129

/*
 * NCCL reads the description during the call only. It writes the event's handle during the call,
 * and only if a profiler has accepted the event.
 */
uintptr_t mesh_event_start(uintptr_t profiler, uintptr_t phandle, struct mesh_event e)
{
	ncclProfilerCallback_t call = (ncclProfilerCallback_t)profiler;
	void *event = NULL;

	if (e.socket) {
		ncclProfilerNetSockDescr_v1_t d = { .type = NCCL_PROFILE_SOCKET };

		d.sock.fd = e.number;
		d.sock.op = e.sending ? NCCL_SOCKET_SEND : NCCL_SOCKET_RECV;
		d.sock.length = e.length;
		call(&event, NCCL_PROFILER_NET_EVENT_START, (void *)phandle,
		     NCCL_PROFILER_NET_TYPE_SOCK | NCCL_PROFILER_NET_SOCKET_VER, &d);
	} else {
		ncclProfilerNetIbDescr_v1_t d = { .type = NCCL_PROFILE_QP };

		d.qp.device = e.lane;
		d.qp.wr_id = e.request;
		d.qp.opcode = e.sending ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WC_RECV_RDMA_WITH_IMM;
		d.qp.qpNum = e.number;
		d.qp.length = e.length;
		call(&event, NCCL_PROFILER_NET_EVENT_START, (void *)phandle,
		     NCCL_PROFILER_NET_TYPE_IB | NCCL_PROFILER_NET_IB_VER, &d);
	}
	return (uintptr_t)event;
}

void mesh_event_stop(uintptr_t profiler, uintptr_t event)
{
	void *handle = (void *)event;

	((ncclProfilerCallback_t)profiler)(&handle, NCCL_PROFILER_NET_EVENT_STOP, NULL, 0, NULL);
}
