/* idle: nothing, with all connections open, until somebody says that it is enough. */
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "watchdog.h"
#include "work.h"

bool work_over(const struct job *job)
{
	return !access(job->opt.until, F_OK);
}

void work_idle(struct job *job)
{
	const struct timespec pause = {.tv_nsec = 10000000};

	if (!job->opt.until)
		die("idle wants --until");
	say("idle");
	while (!work_over(job)) {
		nanosleep(&pause, NULL);
		watchdog_fed();
	}
	rendezvous_barrier(&job->rv);
}
