/* The processes of the fabric: who is there, who has died, and how to reach one. */
#include "shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* When the process started, in ticks since boot; 0 when there is none. A process id is reused, the pair is not. */
static uint64_t started(int pid)
{
	char path[64], buf[1024], *p;
	unsigned long long t = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	buf[n] = 0;
	p = strrchr(buf, ')'); /* the name before it may hold anything */
	if (!p || p[1] == 0 || p[2] == 'Z' || p[2] == 'X')
		return 0;
	for (int i = 0; i < 20 && p; i++)
		p = strchr(p + 1, ' ');
	if (p)
		sscanf(p, " %llu", &t);
	return t;
}

/* One descriptor for each process we have asked about: readable once it has exited, even while its parent has not reaped it. */
static struct {
	pthread_mutex_t lock;
	int pid; /* who opened them: a forked child starts anew */
	struct {
		uint32_t generation;
		int fd;
	} of[MAX_PROCS];
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool watch_alive(int proc, uint32_t generation)
{
	struct shm_proc *p = &shm->proc[proc];
	struct pollfd f = {.events = POLLIN};
	bool alive;

	pthread_mutex_lock(&watch.lock);
	if (watch.pid != getpid()) {
		memset(watch.of, 0, sizeof(watch.of));
		watch.pid = getpid();
	}
	if (watch.of[proc].generation != generation) {
		if (watch.of[proc].generation && watch.of[proc].fd >= 0)
			close(watch.of[proc].fd);
		watch.of[proc].generation = generation;
		watch.of[proc].fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
		if (watch.of[proc].fd >= 0 && started(p->pid) != p->started) {
			close(watch.of[proc].fd);
			watch.of[proc].fd = -1;
		}
	}
	f.fd = watch.of[proc].fd;
	if (f.fd >= 0)
		alive = poll(&f, 1, 0) == 0;
	else
		alive = started(p->pid) == p->started;
	pthread_mutex_unlock(&watch.lock);
	return alive;
}

bool proc_alive(int proc, uint32_t generation)
{
	if (proc < 0 || atomic_load(&shm->proc[proc].generation) != generation || !live(generation))
		return false;
	return watch_alive(proc, generation);
}

static void free_objects(int proc)
{
	for (int i = 0; i < MAX_QPS; i++) {
		struct shm_qp *q = &shm->qp[i];

		if (!q->prepared || !live(q->generation) || q->proc != proc)
			continue;
		shm_lock(&q->lock);
		atomic_store(&q->state, IBV_QPS_RESET);
		atomic_fetch_add(&q->generation, 1);
		shm_unlock(&q->lock);
	}
	for (int i = 0; i < MAX_CQS; i++) {
		struct shm_cq *c = &shm->cq[i];

		if (!c->prepared || !live(c->generation) || c->proc != proc)
			continue;
		shm_lock(&c->lock);
		atomic_fetch_add(&c->generation, 1);
		shm_unlock(&c->lock);
	}
	for (int i = 0; i < MAX_MRS; i++) {
		struct shm_mr *m = &shm->mr[i];

		if (atomic_load(&m->key) && m->proc == proc) {
			atomic_fetch_sub(&shm->node[shm->proc[proc].node].registered, m->length);
			atomic_store(&m->key, 0);
		}
	}
	for (size_t i = 1; i < ARENA_PAGES; i++)
		if (shm->page_owner[i] == proc + 1)
			shm->page_owner[i] = 0;
	shm->next_page = 1;
}

/* Called with `table` held. */
static void release(int proc)
{
	free_objects(proc);
	atomic_fetch_add(&shm->proc[proc].generation, 1);
}

void proc_release(int proc)
{
	shm_lock(&shm->table);
	release(proc);
	shm_unlock(&shm->table);
}

/* Frees what dead processes left. Called with `table` held. */
void proc_reap(void)
{
	for (int i = 0; i < MAX_PROCS; i++) {
		uint32_t g = atomic_load(&shm->proc[i].generation);

		if (live(g) && !proc_alive(i, g))
			release(i);
	}
}

/* Enters the calling process; returns its index, or NONE with errno. */
int proc_register(int node)
{
	int found = NONE;

	shm_lock(&shm->table);
	proc_reap();
	for (int i = 0; i < MAX_PROCS && found < 0; i++)
		if (!live(shm->proc[i].generation))
			found = i;
	if (found >= 0) {
		struct shm_proc *p = &shm->proc[found];

		p->pid = getpid();
		p->node = node;
		p->started = started(p->pid);
		p->events = 0;
		atomic_fetch_add(&p->generation, 1);
	}
	shm_unlock(&shm->table);
	if (found < 0)
		errno = EUSERS;
	return found;
}

/* Wakes the service thread of a process. */
void proc_ring(int proc)
{
	atomic_fetch_add(&shm->proc[proc].doorbell, 1);
	futex_wake(&shm->proc[proc].doorbell);
}

/* Leaves an asynchronous event for a process; a full box drops it, as a driver does. */
void proc_event(int proc, const struct shm_event *e)
{
	struct shm_proc *p = &shm->proc[proc];

	shm_lock(&p->lock);
	if (p->events < MAX_EVENTS)
		p->event[p->events++] = *e;
	shm_unlock(&p->lock);
	proc_ring(proc);
}

/* To every process on the device's node. */
void proc_event_all(const struct shm_event *e)
{
	for (int i = 0; i < MAX_PROCS; i++)
		if (live(atomic_load(&shm->proc[i].generation)) && shm->proc[i].node == shm->device[e->device].node)
			proc_event(i, e);
}
