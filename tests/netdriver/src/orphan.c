#include "orphan.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

void orphans_leave(struct job *job, int n)
{
	if (job->opt.rank != job->opt.die_rank)
		return;
	for (int i = 0; i < n; i++) {
		if (fork())
			continue;
		rendezvous_forget(&job->rv);
		for (int fd = 0; fd < 3; fd++)
			dup2(open("/dev/null", O_RDWR), fd);
		alarm((unsigned)ceil(job->opt.die_limit_ms / 1000) + 10);
		for (;;)
			pause();
	}
}
