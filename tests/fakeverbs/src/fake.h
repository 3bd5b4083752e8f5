/* What one process holds: the objects behind the pointers that the program was given. */
#ifndef FAKEVERBS_FAKE_H
#define FAKEVERBS_FAKE_H

#include "shm.h"

enum {
	SEGMENTS = 64,            /* of one queue pair on the wire */
	SEGMENT = 1 << 20,        /* bytes moved under one hold of the peer's lock */
	MODEL_SEGMENT = 64 << 10, /* the same where a link has a rate, so that queue pairs share it */
	BUDGET = 4 << 20,         /* bytes one verbs call moves before it returns */
};

/* Asynchronous events queue here and not in a pipe: destroying an object takes back those not yet read. */
struct pending_event {
	struct pending_event *next;
	struct ibv_async_event event;
	uint32_t *read; /* counts the events of an object that were read, to be acknowledged */
};

struct context {
	struct context *next;
	int device;       /* index in shm */
	uint32_t epoch;   /* forks before it was opened */
	pthread_mutex_t lock;
	struct pending_event *first, **last;
	struct verbs_context verbs; /* grows downwards: last */
};

struct channel {
	struct ibv_comp_channel ibv;
	pthread_mutex_t lock;
	struct cq *first, **last; /* with events to read */
};

struct pd {
	struct ibv_pd ibv;
	atomic_int users;
};

/* Memory behind a descriptor, mapped for a region; all zero: none. */
struct memory_map {
	void *addr;
	size_t size;
};

struct mr {
	struct ibv_mr ibv;
	struct memory_map map; /* of a DMA-BUF */
};

struct cq {
	struct ibv_cq ibv;
	struct shm_cq *s;
	int index;
	uint32_t epoch;
	atomic_int users;
	_Atomic uint32_t empty_polls;
	struct cq *next;      /* in the channel's list */
	uint32_t queued;      /* completion events to read; under the channel's lock */
	uint32_t events_read; /* completion events read, to be acknowledged; under ibv.mutex */
	uint32_t async_read;
};

/* A send request. completed <= delivered <= sent <= posted of its queue pair. */
struct wqe {
	uint64_t wr_id, remote_addr, length;
	enum ibv_wr_opcode opcode;
	uint32_t flags, imm, rkey, num_sge;
	uint64_t sent, ack_at;
	enum ibv_wc_status fault; /* what it shall fail with */
	struct ibv_sge *sge;
	unsigned char *data; /* of an inline request */
};

/* A stretch of a send request on its way. */
struct segment {
	uint32_t wqe;
	uint64_t from, to, arrives;
};

struct qp {
	struct ibv_qp ibv;
	struct shm_qp *s;
	int index;
	uint32_t epoch, async_read;
	struct ibv_qp_cap cap;
	bool sig_all;
	struct ibv_qp_attr attr; /* as modified so far */
	uint32_t ece, ece_wanted; /* options as ibv_query_ece tells them, and as ibv_set_ece wants them */
	bool ece_pending;         /* they wait for a change of state */

	pthread_mutex_t lock; /* the send queue */
	struct wqe *sq;
	struct ibv_sge *sges;
	unsigned char *inline_data;
	uint32_t posted, sent, delivered, completed;
	_Atomic uint32_t reclaimed; /* requests whose completion, or a later one, was polled */
	struct segment segment[SEGMENTS];
	uint32_t seg_head, seg_tail;
	uint64_t free_at;  /* when the port could take its next segment */
	uint64_t retry_at; /* nothing moves before */
	uint32_t tries, rnr_tries, psn;

	pthread_mutex_t rq_lock;
	bool pending; /* in the list of queue pairs with work to do; under work.lock */
	struct qp *next_pending;
};

/* This process in the fabric. */
extern struct fake {
	int node, proc;
	uint32_t epoch; /* counts forks: objects of an earlier one belong to the parent */
	char dir[3072];
	pthread_mutex_t objects; /* the tables below */
	struct context *contexts;
	struct qp *qp[MAX_QPS];
	struct cq *cq[MAX_CQS];
	int cq_end, qp_end; /* one more than the highest index in use so far */
} fake;

#define unlikely(x) __builtin_expect(!!(x), 0)

/* init.c */
int fake_attach(void); /* 0 or errno */
int fake_enter(void);  /* and enters this process in the fabric */
void fake_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static inline struct context *to_context(struct ibv_context *c)
{
	return (struct context *)((char *)c - offsetof(struct context, verbs.context));
}
static inline struct qp *to_qp(struct ibv_qp *qp) { return (struct qp *)qp; }
static inline struct cq *to_cq(struct ibv_cq *cq) { return (struct cq *)cq; }
static inline struct mr *to_mr(struct ibv_mr *mr) { return (struct mr *)mr; }
static inline struct pd *to_pd(struct ibv_pd *pd) { return (struct pd *)pd; }

/* True for an object that a parent of this process made: verbs on it fail with EIO, as the kernel has it. */
static inline bool foreign(uint32_t epoch) { return unlikely(epoch != fake.epoch); }

/* device.c */
const char *sysfs_root(void);
int context_port(const struct context *c, unsigned num); /* index in shm, NONE when out of range */
int query_device_ex(struct ibv_context *, const struct ibv_query_device_ex_input *, struct ibv_device_attr_ex *, size_t);
int query_port_attr(struct ibv_context *, uint8_t num, struct ibv_port_attr *, size_t);

/* event.c */
int async_open(struct context *c);
void async_close(struct context *c);
void async_deliver(const struct shm_event *e);
void async_forget(struct context *c, const void *element);
void async_settle(pthread_mutex_t *m, pthread_cond_t *c, const uint32_t *completed, const uint32_t *read);
void cq_event_deliver(struct cq *cq);
void cq_event_forget(struct cq *cq);

/* memory.c */
/* Where the process can reach the bytes of memory that is to be registered; 0 or an errno. */
int memory_find(uint64_t addr, uint64_t length, unsigned int access, uint64_t *readable, bool *gpu);
int memory_map(int fd, uint64_t offset, uint64_t length, struct memory_map *map, uint64_t *readable);
void memory_unmap(struct memory_map *map);

/* late.c: a process's device memory. Times are of now_ns. */
void late_read(int proc, int device);                              /* the device reads there: all that it wrote shows */
void late_overwrite(int proc, uint64_t addr, uint64_t length);     /* what is written next is not to be overwritten */
uint64_t late_due(void);                                           /* shows what is due of this process; when more is, 0 for never */
bool late_hold(int proc, int device, uint64_t addr, const unsigned char *bytes, uint32_t n, uint64_t delay); /* false: show them at once */

/* mr.c */
const struct shm_mr *mr_find(uint32_t key, int proc, uint32_t pd, uint64_t addr, uint64_t length, uint32_t access);

/* cq.c */
void cq_purge(struct cq *cq, uint32_t qpn);
int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* qp.c */
int qpn_index(uint32_t qpn);
struct ibv_qp *create_qp_ex(struct ibv_context *, struct ibv_qp_init_attr_ex *);
void qp_error(struct qp *qp);          /* with its lock held; flushes both queues */

/* ece.c */
void ece_apply(struct qp *qp, enum ibv_qp_state to);
void ece_reset(struct qp *qp);

/* post.c */
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* progress.c: moves requests on. qp_progress is called with the queue pair's lock held. */
void qp_progress(struct qp *qp);
bool path_modelled(const struct qp *qp);

/* work.c: queue pairs with requests under way, served by every poll and, when nobody polls, by the service thread. */
bool qp_step(struct qp *qp, uint64_t budget); /* true: nothing left to do */
uint64_t qp_next(const struct qp *qp);        /* when there is something to do */
void work_add(struct qp *qp);
void work_remove(struct qp *qp);
void work_all(void);
uint64_t work_next(void); /* 0: nothing at all */
extern _Atomic uint32_t work_pending;
void work_reset(void);

/* respond.c: what a segment does at the other end. */
enum reach { REACHED, LOST, NOT_READY, REFUSED };
struct answer {
	enum reach reach;
	enum ibv_wc_status status; /* of REFUSED */
	uint64_t wait;             /* of NOT_READY, ns */
};
struct answer respond(struct qp *qp, const struct wqe *w, const struct segment *g);
bool path_open(const struct qp *qp);

/* copy.c */
int copy_write(struct shm_qp *peer, const struct span *from, int nfrom, const struct span *to, int nto);
int copy_read(struct shm_qp *peer, const struct span *to, int nto, const struct span *from, int nfrom);

/* service.c */
int service_start(void);
void service_polled(void); /* a poll moves the work on */
void service_wake(uint64_t by);

/* fault.c */
int fault_verb(enum verb v, int port);                        /* errno or 0 */
enum ibv_wc_status fault_wr(int port, uint32_t qpn);
bool fault_hits(enum rule_kind kind, int port, uint32_t qpn); /* RULE_STALL, RULE_ACK */
bool fault_reg(uint64_t registered, uint64_t length);
uint64_t fault_slow(int port, uint32_t qpn);                  /* ns */
uint64_t fault_late(int port, uint32_t qpn);                  /* ns */

#endif
