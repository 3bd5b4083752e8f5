#include "watchdog.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "log.h"
#include "plugin.h"
#include "rendezvous.h"

/* After a rank has left, its peers get this long to hear it from the plugin. */
static const uint64_t grace_ns = 5000000000u;

static _Atomic uint64_t fed;
static atomic_bool loss_expected;
static uint64_t limit_ns;
static struct rendezvous *ranks;
static pthread_t thread;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stopping = PTHREAD_COND_INITIALIZER;
static bool stopped;
static void (*describe)(void *);
static void *describe_arg;

static void say_where(void)
{
	for (enum net_call call = 0; call < NET_CALLS; call++)
		if (call_time(call).inside > 0)
			say("a thread is still inside %s", call_name(call));
	pthread_mutex_lock(&mutex);
	if (describe)
		describe(describe_arg);
	pthread_mutex_unlock(&mutex);
}

/* nap waits for the next look; false: there is none. */
static bool nap(void)
{
	struct timespec until;
	bool going;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 200000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&mutex);
	if (!stopped)
		pthread_cond_timedwait(&stopping, &mutex, &until);
	going = !stopped;
	pthread_mutex_unlock(&mutex);
	return going;
}

static void *watch(void *arg)
{
	uint64_t lost = 0;

	while (nap()) {
		uint64_t since = atomic_load(&fed); /* before the clock, and once: others feed it meanwhile */
		uint64_t now = now_ns();

		if (now - since > limit_ns) {
			say_where();
			die("no progress for %.0f s (--timeout)", (double)limit_ns / 1e9);
		}
		if (atomic_load(&loss_expected))
			continue;
		if (!lost && rendezvous_gone(ranks))
			lost = now;
		if (lost && now - lost > grace_ns) {
			say_where();
			die("a rank left the job, and %.0f s later nothing here had failed", (double)grace_ns / 1e9);
		}
	}
	return arg;
}

void watchdog_start(double timeout, struct rendezvous *rv)
{
	limit_ns = (uint64_t)(timeout * 1e9);
	ranks = rv;
	watchdog_fed();
	if (pthread_create(&thread, NULL, watch, NULL))
		die("cannot start a thread");
	pthread_setname_np(thread, "watchdog");
}

void watchdog_stop(void)
{
	pthread_mutex_lock(&mutex);
	stopped = true;
	pthread_cond_signal(&stopping);
	pthread_mutex_unlock(&mutex);
	pthread_join(thread, NULL);
}

void watchdog_fed(void)
{
	atomic_store(&fed, now_ns());
}

void watchdog_describe(void (*new_describe)(void *), void *arg)
{
	pthread_mutex_lock(&mutex);
	describe = new_describe;
	describe_arg = arg;
	pthread_mutex_unlock(&mutex);
}

void watchdog_expect_loss(void)
{
	atomic_store(&loss_expected, true);
}
