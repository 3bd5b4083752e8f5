/*
 * Two processes, one on each of two nodes, that measure a network between them. The work is the
 * same over three networks that are chosen at link time: verbs.c drives libibverbs itself, as well as
 * can be, and tcp.c sockets, which are limits; plugin.c drives an NCCL network plugin as NCCL does. One-sided transfers have works of
 * their own: put.h.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_DEPTH = 256, MAX_SIZES = 64 };

struct options {
	const char *meet; /* HOST:PORT where rank 0 waits for the other */
	int rank;         /* 0 sends, 1 receives */
	const char *work;
	size_t sizes[MAX_SIZES];
	int nsizes, depth, conns;
	double seconds; /* that a figure is measured for, about */
	bool slices;    /* measured once for each byte that rank 0 reads; not setup, outage */
	bool turns;     /* of stream: who has no work gives the other the processor and sleeps */
	bool both;      /* of stream: every second connection goes the other way */
	int pause;      /* of pingpong: microseconds before each message */
	bool sleep;     /* of verbs.c: who has waited a millisecond for a message sleeps until the device wakes it */
	bool flag;      /* of signal in writes.c: a flag tells of the data, by a write of its own */

	const char *plugin;           /* of plugin.c and library.c */
	const char *device;           /* of verbs.c and writes.c, or interface of tcp.c */
	int gid_index;
};

_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
uint64_t now_ns(void);

/* meet.c: the socket between the two. meet_exchange blocks until both have given size bytes. */
void meet_open(const char *path, int rank);
void meet_exchange(const void *own, void *peer, size_t size);
void meet_barrier(void);
/*
 * Turns. give hands the turn over, for good when it is the last; take waits for it and returns
 * false when the other gave its last.
 */
void meet_give(bool last);
bool meet_take(void);

/* measure.c: */
/* Zeroed memory, in large pages where it is large: how the kernel happens to place it must not matter. */
unsigned char *map_memory(size_t size);
double agree(int rank, double own); /* returns rank 1's number on both */
/* Whether to measure once more. Neither process runs before that is known. */
bool wanted(const struct options *o, int measured);
int by_value(const void *a, const void *b); /* orders doubles, for qsort */
/* Rank 0 prints when each of count messages was done, in ns. */
void print_times(const struct options *o, size_t size, const uint64_t *at, uint64_t count);

/* work.c: stream, pingpong, burst, vain, setup and outage; puts.c: stream, pingpong, signal and outage. Rank 0 prints a JSON object for each result. */
void work_run(const struct options *o);

/*
 * The network. A connection is one way; conns[i] of one process is the other half of conns[i] of
 * the other. Receives and sends of a connection match in order.
 */
struct conn {
	bool sending;
	void *half;
};

void net_init(const struct options *o);
void net_connect(struct conn *conns, int n); /* all of them at once */
void net_register(struct conn *c, void *data, size_t size);
/* isend and irecv return false when they cannot be posted yet. */
bool net_isend(struct conn *c, void *data, size_t size, uint64_t *request);
bool net_irecv(struct conn *c, void *data, size_t size, uint64_t *request);
bool net_test(struct conn *c, uint64_t request);
void net_close(struct conn *conns, int n);
/* Bytes of a connection beside its queue pair that the network knows of. */
size_t net_beside(void);

#endif
