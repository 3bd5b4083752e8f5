#include <errno.h>
#include <string.h>

#include "rdma.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int gid_index;

void rdma_open(const struct options *o)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (struct ibv_device **d = list; d && *d && !context; d++)
		if (!o->device || strcmp(ibv_get_device_name(*d), o->device) == 0)
			context = ibv_open_device(*d);
	if (list)
		ibv_free_device_list(list);
	gid_index = o->gid_index;
	if (!context)
		die("no RDMA device%s%s", o->device ? " " : "", o->device ? o->device : "");
	if (!(pd = ibv_alloc_pd(context)) || ibv_query_port(context, 1, &port) || ibv_query_gid(context, 1, gid_index, &gid))
		die("%s: %s", ibv_get_device_name(context->device), strerror(errno));
}

struct ibv_mr *rdma_register(void *data, size_t size)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, data, size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		die("reg_mr: %s", strerror(errno));
	return mr;
}

struct ibv_cq *rdma_cq(int depth, bool waited)
{
	struct ibv_comp_channel *channel = waited ? ibv_create_comp_channel(context) : NULL;
	struct ibv_cq *cq = waited && !channel ? NULL : ibv_create_cq(context, depth, NULL, channel, 0);

	if (!cq)
		die("create_cq: %s", strerror(errno));
	return cq;
}

void rdma_arm(struct ibv_cq *cq)
{
	int err = ibv_req_notify_cq(cq, 0);

	if (err)
		die("req_notify_cq: %s", strerror(err));
}

void rdma_sleep(struct ibv_cq *cq)
{
	void *user;

	if (ibv_get_cq_event(cq->channel, &cq, &user))
		die("get_cq_event: %s", strerror(errno));
	ibv_ack_cq_events(cq, 1);
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int err = ibv_modify_qp(qp, attr, mask);

	if (err)
		die("modify_qp to state %d: %s", attr->qp_state, strerror(err));
}

struct ibv_qp *rdma_qp(struct ibv_cq *cq, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = cap};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (!qp)
		die("create_qp: %s", strerror(errno));
	modify(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	return qp;
}

struct rdma_end rdma_end(const struct ibv_qp *qp) { return (struct rdma_end){.gid = gid, .qpn = qp->qp_num}; }

void rdma_join(struct ibv_qp *qp, const struct rdma_end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = peer->qpn, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = {.dgid = peer->gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 255},
		},
	};

	modify(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .max_rd_atomic = 1};
	modify(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                      IBV_QP_MAX_QP_RD_ATOMIC);
}

void rdma_check(const struct ibv_wc *wc)
{
	if (wc->status)
		die("completion with status %d, %s", wc->status, ibv_wc_status_str(wc->status));
}
