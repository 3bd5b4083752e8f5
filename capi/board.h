/*
 * The board of a connection: memory in which Go publishes results that C reads without
 * calling Go. Package transport/board has the same layout and documents the words. Each word
 * has one writer, which stores it with release; the other side loads it with acquire.
 */
#ifndef MESH_BOARD_H
#define MESH_BOARD_H

#include <stdint.h>

#define MESH_BOARD_REQUESTS 256
#define MESH_BOARD_SOURCES 8

/* A grant in the ring, laid out as Grant in package transport/lane. C reads its sequence only. */
#define MESH_RING_SLOTS 256
#define MESH_RING_STRIDE 512
#define MESH_RING_SEQ 56

/* The fields of a handle, as in ncclnet/handle.go. */
#define MESH_HANDLE_INDEX_BITS 9
#define MESH_HANDLE_GENERATION_BITS 11
#define MESH_HANDLE_SLOT_BITS 20
#define MESH_HANDLE_SLOT_SHIFT 20
#define MESH_HANDLE_KIND_SHIFT 40
#define MESH_HANDLE_KIND_BITS 4
#define MESH_KIND_SEND 4
#define MESH_KIND_RECV 5
#define MESH_KIND_REQUEST 8 /* added to the kind of the request's connection */

/*
 * A completion queue, as Source in package transport/board. A poller holds the lock `held`; C has left `found`
 * entries.
 */
struct mesh_source {
	uint32_t held, found;
	uint64_t poll, queue, at; /* int (*poll)(queue, most, at) */
	uint32_t most;
	uint32_t unused[7];
};

struct mesh_board {
	/* written by Go */
	uint64_t comm, disabled, polls, head, ring, sources;
	uint64_t unused[2];
	/* written by C */
	uint64_t grant_misses, queue_polls;
	uint64_t unused2[6];
	/* written by Go */
	uint64_t source[MESH_BOARD_SOURCES];
	struct mesh_answer {
		uint64_t state;
		uint32_t n;
		uint32_t sizes[8];
		uint32_t unused[5];
	} answers[MESH_BOARD_REQUESTS];
	struct mesh_consumer {
		uint64_t taken, last_poll;
	} consumers[MESH_BOARD_REQUESTS];
};

#define HIDDEN __attribute__((visibility("hidden")))

/* Go publishes the board of an open connection, and unpublishes it before the connection closes. */
HIDDEN void mesh_board_publish(uintptr_t comm, uintptr_t board);
HIDDEN void mesh_board_unpublish(uintptr_t comm, uintptr_t board);

/*
 * mesh_board_waits reports whether a send has to wait for its grant. mesh_board_answers reports
 * whether the board answers a test of the request; it then sets *done, which must be 0 before, and the sizes.
 * If one of them returns 0 the caller has to call Go. mesh_board_asked records that Go has just posted the request
 * or found it not done. None of them may be called in a forked child.
 */
HIDDEN int mesh_board_waits(uintptr_t comm);
HIDDEN int mesh_board_answers(uintptr_t request, int *done, int *sizes);
HIDDEN void mesh_board_asked(uintptr_t request);

#endif
