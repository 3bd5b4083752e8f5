#define _GNU_SOURCE /* usleep */
#include "host.h"

#include <pthread.h>
#include <unistd.h>

extern char **environ;

int mesh_forked;

/* The file descriptors of the library, one bit each. */
static const volatile uint64_t *fork_bitmap;
static int fork_bits;

/* Go opens and marks descriptors while `inside` is above 0, and waits before it does so while `forking` is. */
static struct fork_gate {
	int32_t inside, forking;
} *fork_gate;

void mesh_fork_table(uintptr_t bitmap, int bits, uintptr_t gate)
{
	fork_bitmap = (const volatile uint64_t *)bitmap;
	fork_bits = bits;
	fork_gate = (struct fork_gate *)gate;
}

/*
 * A child that is forked between the opening of a socket and its mark would
 * keep the socket. Go needs microseconds from one to the other; a fork is delayed
 * for a tenth of a second at most.
 */
static void before_fork(void)
{
	int i;

	if (!fork_gate)
		return;
	__atomic_add_fetch(&fork_gate->forking, 1, __ATOMIC_SEQ_CST);
	for (i = 0; i < 2000 && __atomic_load_n(&fork_gate->inside, __ATOMIC_SEQ_CST) > 0; i++)
		usleep(50);
}

static void in_parent(void)
{
	if (fork_gate)
		__atomic_sub_fetch(&fork_gate->forking, 1, __ATOMIC_SEQ_CST);
}

/*
 * A forked child has a copy of Go's memory but none of its threads. It must
 * not call the library, and must not keep the parent's sockets and queue pairs
 * open after the parent has ended.
 */
static void in_child(void)
{
	int word, bit;

	mesh_forked = 1;
	for (word = 0; word < fork_bits / 64; word++) {
		uint64_t set = fork_bitmap[word];

		for (bit = 0; set != 0; bit++, set >>= 1)
			if (set & 1)
				close(word * 64 + bit);
	}
}

static pid_t owner; /* the process that loaded the library */

__attribute__((constructor)) static void watch_forks(void)
{
	owner = getpid();
	pthread_atfork(before_fork, in_parent, in_child);
}

int mesh_is_owner(void)
{
	return !mesh_forked && getpid() == owner;
}

char *mesh_environ(int i)
{
	return environ ? environ[i] : NULL;
}
