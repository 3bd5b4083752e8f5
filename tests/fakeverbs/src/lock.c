/* Locks between processes. A process may be killed or stopped at any instruction, and the others go on: whoever waits for a lock looks
 * after its holder, and takes it over from one that is dead or stopped.
 *
 * What a lock guards is written so that a holder which stays half way leaves it valid: the index is published last. A holder that was
 * stopped and goes on has lost its lock; it looks (shm_holds) before it changes anything after something that takes time. That leaves
 * the few instructions between a look and a store. The copying of data, which takes most of the time, has no such gap: see qp_lock. */
#include "shm.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 100, PAUSE = 100 /* us */ };

static _Thread_local uint32_t self;

uint32_t thread_id(void)
{
	if (!self)
		self = (uint32_t)syscall(SYS_gettid);
	return self;
}

static void forked(void) { self = 0; }

__attribute__((constructor)) static void follow_forks(void) { pthread_atfork(NULL, NULL, forked); }

/* Reports whether a thread runs no more, for the time being at least. A stopped one is not within a system call. */
static bool halted(uint32_t thread)
{
	char path[64], text[512];
	const char *end;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%u/stat", thread);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	end = strrchr(text, ')');
	return !end || strchr("TtZX", end[2]);
}

static void wait_a_little(int *tries)
{
	if (++*tries < SPINS)
		sched_yield();
	else
		usleep(PAUSE);
}

/* Returns whether the lock was taken over. */
static bool take(struct shm_lock *l)
{
	uint32_t me = thread_id(), holder;

	for (int tries = 0;; wait_a_little(&tries)) {
		holder = 0;
		if (atomic_compare_exchange_strong(&l->holder, &holder, me))
			return false;
		if (tries >= SPINS && halted(holder) && atomic_compare_exchange_strong(&l->holder, &holder, me))
			return true;
	}
}

void shm_lock(struct shm_lock *l)
{
	take(l);
}

bool shm_holds(const struct shm_lock *l)
{
	return atomic_load(&l->holder) == thread_id();
}

void shm_unlock(struct shm_lock *l)
{
	uint32_t me = thread_id();

	atomic_compare_exchange_strong(&l->holder, &me, 0);
}

/* A holder that was stopped may have been about to copy. The kernel reads the ranges when the copy begins: emptied, they make it copy
 * nothing. One that began before they were emptied is over when its thread is seen to be stopped, or has said so. */
void qp_lock(struct shm_qp *q)
{
	struct shm_copy *c = &q->copy;
	uint32_t copier;
	int tries = 0;

	if (!take(&q->lock))
		return;
	for (int i = 0; i < MAX_VEC; i++)
		__atomic_store_n(&c->span[i].length, 0, __ATOMIC_SEQ_CST);
	while ((copier = atomic_load(&c->copier)) && !halted(copier))
		wait_a_little(&tries);
	atomic_compare_exchange_strong(&c->copier, &copier, 0);
}
