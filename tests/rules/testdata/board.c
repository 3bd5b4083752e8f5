/* The C side of a board beside threads that do what Go and a device do. Run under ThreadSanitizer. */
#include "board.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define COMM ((uintptr_t)3 << 44 | (uintptr_t)MESH_KIND_RECV << 40 | (uintptr_t)7 << 20)
#define SENDER ((uintptr_t)3 << 44 | (uintptr_t)MESH_KIND_SEND << 40 | (uintptr_t)7 << 20)
#define ROUNDS 5000 /* more than twice the generations that a handle can tell apart */
#define INDEX 255

static struct mesh_board receiver, sender, other;
static struct {
	unsigned char before[MESH_RING_SEQ - 8];
	uint64_t payload, seq;
	unsigned char after[MESH_RING_STRIDE - MESH_RING_SEQ - 8];
} ring[MESH_RING_SLOTS];
static int stop;

static void want(int ok, const char *what, uint64_t at)
{
	if (ok)
		return;
	printf("%s at %llu\n", what, (unsigned long long)at);
	exit(1);
}

static uint64_t acquire(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static void release(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }

static uintptr_t handle(uintptr_t comm, uint64_t generation)
{
	return comm | (uintptr_t)MESH_KIND_REQUEST << 40 | (generation & 2047) << 9 | INDEX;
}

static void *completes(void *unused)
{
	struct mesh_answer *a = &receiver.answers[INDEX];
	uint64_t g;

	for (g = 1; g <= ROUNDS; g++) {
		release(&a->state, g << 1);
		a->n = 1 + g % 8;
		for (uint32_t i = 0; i < a->n; i++)
			a->sizes[i] = (uint32_t)(g * 8 + i);
		release(&a->state, g << 1 | 1);
		release(&receiver.polls, receiver.polls + 1);
		while (acquire(&receiver.consumers[INDEX].taken) != g)
			sched_yield();
	}
	return unused;
}

static void takes(void)
{
	for (uint64_t g = 1; g <= ROUNDS; g++) {
		int done = 0, sizes[8] = { 0 };

		while (!mesh_board_answers(handle(COMM, g), &done, sizes) || !done)
			sched_yield();
		for (uint64_t i = 0; i < 1 + g % 8; i++)
			want(sizes[i] == (int)(g * 8 + i), "another size", g);
		done = 0;
		want(!mesh_board_answers(handle(COMM, g), &done, sizes) && !done, "an answer for the second time", g);
	}
}

static void *grants(void *unused)
{
	for (uint64_t seq = 1; seq <= ROUNDS; seq++) {
		while (acquire(&sender.head) != seq)
			sched_yield();
		ring[seq % MESH_RING_SLOTS].payload = seq;
		release(&ring[seq % MESH_RING_SLOTS].seq, seq);
	}
	return unused;
}

static void sends(void)
{
	for (uint64_t seq = 1; seq <= ROUNDS; seq++) {
		for (;;) {
			if (mesh_board_waits(SENDER)) {
				sched_yield();
				continue;
			}
			/* Go's turn: it looks for itself. */
			if (acquire(&ring[seq % MESH_RING_SLOTS].seq) == seq)
				break;
		}
		want(ring[seq % MESH_RING_SLOTS].payload == seq, "another grant", seq);
		release(&sender.head, seq + 1);
	}
}

/* A connection that is closed, and its place another's, while it is asked for. */
static void *closes(void *unused)
{
	for (int i = 0; i < ROUNDS; i++) {
		mesh_board_unpublish(COMM, (uintptr_t)&receiver);
		mesh_board_publish(COMM + (1ull << 44), (uintptr_t)&other);
		mesh_board_unpublish(COMM, (uintptr_t)&receiver); /* is no longer published there */
		mesh_board_unpublish(COMM + (1ull << 44), (uintptr_t)&other);
		mesh_board_publish(COMM, (uintptr_t)&receiver);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	return unused;
}

static void asks(void)
{
	int done = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		mesh_board_answers(handle(COMM, ROUNDS + 1), &done, NULL);
		want(!done, "an answer of nobody", 0);
		mesh_board_asked(handle(COMM, ROUNDS + 1));
		mesh_board_waits(COMM);
	}
}

/* A completion queue, guarded by its holder alone: what it gives is counted, by who finds it and by who takes it. */
#define COMPLETIONS 20000
static struct mesh_source source;
static uint64_t due, taken; /* taken is read without the queue, too */
static uint64_t entries[4];

static int poll_queue(uint64_t *queue, int most, uint64_t *at)
{
	int n = 0;

	want(queue == &due && most == 4 && at == entries, "another queue", 0);
	while (n < (int)(due % 5) && n < most && due > 0)
		at[n++] = due--;
	if (n == 0 && due > 0)
		at[n++] = due--;
	return n;
}

/* As Go does: who cannot hold the queue goes away. */
static void take_all(void)
{
	uint32_t unheld = 0;
	int n;

	if (!__atomic_compare_exchange_n(&source.held, &unheld, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	n = (int)source.found;
	source.found = 0;
	for (; n > 0; n = poll_queue(&due, 4, entries))
		for (int i = 0; i < n; i++) {
			want(entries[i] == COMPLETIONS - acquire(&taken), "another completion", entries[i]);
			release(&taken, acquire(&taken) + 1);
		}
	__atomic_store_n(&source.held, 0, __ATOMIC_RELEASE);
}

static void *takes_now_and_then(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		take_all();
		sched_yield();
	}
	return unused;
}

static void looks(void)
{
	struct mesh_answer *a = &receiver.answers[INDEX];
	uint64_t g = ROUNDS + 1, crossed = 0;
	int done = 0;

	a->state = g << 1;
	source = (struct mesh_source){ .poll = (uint64_t)(uintptr_t)poll_queue, .queue = (uint64_t)(uintptr_t)&due,
		                       .at = (uint64_t)(uintptr_t)entries, .most = 4 };
	receiver.source[0] = (uint64_t)(uintptr_t)&source;
	receiver.sources = 1;
	mesh_board_asked(handle(COMM, g));
	for (int i = 0; i < 640; i++)
		crossed += !mesh_board_answers(handle(COMM, g), &done, NULL);
	want(crossed == 10 && !done, "tests of what has not come that are not answered by C, of 640,", crossed);
	due = 3;
	for (int i = 0; i < 2 && !source.found; i++) /* one of them may be Go's anyway */
		mesh_board_answers(handle(COMM, g), &done, NULL);
	want(source.found > 0 && source.held == 0 && !done, "nothing found of three completions", source.found);
	want(!mesh_board_answers(handle(COMM, g), &done, NULL), "no call although something was found", 0);
	source.held = 1;
	want(!mesh_board_answers(handle(COMM, g), &done, NULL), "a look at what somebody else holds", 0);
	source.held = source.found = 0;
	due = COMPLETIONS;
}

static void looks_beside(void)
{
	uint64_t g = ROUNDS + 1;
	int done = 0;

	while (acquire(&taken) < COMPLETIONS) {
		if (!mesh_board_answers(handle(COMM, g), &done, NULL))
			take_all();
		want(!done, "an answer of nobody", 0);
		if (__atomic_load_n(&source.held, __ATOMIC_ACQUIRE))
			sched_yield();
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
}

static void beside(void *(*theirs)(void *), void (*ours)(void))
{
	pthread_t t;

	want(pthread_create(&t, NULL, theirs, NULL) == 0, "no thread", 0);
	ours();
	pthread_join(t, NULL);
}

/* Which calls are Go's. */
static void crossings(void)
{
	struct mesh_answer *a = &receiver.answers[INDEX];
	uint64_t g = ROUNDS + 1, polls = receiver.polls, crossed = 0;
	int done = 0;

	a->state = g << 1;
	for (int round = 0; round < 10; round++) {
		/* Asked once since the last poll: not yet. Asked again: somebody must poll. */
		receiver.polls = ++polls;
		want(mesh_board_answers(handle(COMM, g), &done, NULL), "a call after a poll", (uint64_t)round);
		want(!mesh_board_answers(handle(COMM, g), &done, NULL), "no call without a poll", (uint64_t)round);
		receiver.polls = ++polls;
		mesh_board_asked(handle(COMM, g));
		want(!mesh_board_answers(handle(COMM, g), &done, NULL), "no call after Go was asked", (uint64_t)round);
	}
	receiver.polls = ++polls;
	want(!mesh_board_answers(handle(COMM, g - 1), &done, NULL), "a request that is no more", 0);
	want(!mesh_board_answers(handle(COMM, g) ^ 1, &done, NULL), "a request that was never posted", 0);
	want(!mesh_board_answers(handle(COMM, g) | 256, &done, NULL), "a request that was never posted", 0);
	want(!mesh_board_answers(handle(COMM + (1ull << 44), g), &done, NULL), "another connection's request", 0);
	want(!mesh_board_answers(COMM, &done, NULL), "a connection", 0);
	receiver.disabled = 1;
	want(!mesh_board_answers(handle(COMM, g), &done, NULL), "no call of a connection that is disabled", 0);
	a->state |= 1;
	want(mesh_board_answers(handle(COMM, g), &done, NULL) && done, "no answer although it is known", 0);

	for (int i = 0; i < 640; i++)
		crossed += !mesh_board_waits(SENDER);
	want(crossed == 10, "sends without a grant that are not answered by the board, of 640,", crossed);
	sender.ring = 0;
	want(!mesh_board_waits(SENDER), "no send of a connection that is disabled", 0);
	want(!mesh_board_waits(0) && !mesh_board_waits(COMM), "what cannot send", 0);
}

int main(void)
{
	receiver.comm = COMM;
	other.comm = COMM + (1ull << 44);
	sender.comm = SENDER;
	sender.head = 1;
	sender.ring = (uint64_t)(uintptr_t)ring;
	mesh_board_publish(COMM, (uintptr_t)&receiver);
	mesh_board_publish(SENDER, (uintptr_t)&sender);
	beside(completes, takes);
	beside(grants, sends);
	beside(closes, asks);
	sender.grant_misses = 0;
	stop = 0;
	looks();
	beside(takes_now_and_then, looks_beside);
	receiver.sources = 0;
	crossings();
	printf("ok\n");
	return 0;
}
