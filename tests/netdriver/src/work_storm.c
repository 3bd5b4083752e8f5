/* storm: connections come and go, many at a time; what does the process still hold a while later? */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "progress.h"
#include "watchdog.h"
#include "work.h"

enum {
	IDLE_NS = 50000000, /* of a second, for all threads: the plugin's own timers */
	PATIENCE = 40,      /* seconds: fewer than the watchdog's */
};

struct storm {
	void *listen, *send, *recv;
	unsigned char handle[CONNECT_HANDLE];
};

/* A line of /proc/self/status. Of memory the anonymous counts: a fake library maps the state that it shares with its peers. */
static long status(const char *name)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long value = -1;

	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, name, strlen(name)))
			value = atol(line + strlen(name));
	if (value < 0)
		die("/proc/self/status has no %s", name);
	fclose(f);
	return value;
}

/* How long the process's threads have run or waited for a processor, in nanoseconds; 0 where the kernel does not say. */
static long long busy_ns(void)
{
	long long ran, waited, all = 0;
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[64];
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", e->d_name);
		f = fopen(path, "r");
		if (f && fscanf(f, "%lld %lld", &ran, &waited) == 2)
			all += ran + waited;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return all;
}

/*
 * Rests until the process has had next to nothing to do for so many seconds: beside others it may be done late with
 * its closes, and with giving memory back. On a busy machine even what does nothing waits for a processor longer, so
 * that it is enough some time.
 */
static void rest(double seconds)
{
	int idle = 0;

	for (int all = 0; idle < seconds && all < PATIENCE; all++) {
		long long before = busy_ns(), grown;

		sleep(1);
		grown = busy_ns() - before;
		if (grown >= 0 && grown <= IDLE_NS)
			idle++;
	}
	watchdog_fed();
}

/* Opens and closes n connections to the next rank, and takes as many from the one before. */
static void wave(struct job *job, void *ctx, int n)
{
	int ranks = job->opt.nranks, next = (job->opt.rank + 1) % ranks, open = 0;
	unsigned char(*own)[CONNECT_HANDLE] = calloc((size_t)n, sizeof *own);
	unsigned char(*all)[CONNECT_HANDLE] = calloc((size_t)(n * ranks), sizeof *all);
	struct storm *s = calloc((size_t)n, sizeof *s);
	unsigned idle = 0;

	for (int i = 0; i < n; i++) {
		handle_prepare(s[i].handle);
		check_call(net_listen(&job->net, ctx, i % job->ndev, s[i].handle, &s[i].listen), "listen");
		memcpy(own[i], s[i].handle, CONNECT_HANDLE);
	}
	rendezvous_gather(&job->rv, own, all, (size_t)n * sizeof *own);
	for (int i = 0; i < n; i++)
		memcpy(s[i].handle, all[next * n + i], CONNECT_HANDLE);
	while (open < 2 * n) {
		int before = open;

		for (int i = 0; i < n; i++) {
			if (!s[i].send) {
				check_call(net_connect(&job->net, ctx, i % job->ndev, NULL, s[i].handle, &s[i].send), "connect");
				open += s[i].send != NULL;
			}
			if (!s[i].recv) {
				check_call(net_accept(&job->net, s[i].listen, &s[i].recv), "accept");
				open += s[i].recv != NULL;
			}
		}
		if (open == before) {
			progress_idle(&idle);
			continue;
		}
		watchdog_fed();
		idle = 0;
	}
	rendezvous_barrier(&job->rv);
	for (int i = 0; i < n; i++) {
		check_call(net_close_listen(&job->net, s[i].listen), "closeListen");
		check_call(net_close_send(&job->net, s[i].send), "closeSend");
		check_call(net_close_recv(&job->net, s[i].recv), "closeRecv");
	}
	free(s);
	free(all);
	free(own);
}

void work_storm(struct job *job)
{
	enum { TOGETHER = 64 };
	long before, most = 0;
	void *ctx;

	plugin_init(job, &ctx, mix(job->opt.seed));
	before = status("RssAnon:");
	for (int left = job->opt.connections; left > 0; left -= TOGETHER) {
		wave(job, ctx, left < TOGETHER ? left : TOGETHER);
		if (most < status("RssAnon:"))
			most = status("RssAnon:");
	}
	rest(job->opt.duration);
	say("storm: %g s after %d connections, %d at a time, memory has grown by %ld KiB, at most by %ld, and there are %ld threads",
	    job->opt.duration, job->opt.connections, TOGETHER, status("RssAnon:") - before, most - before, status("Threads:"));
	rendezvous_barrier(&job->rv);
	plugin_fini(job, ctx);
}
