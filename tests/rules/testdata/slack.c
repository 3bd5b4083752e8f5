/* Loads a library and prints how late the timers of this thread, and of the threads that the library has started, may be, in ns. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static long slack_of(int tid)
{
	char path[64];
	long ns = -1;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/timerslack_ns", tid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%ld", &ns) != 1) {
		perror(path);
		exit(1);
	}
	fclose(f);
	return ns;
}

int main(int argc, char **argv)
{
	int before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	struct dirent *e;
	DIR *tasks;

	if (argc != 2 || !dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) {
		fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: slack LIBRARY");
		return 2;
	}
	printf("own %d %d\n", before, prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0));
	tasks = opendir("/proc/self/task");
	while ((e = readdir(tasks)))
		if (e->d_name[0] != '.' && atoi(e->d_name) != getpid())
			printf("other %ld\n", slack_of(atoi(e->d_name)));
	return 0;
}
