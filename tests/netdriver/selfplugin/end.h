/* What the reference plugin's two parts share: an end of a connection. */
#ifndef SELFPLUGIN_END_H
#define SELFPLUGIN_END_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fault.h"
#include "selfplugin.h"

enum { REQUESTS = NCCL_NET_MAX_REQUESTS * NCCL_NET_MAX_RECVS };

struct header {
	uint64_t size;
	int64_t tag;
};

struct end;

struct mr {
	struct mr *next;
	unsigned char *base;
	size_t size;
	unsigned char *bytes; /* where what lies at base can be reached: of a GPU's memory elsewhere */
	void *map;            /* of a DMA-BUF */
	size_t map_size;
};

void forget_held(struct end *end, const struct mr *mr); /* its memory goes */
bool is_device(const struct mr *mr);

/* A byte that has come for a GPU, which sees it after a flush. */
struct held {
	unsigned char *at, byte;
};
enum { HELD = 4096 };

struct part {
	unsigned char *data;
	size_t size, got; /* to send, or capacity; and what arrived */
	int tag;
	struct mr *mr;
	bool matched, done;
};

struct request {
	struct end *end;
	bool used, started;
	int n;
	struct part parts[NCCL_NET_MAX_RECVS];
	bool flush, optional; /* optional: of which NCCL looks for the data itself */
	unsigned char *copy; /* a fault sends this instead */
	void *steps[NCCL_NET_MAX_RECVS]; /* to NCCL's profiler; or NULL */
};

/* An end of a connection, or a listener. */
struct end {
	int fd;
	bool sending, closed;
	struct end *next_closed;
	ncclResult_t error;
	uint64_t failed_ns;
	pthread_mutex_t mutex;
	struct mr *mrs;
	struct request requests[REQUESTS]; /* ring: [tail, head) are in use or done out of order */
	uint64_t head, tail, next;         /* next: the one whose bytes move */
	struct header header;              /* being read or written, */
	size_t moved;                      /* header and payload bytes moved so far */
	struct part *target;
	bool optional;                     /* as its request */
	struct part *before;               /* for the fault that swaps messages */
	unsigned char *last;               /* for the fault that repeats a message */
	size_t last_size;
	struct held held[HELD];
	int nheld;
	struct request flushes[REQUESTS];
	void *late;                        /* step, for the fault that tells of it again */
};

extern ncclDebugLogger_t logger;
extern bool forked; /* this is a forked child: nothing may be called */

#define GUARD() \
	if (forked && !fault("fork-open")) \
	return ncclSystemError

/* GONE: NULL, or an end that is closed, which stays where it is. */
#define GONE(end) (!(end) || (end)->closed)

#endif
