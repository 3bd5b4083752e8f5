/* storm: connections come and go, many at a time; what does the process still hold a while later? */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "progress.h"
#include "watchdog.h"
#include "work.h"

enum { IDLE_NS = 20000000 }; /* of a second, for all threads: the plugin's own timers */

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

/*
 * How long the process's threads have run, in nanoseconds; 0 where the kernel does not say. How long they have
 * waited for a processor says nothing: on a busy machine a timer that does nothing may wait as long as it likes.
 */
static long long busy_ns(void)
{
	long long ran, all = 0;
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[64];
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", e->d_name);
		f = fopen(path, "r");
		if (f && fscanf(f, "%lld", &ran) == 1)
			all += ran;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return all;
}

/* Waits until the process has had next to nothing to do for a second: beside others it may be done with its closes late. */
static void await_idle(void)
{
	for (int seconds = 1;; seconds++) {
		long long before = busy_ns(), grown;

		sleep(1);
		grown = busy_ns() - before;
		if (grown >= 0 && grown <= IDLE_NS)
			break;
		if (seconds % 10 == 0)
			say("storm: %d s after the last close the process runs for %lld ms of a second still", seconds, grown / 1000000);
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
	struct timespec rest = {(time_t)job->opt.duration, (long)((job->opt.duration - (double)(time_t)job->opt.duration) * 1e9)};
	long before, most = 0;
	void *ctx;

	plugin_init(job, &ctx, mix(job->opt.seed));
	before = status("RssAnon:");
	for (int left = job->opt.connections; left > 0; left -= job->opt.together) {
		wave(job, ctx, left < job->opt.together ? left : job->opt.together);
		if (most < status("RssAnon:"))
			most = status("RssAnon:");
	}
	await_idle();
	nanosleep(&rest, NULL);
	say("storm: %g s after %d connections, %d at a time, memory has grown by %ld KiB, at most by %ld, and there are %ld threads",
	    job->opt.duration, job->opt.connections, job->opt.together, status("RssAnon:") - before, most - before, status("Threads:"));
	rendezvous_barrier(&job->rv);
	plugin_fini(job, ctx);
}
