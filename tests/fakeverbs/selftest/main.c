/* selftest [CASE]...: runs the cases, each in a pair of processes; without arguments all of them. "-l" lists them. */
#include "selftest.h"

#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define HANG 1200 /* seconds after which a case is ended: no measure, as sanitizers and other work on the machine slow it down */

bool is_a;
pid_t other_pid;
static int line;

void tell(const void *p, size_t n)
{
	CHECK(send(line, p, n, MSG_NOSIGNAL) == (ssize_t)n, "the other side is gone");
}

void hear(void *p, size_t n)
{
	CHECK(recv(line, p, n, MSG_WAITALL) == (ssize_t)n, "the other side is gone");
}

void meet(void)
{
	char c = 'x';

	tell(&c, 1);
	hear(&c, 1);
}

void gone(void)
{
	char c;

	while (recv(line, &c, 1, 0) > 0)
		;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void fakefault(const char *words, ...)
{
	char command[1024] = "fakefault ";
	size_t n = strlen(command);
	va_list ap;

	va_start(ap, words);
	vsnprintf(command + n, sizeof(command) - n, words, ap);
	va_end(ap);
	strcat(command, " >/dev/null");
	EQUAL(system(command), 0);
}

/* One case; the side of b is a child, which has touched nothing of the library yet. */
static int run(const struct test *t)
{
	int pair[2], status = 0, other = 0;
	pid_t b, a;

	fflush(NULL);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	b = fork();
	if (b == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		line = pair[1];
		setenv("FAKEVERBS_NODE", "b", 1);
		alarm(HANG);
		t->run();
		exit(0);
	}
	a = fork();
	if (a == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[1]);
		line = pair[0];
		is_a = true;
		other_pid = b;
		setenv("FAKEVERBS_NODE", "a", 1);
		alarm(HANG);
		t->run();
		exit(0);
	}
	close(pair[0]);
	close(pair[1]);
	waitpid(a, &status, 0);
	waitpid(b, &other, 0);
	/* A case may kill its own b. */
	if (status == 0 && other != 0 && !(WIFSIGNALED(other) && WTERMSIG(other) == SIGKILL))
		status = other;
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s: signal %d\n", t->name, WTERMSIG(status));
	printf("%s %s\n", status ? "FAIL" : "ok", t->name);
	return status != 0;
}

int main(int argc, char **argv)
{
	const struct test *const sets[] = {state_tests, data_tests, error_tests, event_tests, fault_tests, gpu_tests, datadirect_tests, model_tests};
	int failed = 0, ran = 0;

	for (size_t s = 0; s < sizeof(sets) / sizeof(sets[0]); s++)
		for (const struct test *t = sets[s]; t->name; t++) {
			bool wanted = argc < 2;

			for (int i = 1; i < argc; i++)
				wanted |= strcmp(argv[i], t->name) == 0;
			if (argc == 2 && strcmp(argv[1], "-l") == 0)
				puts(t->name), ran++;
			else if (wanted)
				failed |= run(t), ran++;
		}
	if (!ran)
		fprintf(stderr, "selftest: no such case\n");
	return failed || !ran;
}
