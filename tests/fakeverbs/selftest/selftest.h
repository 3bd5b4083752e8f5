/* The library's own tests: each case runs in two processes, on nodes a and b, that are joined by a cable and a socket pair. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUF = 4 << 20, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

extern bool is_a;        /* which side this process is */
extern pid_t other_pid;  /* in a: the process of b */

#define CHECK(ok, ...) \
	do { \
		if (!(ok)) { \
			fprintf(stderr, "%s:%d: %s: %s:", __FILE__, __LINE__, is_a ? "a" : "b", #ok); \
			fprintf(stderr, " " __VA_ARGS__); \
			fputc('\n', stderr); \
			exit(1); \
		} \
	} while (0)
#define EQUAL(got, want) \
	do { \
		long long got_ = (long long)(got), want_ = (long long)(want); \
		CHECK(got_ == want_, "%s is %lld, want %lld", #got, got_, want_); \
	} while (0)

/* What both sides know of one another. */
struct address {
	uint32_t qpn, psn, rkey;
	uint64_t addr;
	union ibv_gid gid;
	uint16_t lid; /* of an InfiniBand port, else 0 */
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *buf;
	struct address self, peer;
};

/* How a test wants its queue pair; zeros stand for what most want. */
struct wish {
	int max_wr, timeout, retry;
	bool infiniband;
};

void tell(const void *p, size_t n);
void hear(void *p, size_t n);
void meet(void); /* both sides are here */
void gone(void); /* the other side's process has ended, and what it held is let go of */

struct ibv_context *open_device(const char *name);
void make_end(struct end *e, const struct wish *w);
void swap(struct end *e);                                /* tells the peer this end's address and hears its */
int to_init(struct end *e);
int to_rtr(struct end *e);
int to_rts(struct end *e, const struct wish *w);
void connect_end(struct end *e, const struct wish *w);   /* all of the above */
void close_end(struct end *e);

int post(struct end *e, enum ibv_wr_opcode op, uint64_t id, size_t at, size_t n, size_t remote, int flags);
int post_recv(struct end *e, uint64_t id, size_t at, size_t n);
struct ibv_wc next_wc(struct end *e);                    /* waits */
void want_wc(struct end *e, uint64_t id, enum ibv_wc_status status);
void no_wc(struct end *e, int ms);
uint64_t now_ns(void);
void fakefault(const char *words, ...) __attribute__((format(printf, 1, 2)));

struct test {
	const char *name;
	void (*run)(void);
};
extern const struct test state_tests[], data_tests[], error_tests[], event_tests[], fault_tests[], gpu_tests[], datadirect_tests[], model_tests[];

#endif
