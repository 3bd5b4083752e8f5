/* One sleeping thread a process: hands out events that others left, and looks after requests when the program does not poll. */
#include "fake.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

/* A program that polls serves its own requests on time; the thread comes long after it, not against it. */
enum { SLACK_POLLED = 1000 * 1000, SLACK_UNPOLLED = 20 * 1000 };

static _Atomic uint64_t wake_at, slack = SLACK_UNPOLLED;
static _Atomic bool polled;

static void events(void)
{
	struct shm_proc *p = &shm->proc[fake.proc];
	struct shm_event box[MAX_EVENTS];
	uint32_t n;

	shm_lock(&p->lock);
	n = p->events;
	memcpy(box, p->event, n * sizeof(box[0]));
	p->events = 0;
	shm_unlock(&p->lock);
	for (uint32_t i = 0; i < n; i++)
		async_deliver(&box[i]);
	pthread_mutex_lock(&fake.objects);
	for (int i = 0; i < fake.cq_end; i++)
		if (fake.cq[i] && fake.cq[i]->ibv.channel && atomic_exchange(&fake.cq[i]->s->rung, 0))
			cq_event_deliver(fake.cq[i]);
	pthread_mutex_unlock(&fake.objects);
}

static void *serve(void *begun)
{
	_Atomic uint32_t *bell = &shm->proc[fake.proc].doorbell;

	prctl(PR_SET_NAME, "fakeverbs");
	proc_begin(fake.proc);
	sem_post(begun);
	for (;;) {
		uint32_t seen = atomic_load(bell);
		uint64_t next, late, now;

		atomic_store(&wake_at, UINT64_MAX); /* from here on a ring is heard */
		events();
		work_all();
		atomic_store(&slack, atomic_exchange(&polled, false) ? SLACK_POLLED : SLACK_UNPOLLED);
		next = atomic_load(&work_pending) ? work_next() : 0;
		late = late_due();
		if (late && (!next || late < next))
			next = late;
		now = now_ns();
		if (next && next < now)
			next = now;
		if (next)
			next += slack;
		atomic_store(&wake_at, next ? next : UINT64_MAX);
		futex_wait(bell, seen, next ? next - now : 0);
	}
	return NULL;
}

int service_start(void)
{
	pthread_attr_t a;
	sigset_t all, old;
	sem_t begun;
	pthread_t t;
	int err;

	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&a, 256 << 10);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* the program's signals are the program's */
	sem_init(&begun, 0, 0);
	err = pthread_create(&t, &a, serve, &begun);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	while (!err && sem_wait(&begun))
		; /* interrupted */
	pthread_attr_destroy(&a);
	return err;
}

void service_polled(void)
{
	if (!atomic_load_explicit(&polled, memory_order_relaxed))
		atomic_store_explicit(&polled, true, memory_order_relaxed);
	work_all();
}

/* There is work at time `by`. */
void service_wake(uint64_t by)
{
	if (atomic_load(&wake_at) > by + atomic_load(&slack))
		proc_ring(fake.proc);
}
