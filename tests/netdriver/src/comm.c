#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "orphan.h"
#include "progress.h"
#include "watchdog.h"

void check_call(ncclResult_t result, const char *call)
{
	if (result != ncclSuccess)
		die("%s failed: %s (%d)", call, result_name(result), (int)result);
}

void handle_prepare(unsigned char handle[CONNECT_HANDLE])
{
	memset(handle, 0xA5, CONNECT_HANDLE);
}

void handle_check(const unsigned char handle[CONNECT_HANDLE], const char *call)
{
	for (int i = NCCL_NET_HANDLE_MAXSIZE; i < CONNECT_HANDLE; i++)
		if (handle[i] != 0xA5) {
			wrong("%s wrote byte %d of a handle of %d", call, i, NCCL_NET_HANDLE_MAXSIZE);
			return;
		}
}

void plugin_init(struct job *job, void **ctx, uint64_t id)
{
	*ctx = NULL;
	if (job->net.version < 11 && job->inits > 0)
		return;
	check_call(net_init(&job->net, ctx, id, -1), "init");
	job->inits++;
	check_call(net_devices(&job->net, &job->ndev), "devices");
	if (job->ndev < 1)
		die("devices reports %d devices: NCCL would go on to its next network", job->ndev);
	job->max_recvs = NCCL_NET_MAX_RECVS;
	for (int dev = 0; dev < job->ndev; dev++) {
		struct net_props props;

		check_call(net_properties(&job->net, dev, 0xAA, &props), "getProperties");
		if ((props.ptrSupport & memory_pointers(&job->net)) != memory_pointers(&job->net))
			die("device %d does not take the pointers of --memory (ptrSupport %d, %d is needed)", dev,
			    props.ptrSupport, memory_pointers(&job->net));
		if (props.maxRecvs < 1 || props.maxRecvs > NCCL_NET_MAX_RECVS)
			die("device %d: maxRecvs %d, 1 to %d is what NCCL can use", dev, props.maxRecvs,
			    NCCL_NET_MAX_RECVS);
		if (props.maxRecvs < job->max_recvs)
			job->max_recvs = props.maxRecvs;
	}
}

void plugin_fini(struct job *job, void *ctx)
{
	if (job->net.version >= 11)
		check_call(net_finalize(&job->net, ctx), "finalize");
}

unsigned char *conn_slot(const struct conn *conn, uint64_t message)
{
	return conn->slots.base + SLOT_GUARD + message % (uint64_t)conn->comm->job->opt.depth * conn->stride;
}

/* On the service thread. */

static void service_listen(void *arg)
{
	struct comm *comm = arg;
	struct job *job = comm->job;

	for (int peer = 0; peer < job->opt.nranks; peer++) {
		struct conn *conn = &comm->recv[peer];

		handle_prepare(conn->handle);
		check_call(net_listen(&job->net, comm->ctx, comm->dev, conn->handle, &conn->listen_comm), "listen");
		handle_check(conn->handle, "listen");
	}
}

static bool try_connect(struct conn *conn)
{
	struct comm *comm = conn->comm;
	struct job *job = comm->job;
	ncclNetCommConfig_t config = {-1};
	ncclResult_t result;

	net_attributes(&job->net, comm->ctx);
	result = net_connect(&job->net, comm->ctx, comm->dev, conn->peer % 2 ? &config : NULL, conn->handle,
	                     &conn->net_comm);
	if (result != ncclSuccess)
		die("connect to rank %d failed: %s (%d)", conn->peer, result_name(result), (int)result);
	handle_check(conn->handle, "connect");
	return conn->net_comm != NULL;
}

static bool try_accept(struct conn *conn)
{
	struct job *job = conn->comm->job;
	ncclResult_t result;

	net_attributes(&job->net, conn->comm->ctx);
	result = net_accept(&job->net, conn->listen_comm, &conn->net_comm);
	if (result != ncclSuccess)
		die("accept from rank %d failed: %s (%d)", conn->peer, result_name(result), (int)result);
	if (!conn->net_comm)
		return false;
	check_call(net_close_listen(&job->net, conn->listen_comm), "closeListen");
	conn->listen_comm = NULL;
	return true;
}

static void open_slots(struct conn *conn)
{
	struct job *job = conn->comm->job;

	conn->stride = (job->opt.chunk + 63) / 64 * 64 + SLOT_GUARD;
	region_open(&conn->slots, SLOT_GUARD + (size_t)job->opt.depth * conn->stride);
	check_call(memory_reg(&job->net, conn->net_comm, conn->slots.base, conn->slots.size, &conn->mhandle), "regMr");
	check_call(memory_reg(&job->net, conn->net_comm, conn->slots.base, conn->slots.size, &conn->second_mhandle), "regMr");
}

/* service_connect polls every connect and accept of the communicator in one loop, as NCCL does:
 * a call that blocks would keep the others, here and on other ranks, from getting on. */
static void service_connect(void *arg)
{
	struct comm *comm = arg;
	int n = comm->job->opt.nranks, open = 0;
	unsigned idle = 0;

	for (int peer = 0; peer < n; peer++)
		memcpy(comm->send[peer].handle, comm->handles + (peer * n + comm->job->opt.rank) * CONNECT_HANDLE,
		       CONNECT_HANDLE);
	while (open < 2 * n) {
		int before = open;

		for (int peer = 0; peer < n; peer++) {
			if (!comm->send[peer].net_comm && try_connect(&comm->send[peer]))
				open++;
			if (!comm->recv[peer].net_comm && try_accept(&comm->recv[peer]))
				open++;
		}
		if (open > before) {
			watchdog_fed();
			idle = 0;
		} else {
			progress_idle(&idle);
		}
	}
	for (int peer = 0; peer < n; peer++) {
		open_slots(&comm->send[peer]);
		open_slots(&comm->recv[peer]);
	}
}

/* service_close keeps NCCL's order: deregister everything, free the buffers, close. */
static void service_close(void *arg)
{
	struct comm *comm = arg;
	struct job *job = comm->job;
	int n = job->opt.nranks;

	for (int i = 0; i < 2 * n; i++) {
		struct conn *conn = i < n ? &comm->send[i] : &comm->recv[i - n];

		check_call(net_dereg(&job->net, conn->net_comm, conn->mhandle), "deregMr");
		check_call(net_dereg(&job->net, conn->net_comm, conn->second_mhandle), "deregMr");
		region_close(&conn->slots);
	}
	for (int peer = 0; peer < n; peer++) {
		check_call(net_close_send(&job->net, comm->send[peer].net_comm), "closeSend");
		check_call(net_close_recv(&job->net, comm->recv[peer].net_comm), "closeRecv");
	}
}

static void describe_opening(void *arg)
{
	struct job *job = arg;

	for (int k = 0; k < job->opt.comms; k++)
		for (int peer = 0; peer < job->opt.nranks; peer++)
			say("comm %d, rank %d: connect to it %s, accept from it %s", k, peer,
			    job->comms[k].send[peer].net_comm ? "done" : "pending",
			    job->comms[k].recv[peer].net_comm ? "done" : "pending");
}

static void comm_open(struct job *job, struct comm *comm, int index)
{
	size_t n = (size_t)job->opt.nranks;
	char name[24];

	comm->job = job;
	comm->index = index;
	comm->id = mix(job->opt.seed + (uint64_t)index);
	plugin_init(job, &comm->ctx, comm->id);
	comm->dev = index % job->ndev;
	comm->send = calloc(n, sizeof *comm->send);
	comm->recv = calloc(n, sizeof *comm->recv);
	comm->handles = malloc(n * n * CONNECT_HANDLE);
	for (int peer = 0; peer < job->opt.nranks; peer++) {
		comm->send[peer].comm = comm->recv[peer].comm = comm;
		comm->send[peer].peer = comm->recv[peer].peer = peer;
		comm->send[peer].sending = true;
	}
	snprintf(name, sizeof name, "service %d", index);
	worker_start(&comm->service, name);
	snprintf(name, sizeof name, "progress %d", index);
	worker_start(&comm->progress, name);
}

static void each_service(struct job *job, void (*run)(void *))
{
	for (int k = 0; k < job->opt.comms; k++)
		worker_give(&job->comms[k].service, run, &job->comms[k]);
	for (int k = 0; k < job->opt.comms; k++)
		worker_wait(&job->comms[k].service);
	watchdog_fed();
}

void comms_open(struct job *job)
{
	int n = job->opt.nranks;
	unsigned char own[n][CONNECT_HANDLE];

	job->comms = calloc((size_t)job->opt.comms, sizeof *job->comms);
	for (int k = 0; k < job->opt.comms; k++)
		comm_open(job, &job->comms[k], k);
	watchdog_describe(describe_opening, job);
	each_service(job, service_listen);
	for (int k = 0; k < job->opt.comms; k++) {
		for (int peer = 0; peer < n; peer++)
			memcpy(own[peer], job->comms[k].recv[peer].handle, CONNECT_HANDLE);
		rendezvous_gather(&job->rv, own, job->comms[k].handles, sizeof own);
	}
	orphans_leave(job, job->opt.early_orphans);
	each_service(job, service_connect);
	watchdog_describe(NULL, NULL);
}

void comms_close(struct job *job)
{
	rendezvous_barrier(&job->rv);
	comms_abort(job);
}

void comms_abort(struct job *job)
{
	each_service(job, service_close);
	for (int k = 0; k < job->opt.comms; k++) {
		struct comm *comm = &job->comms[k];

		worker_stop(&comm->progress);
		worker_stop(&comm->service);
		free(comm->send);
		free(comm->recv);
		free(comm->handles);
		plugin_fini(job, comm->ctx);
	}
	free(job->comms);
	job->comms = NULL;
}
