/*
 * A stand-in for libibverbs, for the tests of package ibv: two devices, objects that count themselves, a queue pair that
 * executes its sends at once within the process, and switches for failures. RELEASE is the newest symbol version it has;
 * without EXTENDED its contexts are of the oldest kind.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#undef ibv_reg_mr
#undef ibv_query_port

#ifndef RELEASE
#define RELEASE 16
#endif
#ifndef EXTENDED
#define EXTENDED 1
#endif

/* ---- switches and counters ---- */

static char fail_verb[64];
static int fail_errno;
static _Atomic int live, lists, events_acked;
static unsigned last_access;
static int last_reg_iova2;

void standin_fail(const char *verb, int err)
{
	strncpy(fail_verb, verb, sizeof fail_verb - 1);
	fail_errno = err;
}

/* The named verb fails once. */
static int failing(const char *verb)
{
	if (!fail_errno || strcmp(verb, fail_verb))
		return 0;
	errno = fail_errno;
	fail_errno = 0;
	return errno;
}

int standin_live(void) { return live; }
int standin_lists(void) { return lists; }
int standin_events_acked(void) { return events_acked; }
unsigned standin_last_access(void) { return last_access; }
int standin_last_reg_iova2(void) { return last_reg_iova2; }

/* ---- devices ---- */

static const char *const names[] = { "standin0", "standin1" };
#define N_DEVICES 2

struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list;
	struct ibv_device *devices;
	int i;

	if (failing("ibv_get_device_list"))
		return NULL;
	list = calloc(N_DEVICES + 1, sizeof *list);
	devices = calloc(N_DEVICES, sizeof *devices);
	for (i = 0; i < N_DEVICES; i++) {
		strcpy(devices[i].name, names[i]);
		list[i] = &devices[i];
	}
	*num = N_DEVICES;
	lists++;
	return list;
}

/* The devices are overwritten, so that a use after the list was freed is seen. */
void ibv_free_device_list(struct ibv_device **list)
{
	memset(list[0], 0xee, N_DEVICES * sizeof *list[0]);
	free(list[0]);
	free(list);
	lists--;
}

const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

__be64 ibv_get_device_guid(struct ibv_device *d)
{
	static const unsigned char guid[8] = { 0x02, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x00 };
	__be64 v;

	memcpy(&v, guid, 8);
	((unsigned char *)&v)[7] = d->name[7];
	return v;
}

/* ---- objects ---- */

#define CQ_SIZE 4096

struct cq {
	struct ibv_cq v;
	struct ibv_wc ring[CQ_SIZE];
	unsigned head, tail;
	int armed;
};

struct qp {
	struct ibv_qp v;
	unsigned sent, received;
	struct ibv_recv_wr recv[CQ_SIZE];
	struct ibv_sge recv_sge[CQ_SIZE];
	unsigned recv_head, recv_tail;
	struct ibv_qp_attr attr;
	int unacked;
};

static int push(struct cq *cq, const struct ibv_wc *wc)
{
	if (cq->tail - cq->head == CQ_SIZE)
		return ENOMEM;
	cq->ring[cq->tail++ % CQ_SIZE] = *wc;
	if (cq->armed && cq->v.channel) {
		struct cq *p = cq;

		cq->armed = 0;
		if (write(cq->v.channel->refcnt, &p, sizeof p) != sizeof p)
			return EIO;
	}
	return 0;
}

static int poll_cq(struct ibv_cq *v, int n, struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)v;
	int i;

	if (failing("poll_cq"))
		return -2;
	for (i = 0; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->ring[cq->head++ % CQ_SIZE];
	return i;
}

static int req_notify_cq(struct ibv_cq *v, int solicited_only)
{
	((struct cq *)v)->armed = 1 + solicited_only;
	return failing("req_notify_cq");
}

/* A request with this id is refused, with the errno of standin_fail("post", …). */
#define REFUSED 0xbad

static int post_send(struct ibv_qp *v, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *qp = (struct qp *)v;

	for (; wr; wr = wr->next) {
		struct ibv_wc wc = { .wr_id = wr->wr_id, .qp_num = v->qp_num, .opcode = IBV_WC_RDMA_WRITE };
		char *to = (char *)(uintptr_t)wr->wr.rdma.remote_addr;
		int i;

		if (wr->wr_id == REFUSED) {
			*bad = wr;
			return failing("post");
		}
		if (wr->wr.rdma.rkey == 0xdead)
			wc.status = IBV_WC_REM_ACCESS_ERR, wc.vendor_err = 0x88;
		for (i = 0; !wc.status && i < wr->num_sge; i++) {
			memcpy(to, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
			to += wr->sg_list[i].length;
			wc.byte_len += wr->sg_list[i].length;
		}
		qp->sent++;
		if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
			struct ibv_wc rc = { .qp_num = v->qp_num, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .byte_len = wc.byte_len,
					     .imm_data = wr->imm_data, .wc_flags = IBV_WC_WITH_IMM };

			if (qp->recv_head == qp->recv_tail)
				wc.status = IBV_WC_RNR_RETRY_EXC_ERR;
			else {
				rc.wr_id = qp->recv[qp->recv_head++ % CQ_SIZE].wr_id;
				push((struct cq *)v->recv_cq, &rc);
			}
		}
		if (wr->send_flags & IBV_SEND_SIGNALED || wc.status)
			push((struct cq *)v->send_cq, &wc);
	}
	return 0;
}

static int post_recv(struct ibv_qp *v, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *qp = (struct qp *)v;

	for (; wr; wr = wr->next) {
		if (wr->wr_id == REFUSED || qp->recv_tail - qp->recv_head == CQ_SIZE) {
			*bad = wr;
			return wr->wr_id == REFUSED ? -failing("post") : ENOMEM;
		}
		qp->recv[qp->recv_tail++ % CQ_SIZE] = *wr;
	}
	return 0;
}

/* ---- the context ---- */

struct context {
	struct verbs_context ex;
	struct ibv_device device;
	int event_w;
};

static struct context *context_of(struct ibv_context *c)
{
	return (struct context *)((char *)c - offsetof(struct context, ex.context));
}

static void fill_port(struct ibv_port_attr *a)
{
	memset(a, 0, sizeof *a);
	a->state = IBV_PORT_ACTIVE;
	a->max_mtu = IBV_MTU_4096;
	a->active_mtu = IBV_MTU_1024;
	a->gid_tbl_len = 16;
	a->max_msg_sz = 1 << 30;
	a->pkey_tbl_len = 1;
	a->lid = 7;
	a->active_width = 2;
	a->active_speed = 32;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	a->flags = 0;
	a->port_cap_flags2 = 0x1234;
}

static unsigned speed_ex;
void standin_speed_ex(unsigned v) { speed_ex = v; }

/* Like a library newer than the header at hand: the attributes end in a word that the header may lack. */
static int query_port_full(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t len)
{
	(void)c;
	if (failing("ibv_query_port"))
		return errno;
	if (port != 1)
		return EINVAL;
	if (len < 56)
		return ENOSPC;
	memset(a, 0, len);
	fill_port(a);
	memcpy((char *)a + 52, &speed_ex, 4);
	return 0;
}

int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *out)
{
	struct ibv_port_attr a;

	(void)c;
	if (failing("ibv_query_port"))
		return errno;
	if (port != 1)
		return EINVAL;
	fill_port(&a);
	memcpy(out, &a, 48);
	return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct context *c;
	int fds[2];

	if (failing("ibv_open_device"))
		return NULL;
	if (pipe2(fds, O_CLOEXEC))
		return NULL;
	c = calloc(1, sizeof *c);
	c->device = *d;
	c->event_w = fds[1];
	if (EXTENDED) {
		c->ex.context.abi_compat = (void *)~(uintptr_t)0;
		c->ex.sz = sizeof c->ex;
		c->ex.query_port = query_port_full;
	}
	c->ex.context.device = &c->device;
	c->ex.context.async_fd = fds[0];
	c->ex.context.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	c->ex.context.ops.poll_cq = poll_cq;
	c->ex.context.ops.req_notify_cq = req_notify_cq;
	c->ex.context.ops.post_send = post_send;
	c->ex.context.ops.post_recv = post_recv;
	live++;
	return &c->ex.context;
}

int ibv_close_device(struct ibv_context *ctx)
{
	struct context *c = context_of(ctx);

	if (failing("ibv_close_device"))
		return errno;
	close(ctx->async_fd);
	close(ctx->cmd_fd);
	close(c->event_w);
	free(c);
	live--;
	return 0;
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	(void)c;
	memset(a, 0, sizeof *a);
	a->node_guid = ibv_get_device_guid(c->device);
	a->max_qp_wr = 4096;
	a->phys_port_cnt = 1;
	return failing("ibv_query_device");
}

#if RELEASE >= 16
int ibv_query_port_speed(struct ibv_context *c, uint32_t port, uint64_t *speed)
{
	(void)c, (void)port;
	*speed = 2000;
	return failing("ibv_query_port_speed");
}
#endif

/* ---- events ---- */

/* Element is the port number, or the address of the queue pair or completion queue. */
void standin_event(struct ibv_context *ctx, int type, void *element)
{
	struct ibv_async_event e = { .event_type = type };

	e.element.qp = element;
	if (type == IBV_EVENT_QP_FATAL)
		((struct qp *)element)->unacked++;
	if (write(context_of(ctx)->event_w, &e, sizeof e) != sizeof e)
		abort();
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *e)
{
	return read(c->async_fd, e, sizeof *e) == sizeof *e ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *e)
{
	if (e->event_type == IBV_EVENT_QP_FATAL)
		((struct qp *)e->element.qp)->unacked--;
	events_acked++;
}

const char *ibv_event_type_str(enum ibv_event_type t) { return t == IBV_EVENT_PORT_ERR ? "port down" : "something"; }
const char *ibv_wc_status_str(enum ibv_wc_status s) { return s == IBV_WC_REM_ACCESS_ERR ? "no right" : "some status"; }
int ibv_fork_init(void) { return failing("ibv_fork_init"); }

/* ---- domains, regions, queues ---- */

#define NEW(type, verb)                                      \
	struct type *o;                                      \
	if (failing(verb) || !(o = calloc(1, sizeof *o)))    \
		return NULL;                                 \
	live++

static int destroy(void *o, const char *verb)
{
	if (failing(verb))
		return errno;
	free(o);
	live--;
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	NEW(ibv_pd, "ibv_alloc_pd");
	o->context = c;
	return o;
}

int ibv_dealloc_pd(struct ibv_pd *pd) { return destroy(pd, "ibv_dealloc_pd"); }

static struct ibv_mr *region(struct ibv_pd *pd, void *addr, size_t length, unsigned access)
{
	NEW(ibv_mr, "ibv_reg_mr");
	o->context = pd->context;
	o->pd = pd;
	o->addr = addr;
	o->length = length;
	o->lkey = 0x11111100 + live;
	o->rkey = 0x22222200 + live;
	last_access = access;
	return o;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	last_reg_iova2 = 0;
	return region(pd, addr, length, access);
}

#if RELEASE >= 8
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	last_reg_iova2 = 1;
	if (iova != (uintptr_t)addr) {
		errno = EINVAL;
		return NULL;
	}
	return region(pd, addr, length, access);
}
#endif

#if RELEASE >= 12
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	if (failing("ibv_reg_dmabuf_mr"))
		return NULL;
	if (offset != 4096 || fd != 9) {
		errno = EBADF;
		return NULL;
	}
	return region(pd, (void *)(uintptr_t)iova, length, access);
}
#endif

int ibv_dereg_mr(struct ibv_mr *mr) { return destroy(mr, "ibv_dereg_mr"); }

/* The write end of a channel's pipe is kept in refcnt. */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	int fds[2];
	NEW(ibv_comp_channel, "ibv_create_comp_channel");

	if (pipe2(fds, O_CLOEXEC))
		abort();
	o->context = c;
	o->fd = fds[0];
	o->refcnt = fds[1];
	return o;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	close(ch->fd);
	close(ch->refcnt);
	return destroy(ch, "ibv_destroy_comp_channel");
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int cqe, void *cq_context, struct ibv_comp_channel *ch, int vector)
{
	NEW(cq, "ibv_create_cq");
	(void)vector;
	o->v.context = c;
	o->v.channel = ch;
	o->v.cq_context = cq_context;
	return &o->v;
}

int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cq_context)
{
	if (read(ch->fd, cq, sizeof *cq) != sizeof *cq)
		return -1;
	*cq_context = (*cq)->cq_context;
	(*cq)->comp_events_completed++; /* here: not yet acknowledged */
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n) { cq->comp_events_completed -= n; }

/* The real one would wait; a test wants to see it. */
int ibv_destroy_cq(struct ibv_cq *cq)
{
	return cq->comp_events_completed ? EBUSY : destroy(cq, "ibv_destroy_cq");
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	static uint32_t num = 0xabcd00;
	NEW(qp, "ibv_create_qp");

	o->v.context = pd->context;
	o->v.pd = pd;
	o->v.send_cq = init->send_cq;
	o->v.recv_cq = init->recv_cq;
	o->v.qp_type = init->qp_type;
	o->v.qp_num = num++;
	init->cap.max_send_wr += 3;
	init->cap.max_inline_data = 64;
	return &o->v;
}

int ibv_modify_qp(struct ibv_qp *v, struct ibv_qp_attr *attr, int mask)
{
	struct qp *qp = (struct qp *)v;

	if (failing("ibv_modify_qp"))
		return errno;
	qp->attr = *attr;
	if (mask & IBV_QP_STATE)
		v->state = attr->qp_state;
	return 0;
}

int ibv_query_qp(struct ibv_qp *v, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask;
	if (failing("ibv_query_qp"))
		return errno;
	*attr = ((struct qp *)v)->attr;
	attr->qp_state = v->state;
	init->send_cq = v->send_cq;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *v)
{
	return ((struct qp *)v)->unacked ? EBUSY : destroy(v, "ibv_destroy_qp");
}

#if RELEASE >= 10
int ibv_query_ece(struct ibv_qp *v, struct ibv_ece *ece)
{
	(void)v;
	ece->vendor_id = 0x15b3;
	ece->options = 5;
	ece->comp_mask = 0;
	return failing("ibv_query_ece");
}

int ibv_set_ece(struct ibv_qp *v, struct ibv_ece *ece)
{
	(void)v;
	return ece->vendor_id == 0x15b3 ? failing("ibv_set_ece") : EINVAL;
}
#endif

/* ---- the same loop in C, for the benchmark ---- */

uint64_t standin_loop(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_cq *cq, struct ibv_wc *wc, uint64_t n)
{
	struct timespec a, b;
	uint64_t i;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (i = 0; i < n; i++) {
		struct ibv_send_wr *bad;

		if (ibv_post_send(qp, wr, &bad) || ibv_poll_cq(cq, 16, wc) != 1)
			return 0;
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	return (b.tv_sec - a.tv_sec) * 1000000000ull + b.tv_nsec - a.tv_nsec;
}
