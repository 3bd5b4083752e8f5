/*
 * The board of a connection: what Go has decided, for C to read without a call of Go.
 * Package transport/board has the same layout and says what the words mean. Each word
 * has one writer, who releases it; the other side acquires it.
 */
#ifndef MESH_BOARD_H
#define MESH_BOARD_H

#include <stdint.h>

#define MESH_BOARD_REQUESTS 256
#define MESH_BOARD_SOURCES 8

/* A grant in the ring, as Grant in package transport/lane: only whose turn it is counts here. */
#define MESH_RING_SLOTS 256
#define MESH_RING_STRIDE 512
#define MESH_RING_SEQ 56

/* The parts of a handle, as in ncclnet/handle.go. */
#define MESH_HANDLE_INDEX_BITS 9
#define MESH_HANDLE_GENERATION_BITS 11
#define MESH_HANDLE_SLOT_BITS 20
#define MESH_HANDLE_SLOT_SHIFT 20
#define MESH_HANDLE_KIND_SHIFT 40
#define MESH_HANDLE_KIND_BITS 4
#define MESH_KIND_SEND 4
#define MESH_KIND_RECV 5
#define MESH_KIND_REQUEST 8 /* added to its connection's */

/* A completion queue, as Source in package transport/board: who looks at it holds it, and has left `found` entries there. */
struct mesh_source {
	uint32_t held, found;
	uint64_t poll, queue, at; /* int (*poll)(queue, most, at) */
	uint32_t most;
	uint32_t unused[7];
};

struct mesh_board {
	/* Go's */
	uint64_t comm, disabled, polls, head, ring, sources;
	uint64_t unused[2];
	/* C's */
	uint64_t grant_misses, empty_polls;
	uint64_t unused2[6];
	/* Go's */
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

/* Go shows the board of a connection that has been opened, and hides it before it is closed. */
HIDDEN void mesh_board_publish(uintptr_t comm, uintptr_t board);
HIDDEN void mesh_board_unpublish(uintptr_t comm, uintptr_t board);

/*
 * mesh_board_waits reports whether a send has to wait for its grant; mesh_board_answers whether
 * the answer to test is known, and then is *done, which was 0, and the sizes. Where they return 0
 * it is for Go to say; mesh_board_asked notes that it has just said "not yet", or posted it. None may be called in a
 * forked child.
 */
HIDDEN int mesh_board_waits(uintptr_t comm);
HIDDEN int mesh_board_answers(uintptr_t request, int *done, int *sizes);
HIDDEN void mesh_board_asked(uintptr_t request);

#endif
