#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "rendezvous.h"

/* After a rank has failed, the others get this long to find out by themselves. */
static const uint64_t grace_ns = 15000000000u;

_Noreturn static void run_rank(const struct options *o, int argc, char **argv, int rank, int listener,
                               int port)
{
	char number[16], total[16], address[32], fd[16];
	char **args = calloc((size_t)argc + 12, sizeof *args);
	int n = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(number, sizeof number, "%d", rank);
	snprintf(total, sizeof total, "%d", o->spawn);
	snprintf(address, sizeof address, "127.0.0.1:%d", port);
	snprintf(fd, sizeof fd, "%d", listener);
	for (int i = 0; i < argc; i++) {
		if (!strcmp(argv[i], "--spawn"))
			i++;
		else if (strncmp(argv[i], "--spawn=", 8))
			args[n++] = argv[i];
	}
	args[n++] = "--rank";
	args[n++] = number;
	args[n++] = "--nranks";
	args[n++] = total;
	args[n++] = "--rendezvous";
	args[n++] = address;
	if (rank == 0) {
		fcntl(listener, F_SETFD, 0);
		args[n++] = "--rendezvous-fd";
		args[n++] = fd;
	}
	execv("/proc/self/exe", args);
	execvp(argv[0], args);
	die("cannot run %s again: %s", argv[0], strerror(errno));
}

/* judge says how a rank ended, and whether that is as it should be. */
static bool judge(const struct options *o, int rank, int status)
{
	bool dies = strstr(o->work, "die") && rank == o->die_rank;

	if (WIFSIGNALED(status)) {
		if (dies && WTERMSIG(status) == SIGKILL)
			return true;
		say("rank %d was ended by signal %d (%s)", rank, WTERMSIG(status), strsignal(WTERMSIG(status)));
		return false;
	}
	if (WEXITSTATUS(status) || dies)
		say("rank %d ended with status %d", rank, WEXITSTATUS(status));
	return WEXITSTATUS(status) == 0 && !dies;
}

int spawn_ranks(const struct options *o, int argc, char **argv)
{
	int port, listener = rendezvous_listen("127.0.0.1:0", &port), left = o->spawn;
	pid_t pids[o->spawn];
	uint64_t failed_at = 0;

	for (int rank = 0; rank < o->spawn; rank++) {
		pids[rank] = fork();
		if (pids[rank] == 0)
			run_rank(o, argc, argv, rank, listener, port);
		if (pids[rank] < 0)
			die("cannot fork: %s", strerror(errno));
	}
	close(listener);
	while (left) {
		int status, rank = 0;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid <= 0) {
			if (failed_at && now_ns() - failed_at > grace_ns) {
				for (int r = 0; r < o->spawn; r++)
					if (pids[r] > 0)
						kill(pids[r], SIGKILL);
				failed_at = now_ns();
			}
			nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
			continue;
		}
		while (rank < o->spawn && pids[rank] != pid)
			rank++;
		if (rank == o->spawn)
			continue;
		pids[rank] = -1;
		left--;
		if (!judge(o, rank, status) && !failed_at)
			failed_at = now_ns();
	}
	if (failed_at)
		say("FAILED");
	return failed_at ? 1 : 0;
}
