/* Device memory that shows late. What an adapter writes to a GPU arrives some time after the completion that tells of it, unless the same
 * adapter reads there: the read pushes all that it wrote before. The first bytes of a write are held back here until then. */
#include "fake.h"

#include <string.h>
#include <sys/uio.h>

/* Writes to the memory of a process where its kernel lets us; memory that is gone is not missed. */
static void put(int proc, const struct shm_late *l)
{
	struct iovec from = {(void *)l->byte, l->n}, to = {(void *)l->addr, l->n};

	(void)!process_vm_writev(shm->proc[proc].pid, &from, 1, &to, 1, 0);
}

static bool overlaps(const struct shm_late *l, uint64_t addr, uint64_t length)
{
	return l->addr < addr + length && addr < l->addr + l->n;
}

/* Shows what is due, what the adapter wrote (NONE: none), and what overlaps a range. Called with the lock held. */
static void show(int proc, uint64_t now, int device, uint64_t addr, uint64_t length)
{
	struct shm_proc *p = &shm->proc[proc];
	uint32_t kept = 0;

	for (uint32_t i = 0; i < p->lates && shm_holds(&p->late_lock); i++) {
		const struct shm_late *l = &p->late[i];

		if (l->due <= now || l->device == device || overlaps(l, addr, length))
			put(proc, l);
		else
			p->late[kept++] = *l;
	}
	if (shm_holds(&p->late_lock))
		p->lates = kept;
}

static bool any(int proc) { return atomic_load(&shm->proc[proc].lates) != 0; }

static void show_some(int proc, uint64_t now, int device, uint64_t addr, uint64_t length)
{
	if (!any(proc))
		return;
	shm_lock(&shm->proc[proc].late_lock);
	show(proc, now, device, addr, length);
	shm_unlock(&shm->proc[proc].late_lock);
}

void late_read(int proc, int device) { show_some(proc, 0, device, 0, 0); }
void late_overwrite(int proc, uint64_t addr, uint64_t length) { show_some(proc, 0, NONE, addr, length); }

uint64_t late_due(void)
{
	struct shm_proc *p = &shm->proc[fake.proc];
	uint64_t next = 0;

	show_some(fake.proc, now_ns(), NONE, 0, 0);
	if (!any(fake.proc))
		return 0;
	shm_lock(&p->late_lock);
	for (uint32_t i = 0; i < p->lates; i++)
		if (!next || p->late[i].due < next)
			next = p->late[i].due;
	shm_unlock(&p->late_lock);
	return next;
}

bool late_hold(int proc, int device, uint64_t addr, const unsigned char *bytes, uint32_t n, uint64_t delay)
{
	struct shm_proc *p = &shm->proc[proc];
	bool held;

	shm_lock(&p->late_lock);
	held = p->lates < MAX_LATE;
	if (held) {
		struct shm_late *l = &p->late[p->lates];

		*l = (struct shm_late){.addr = addr, .due = now_ns() + delay, .device = device, .n = n};
		memcpy(l->byte, bytes, n);
		atomic_fetch_add(&p->lates, 1);
	}
	shm_unlock(&p->late_lock);
	if (held)
		proc_ring(proc); /* its service thread sees to it that they are not late for ever */
	return held;
}
