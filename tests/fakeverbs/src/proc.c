/* The processes of the fabric: who is there, who has died, and how to reach one. */
#include "shm.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

/* A process is alive as long as its service thread holds this lock: the kernel lets go of it when the process is killed, exits or
 * executes another program, before anybody else can have its process id or its memory. */
bool proc_alive(int proc, uint32_t generation)
{
	struct shm_proc *p = &shm->proc[proc];
	int err;

	if (!live(generation) || atomic_load(&p->generation) != generation)
		return false;
	err = pthread_mutex_trylock(&p->alive);
	if (err == EBUSY)
		return true;
	if (err == EOWNERDEAD)
		pthread_mutex_consistent(&p->alive);
	if (err == 0 || err == EOWNERDEAD)
		pthread_mutex_unlock(&p->alive);
	return false;
}

static void free_objects(int proc)
{
	for (int i = 0; i < MAX_QPS; i++) {
		struct shm_qp *q = &shm->qp[i];

		if (!live(q->generation) || q->proc != proc)
			continue;
		qp_lock(q);
		atomic_store(&q->state, IBV_QPS_RESET);
		if (shm_holds(&shm->table))
			atomic_fetch_add(&q->generation, 1);
		qp_unlock(q);
	}
	for (int i = 0; i < MAX_CQS; i++) {
		struct shm_cq *c = &shm->cq[i];

		if (!live(c->generation) || c->proc != proc)
			continue;
		shm_lock(&c->lock);
		if (shm_holds(&shm->table))
			atomic_fetch_add(&c->generation, 1);
		shm_unlock(&c->lock);
	}
	for (int i = 0; i < MAX_MRS; i++) {
		struct shm_mr *m = &shm->mr[i];

		if (atomic_load(&m->key) && m->proc == proc) {
			atomic_fetch_sub(&shm->node[shm->proc[proc].node].registered, m->length);
			atomic_store(&m->key, 0);
		}
		if (m->closing && m->proc == proc)
			m->closing = false;
	}
	for (size_t i = 1; i < ARENA_PAGES && shm_holds(&shm->table); i++)
		if (shm->page_owner[i] == proc + 1)
			shm->page_owner[i] = 0;
	shm->next_page = 1;
}

/* Called with `table` held. */
static void release(int proc)
{
	free_objects(proc);
	if (shm_holds(&shm->table))
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

/* Enters the calling process, which is not there for others until proc_begin; returns its index, or NONE with errno. */
int proc_register(int node)
{
	int found = NONE;

	shm_lock(&shm->table);
	proc_reap();
	for (int i = 0; i < MAX_PROCS && found < 0; i++)
		if (!live(shm->proc[i].generation) && (!shm->proc[i].entering || kill(shm->proc[i].pid, 0)))
			found = i;
	if (found >= 0) {
		struct shm_proc *p = &shm->proc[found];

		p->pid = getpid();
		p->node = node;
		p->events = 0;
		p->lates = 0;
		p->entering = true;
	}
	shm_unlock(&shm->table);
	if (found < 0)
		errno = EUSERS;
	return found;
}

/* The service thread of the process takes up its work. */
void proc_begin(int proc)
{
	struct shm_proc *p = &shm->proc[proc];

	if (pthread_mutex_lock(&p->alive) == EOWNERDEAD)
		pthread_mutex_consistent(&p->alive);
	shm_lock(&shm->table);
	p->entering = false;
	atomic_fetch_add(&p->generation, 1);
	shm_unlock(&shm->table);
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
	if (p->events < MAX_EVENTS) {
		p->event[p->events] = *e;
		p->events++;
	}
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
