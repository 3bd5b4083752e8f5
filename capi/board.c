/* Answers NCCL's calls from the boards, on which Go publishes results. It decides nothing. */
#include "board.h"

#include <stddef.h>

/* One in this many calls goes to Go although the board has no grant, or the completion queues have no entry. */
#define MISSES_BETWEEN_CALLS 64

#define MASK(bits) ((1ull << (bits)) - 1)

/* The published boards, by the kind of the connection and the slot of its handle. */
static struct mesh_board *boards[2][1 << MESH_HANDLE_SLOT_BITS];

static uint64_t acquire(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Loads a word that only C writes: it needs no ordering, unless it is stored with release. */
static uint64_t load_own(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static void store_relaxed(uint64_t *word, uint64_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/* The slot of a connection's board, or NULL if the handle is no connection's. */
static struct mesh_board **place(uint64_t comm)
{
	uint64_t kind = comm >> MESH_HANDLE_KIND_SHIFT & MASK(MESH_HANDLE_KIND_BITS);

	if (kind != MESH_KIND_SEND && kind != MESH_KIND_RECV)
		return NULL;
	return &boards[kind - MESH_KIND_SEND][comm >> MESH_HANDLE_SLOT_SHIFT & MASK(MESH_HANDLE_SLOT_BITS)];
}

void mesh_board_publish(uintptr_t comm, uintptr_t board)
{
	__atomic_store_n(place(comm), (struct mesh_board *)board, __ATOMIC_RELEASE);
}

/* Compares before it clears the slot, because another connection may have the slot by now. */
void mesh_board_unpublish(uintptr_t comm, uintptr_t board)
{
	struct mesh_board *b = (struct mesh_board *)board;

	__atomic_compare_exchange_n(place(comm), &b, NULL, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* The board of a connection, or NULL if it is not published or the slot belongs to another connection. */
static struct mesh_board *find(uint64_t comm)
{
	struct mesh_board **p = place(comm), *b;

	if (!p)
		return NULL;
	b = __atomic_load_n(p, __ATOMIC_ACQUIRE);
	return b && acquire(&b->comm) == comm ? b : NULL;
}

int mesh_board_waits(uintptr_t comm)
{
	struct mesh_board *b = find(comm);
	uint64_t head, misses, ring;
	const char *slot;

	if (!b)
		return 0;
	ring = acquire(&b->ring); /* load it once, because Go clears it when the connection closes */
	if (!ring)
		return 0;
	head = acquire(&b->head);
	slot = (const char *)(uintptr_t)ring + head % MESH_RING_SLOTS * MESH_RING_STRIDE;
	if (acquire((const uint64_t *)(slot + MESH_RING_SEQ)) == head)
		return 0;
	misses = load_own(&b->grant_misses);
	store_relaxed(&b->grant_misses, misses + 1);
	return misses % MISSES_BETWEEN_CALLS != 0;
}

/* A request that was found by its handle. */
struct request {
	struct mesh_board *board;
	struct mesh_answer *answer;
	struct mesh_consumer *consumer;
};

static int resolve(uint64_t handle, struct request *r)
{
	uint64_t index = handle & MASK(MESH_HANDLE_INDEX_BITS);
	uint64_t request = (uint64_t)MESH_KIND_REQUEST << MESH_HANDLE_KIND_SHIFT;

	if (!(handle & request) || index >= MESH_BOARD_REQUESTS)
		return 0;
	r->board = find(handle & ~(request | MASK(MESH_HANDLE_SLOT_SHIFT)));
	if (!r->board)
		return 0;
	r->answer = &r->board->answers[index];
	r->consumer = &r->board->consumers[index];
	return 1;
}

static uint64_t generation(uint64_t handle)
{
	return handle >> MESH_HANDLE_INDEX_BITS & MASK(MESH_HANDLE_GENERATION_BITS);
}

/*
 * Polls the connection's completion queues. Returns 1 if they have no new entry, and 0 if they have or if only
 * Go can tell. Entries stay in the source until Go takes them.
 */
static int nothing_new(struct mesh_board *b)
{
	uint64_t n = acquire(&b->sources), polls = load_own(&b->queue_polls), i;

	if (n == 0)
		return 0;
	store_relaxed(&b->queue_polls, polls + 1);
	if (polls % MISSES_BETWEEN_CALLS == 0)
		return 0;
	for (i = 0; i < n; i++) {
		struct mesh_source *s = (struct mesh_source *)(uintptr_t)acquire(&b->source[i]);
		uint32_t unheld = 0, found;

		if (!__atomic_compare_exchange_n(&s->held, &unheld, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 0;
		found = __atomic_load_n(&s->found, __ATOMIC_RELAXED);
		if (found == 0) {
			int polled = ((int (*)(uintptr_t, int, uintptr_t))(uintptr_t)s->poll)((uintptr_t)s->queue, (int)s->most,
											   (uintptr_t)s->at);

			/* An error is not kept: Go gets it again when it polls. */
			found = polled > 0 ? (uint32_t)polled : (uint32_t)(polled < 0);
			if (polled > 0)
				__atomic_store_n(&s->found, found, __ATOMIC_RELAXED);
		}
		__atomic_store_n(&s->held, 0, __ATOMIC_RELEASE);
		if (found != 0)
			return 0;
	}
	return 1;
}

int mesh_board_answers(uintptr_t handle, int *done, int *sizes)
{
	struct request r;
	uint64_t state, polls;
	uint32_t i;

	if (!resolve(handle, &r))
		return 0;
	state = acquire(&r.answer->state);
	if ((state >> 1 & MASK(MESH_HANDLE_GENERATION_BITS)) != generation(handle) || load_own(&r.consumer->taken) == state >> 1)
		return 0;
	if (state & 1) {
		for (i = 0; sizes && i < r.answer->n; i++)
			sizes[i] = (int)r.answer->sizes[i];
		__atomic_store_n(&r.consumer->taken, state >> 1, __ATOMIC_RELEASE);
		*done = 1;
		return 1;
	}
	if (acquire(&r.board->disabled))
		return 0;
	polls = acquire(&r.board->polls);
	if (polls == load_own(&r.consumer->last_poll))
		return nothing_new(r.board);
	store_relaxed(&r.consumer->last_poll, polls);
	return 1;
}

void mesh_board_asked(uintptr_t handle)
{
	struct request r;

	if (resolve(handle, &r))
		store_relaxed(&r.consumer->last_poll, acquire(&r.board->polls));
}
