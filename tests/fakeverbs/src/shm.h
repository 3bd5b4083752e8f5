/* The state that all processes of one fake fabric share: a file, mapped by each.
 *
 * Everything in it is reached by index or offset, never by pointer. Order of locks: queue pair (owner's), queue pair (shared),
 * completion queue; `table` is taken alone. */
#ifndef FAKEVERBS_SHM_H
#define FAKEVERBS_SHM_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum {
	SHM_VERSION = 8,
	MAX_NODES = 64,
	MAX_DEVICES = 512,
	MAX_PORTS = 512,
	MAX_LINKS = 512,
	MAX_PROCS = 1024,
	MAX_QPS = 1 << 14,
	MAX_CQS = 1 << 14,
	MAX_MRS = 1 << 16,
	MAX_RULES = 64,
	MAX_EVENTS = 64,
	MAX_LATE = 64,
	LATE_BYTES = 8,
	MAX_SGE = 32,
	MAX_VEC = MAX_SGE + 3,
	MAX_INLINE = 1024,
	MAX_RD_ATOMIC = 16,
	MAX_WR = 1 << 15,
	MAX_CQE = (1 << 17) - 1,
	GIDS = 16,
	PAGE = 4096,
	NONE = -1,
};
#define SHM_MAGIC 0x7362726576656b61ull
#define ARENA_PAGES ((size_t)1 << 19) /* 2 GiB of address space; the file is sparse */

/* A lock that is taken over from a holder that was killed or stopped; see lock.c. All zero is free. */
struct shm_lock {
	_Atomic uint32_t holder; /* thread id */
};

/* Gives out the places of a table in turn, so that a number is not met again soon, among so few of the first that the state stays
 * small. */
struct shm_rota {
	uint32_t next, size;
};

struct shm_node {
	char name[32];
	int32_t first_device, devices, plain; /* plain interfaces are devices after the others, which the library does not list */
	bool peermem; /* its kernel has the module by which ibv_reg_mr takes device memory; tree.c writes what shows it */
	_Atomic uint64_t registered; /* bytes */
};

struct shm_device {
	char name[64];
	int32_t node, first_port, ports;
	uint64_t guid, image_guid; /* network order */
	char pci[256];             /* path below /sys/devices, empty for a device without one */
	char dma[256];             /* the same of its function for GPU memory (Data Direct) */
	char pcie_speed[8];        /* GT/s */
	uint32_t pcie_width, max_msg_sz, max_inline;
	uint32_t ece_vendor, ece_options; /* vendor 0: the device does not know of them */
};

struct shm_gid {
	union ibv_gid gid;
	uint32_t type; /* enum ibv_gid_type */
};

struct shm_port {
	char netdev[16], phys_port[16];
	uint8_t mac[6], num;
	bool infiniband;
	uint16_t lid; /* of InfiniBand */
	uint32_t gids;
	int32_t device, link, end; /* link NONE: no cable */
	uint32_t mbps, netdev_mtu, prefix[GIDS];
	struct shm_gid gid[GIDS];
	_Atomic uint32_t down; /* switched off, whatever the cable says */
};

struct shm_link {
	int32_t port[2];
	_Atomic uint64_t rate; /* bytes a second; 0: no limit */
	uint64_t latency; /* ns */
	_Atomic uint64_t busy[2], carried[2]; /* of each direction: until when it is taken, and bytes so far where there is a model */
	_Atomic uint32_t unplugged;
};

struct shm_event {
	uint32_t type; /* enum ibv_event_type */
	int32_t device, port;
	uint32_t object, generation; /* queue pair or completion queue */
};

struct shm_late { /* bytes that a device wrote to the memory of a GPU, which does not show them yet */
	uint64_t addr, due; /* where its process reaches them */
	int32_t device;
	uint32_t n;
	unsigned char byte[LATE_BYTES];
};

struct shm_proc {
	_Atomic uint32_t generation; /* odd: in use */
	int32_t pid, node;
	bool entering;
	pthread_mutex_t alive; /* held by its service thread */
	_Atomic uint32_t doorbell; /* futex of the process's service thread */
	struct shm_lock lock;
	uint32_t events;
	struct shm_event event[MAX_EVENTS];
	struct shm_lock late_lock;
	_Atomic uint32_t lates;
	struct shm_late late[MAX_LATE]; /* in the order of the writes */
};

struct shm_mr {
	_Atomic uint32_t key; /* 0: free */
	_Atomic bool closing; /* not yet free, for a copy may be under way */
	bool gpu; /* device memory */
	int32_t proc;
	uint32_t pd, access, tag;
	uint64_t addr, iova, length; /* addr is where the process can reach the bytes that peers name from iova on */
};

/* A receive as it waits in a queue pair's ring. */
struct shm_recv {
	uint64_t wr_id;
	uint32_t num_sge, pad;
	struct ibv_sge sge[]; /* rq_sge of them */
};

struct span { uint64_t addr, length; }; /* as struct iovec */

/* A copy to or from a queue pair's memory: the owner's ranges lie here for the kernel to read, so that the owner can take them back from
 * a process that was stopped before it came to the copy. */
struct shm_copy {
	_Atomic uint32_t copier; /* thread id, 0: none */
	struct span span[MAX_VEC];
};

struct shm_qp {
	struct shm_lock lock;
	struct shm_copy copy;
	_Atomic uint32_t generation; /* odd: in use */
	uint32_t qpn, pd;
	int32_t proc, device, port, send_cq, recv_cq;
	_Atomic uint32_t state; /* enum ibv_qp_state */
	uint32_t dest_qpn, access, mtu, rq_psn, rd_atomic, min_rnr_timer;
	uint32_t ece; /* options that are in effect */
	int32_t dest_port;
	uint64_t rq_offset;
	uint32_t rq_depth, rq_sge;
	_Atomic uint32_t rq_head, rq_tail;
};

static inline size_t recv_size(uint32_t sge) { return sizeof(struct shm_recv) + sge * sizeof(struct ibv_sge); }

struct shm_cqe {
	struct ibv_wc wc;
	int32_t qp;          /* whose send request it is, NONE for a receive */
	uint32_t sq_index;   /* that request, counted */
	uint64_t ready;      /* when it may be seen */
	bool solicited;      /* it raises an event for one who asked for solicited completions only */
};

struct shm_cq {
	struct shm_lock lock;
	_Atomic uint32_t generation; /* odd: in use */
	int32_t proc, device;
	uint64_t ring_offset;
	uint32_t depth;
	_Atomic uint32_t head, tail; /* counted, not wrapped */
	_Atomic uint32_t armed;      /* enum below */
	_Atomic uint32_t rung;       /* a completion event the owner has not yet seen */
	bool overrun;
};
enum { ARMED_NOT, ARMED_SOLICITED, ARMED_NEXT };

enum rule_kind { RULE_NONE, RULE_WR, RULE_STALL, RULE_ACK, RULE_REG, RULE_VERB, RULE_SLOW, RULE_DIE, RULE_HALT, RULE_LATE };

enum verb {
	VERB_open_device, VERB_query_device, VERB_query_port, VERB_query_gid, VERB_alloc_pd, VERB_reg_mr, VERB_reg_dmabuf_mr,
	VERB_dereg_mr,
	VERB_create_comp_channel, VERB_create_cq, VERB_destroy_cq, VERB_create_qp, VERB_modify_qp, VERB_query_qp, VERB_destroy_qp,
	VERB_query_ece, VERB_set_ece,
	VERB_post_send, VERB_post_recv, VERB_poll_cq, VERB_req_notify_cq, VERBS,
};

extern const char *const verb_names[VERBS];

/* A fault that is switched on. Fields that are NONE match anything. */
struct shm_rule {
	_Atomic uint32_t kind;
	int32_t node, port, qpn;
	uint32_t verb, value;         /* verb; status or errno */
	uint64_t amount;              /* bytes, ns */
	_Atomic int64_t skip, times;  /* let `skip` pass, then hit `times`; times < 0: for ever */
};

struct shm {
	uint64_t magic;
	uint32_t version;
	uint64_t size;
	uint32_t nodes, devices, ports, links;
	uint64_t resolve; /* ns an address that nobody answers for holds up modify_qp */
	char mgmt[32];    /* management subnet, empty for none */
	struct shm_node node[MAX_NODES];
	struct shm_device device[MAX_DEVICES];
	struct shm_port port[MAX_PORTS];
	struct shm_link link[MAX_LINKS];
	_Atomic uint32_t rules, changes; /* rules switched on; link changes, a futex */
	_Atomic uint32_t next_pd;
	struct shm_rule rule[MAX_RULES];

	struct shm_lock table; /* allocation in everything below */
	struct shm_rota qps, cqs, mrs;
	uint64_t next_page;
	struct shm_proc proc[MAX_PROCS];
	struct shm_qp qp[MAX_QPS];
	struct shm_cq cq[MAX_CQS];
	struct shm_mr mr[MAX_MRS];
	int16_t page_owner[ARENA_PAGES]; /* process + 1; 0: free */
	_Alignas(PAGE) unsigned char arena[];
};

extern struct shm *shm; /* NULL until attached */

struct shm *shm_create(const char *dir);
int shm_publish(struct shm *s, const char *dir);
int shm_attach(const char *dir);

/* A place that is not busy, `all` when there is none. Called with `table` held. */
uint32_t rota_take(struct shm_rota *r, uint32_t all, bool (*busy)(uint32_t place));

/* lock.c */
void shm_lock(struct shm_lock *l);
bool shm_holds(const struct shm_lock *l); /* the caller still does */
void shm_unlock(struct shm_lock *l);
uint32_t thread_id(void);
void qp_lock(struct shm_qp *q); /* shm_lock, after which no copy of an earlier holder is under way or to come */
static inline void qp_unlock(struct shm_qp *q) { shm_unlock(&q->lock); }

/* Pages of the arena, 0 when there is no room. Called with `table` held. */
uint64_t arena_alloc(size_t bytes, int proc);
void arena_free(uint64_t offset, size_t bytes);
static inline void *arena_at(uint64_t offset) { return shm->arena + offset; }

static inline struct shm_recv *recv_at(const struct shm_qp *s, uint32_t at)
{
	return (struct shm_recv *)((char *)arena_at(s->rq_offset) + at % s->rq_depth * recv_size(s->rq_sge));
}

static inline struct shm_cqe *cqe_at(const struct shm_cq *s, uint32_t at)
{
	return (struct shm_cqe *)arena_at(s->ring_offset) + at % s->depth;
}

/* Of a completion in error only wr_id, status, qp_num and vendor_err mean anything: the rest is filled so that a use of it shows. */
static inline void cqe_spoil(struct ibv_wc *wc)
{
	wc->opcode = (enum ibv_wc_opcode)0x7e;
	wc->byte_len = 0xdeadbeef;
	wc->imm_data = 0xdeadbeef;
	wc->vendor_err = 0x80u + wc->status;
}

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline bool live(uint32_t generation) { return generation & 1; }

int futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns); /* ns 0: no limit */
void futex_wake(_Atomic uint32_t *word);

/* proc.c: the processes of the fabric. */
int proc_register(int node);
void proc_begin(int proc);
void proc_release(int proc);
bool proc_alive(int proc, uint32_t generation);
void proc_reap(void);
void proc_ring(int proc);
void proc_event(int proc, const struct shm_event *e);
void proc_event_all(const struct shm_event *e);

/* port.c: ports and links. */
enum ibv_port_state port_state(int port);
int port_peer(int port); /* the port at the other end of the cable, NONE without one */
int port_with_gid(int from, const union ibv_gid *gid, uint32_t type);
int port_with_lid(int from, uint16_t lid);
uint16_t port_sm_lid(const struct shm_port *p); /* of the subnet's manager, 0 without one */
int port_find(const char *spec, char *err, size_t n); /* node:device[/port] or node:netdev */
int node_find(const char *name);
enum ibv_mtu port_mtu(const struct shm_port *p);
void port_changed(int port, enum ibv_port_state was);

/* ring.c: queues that peers fill. */
void cq_push(int cq, const struct shm_cqe *e, bool solicited); /* while holding a queue pair of it */
void shm_qp_flush(struct shm_qp *s);                           /* with its lock held: completes the receives as flushed */
void shm_qp_error(struct shm_qp *s);                           /* the same, having put it into the error state */

#endif
