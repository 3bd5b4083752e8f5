/* netdriver: stands in for NCCL in front of a network plugin. See options.c for its use. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm.h"
#include "log.h"
#include "profiler.h"
#include "report.h"
#include "spawn.h"
#include "watchdog.h"
#include "work.h"

static bool wants(const struct job *job, const char *work)
{
	return strstr(job->opt.work, work) != NULL;
}

static void run_all(struct job *job)
{
	char list[256];
	bool open = false;

	snprintf(list, sizeof list, "%s", job->opt.work);
	for (char *rest = list, *name; (name = strtok_r(rest, ",", &rest));) {
		bool alone = !strcmp(name, "contract") || !strcmp(name, "tuner") || !strcmp(name, "storm") || !strncmp(name, "rma", 3); /* opens and closes for itself */

		if (open == alone) {
			if (alone)
				comms_close(job);
			else
				comms_open(job);
			open = !open;
		}
		if (!strcmp(name, "contract"))
			work_contract(job);
		else if (!strcmp(name, "tuner"))
			work_tuner(job);
		else if (!strcmp(name, "storm"))
			work_storm(job);
		else if (!strcmp(name, "rma"))
			work_rma(job);
		else if (!strcmp(name, "rmaorder"))
			work_rmaorder(job);
		else if (!strcmp(name, "rmadie"))
			work_rmadie(job);
		else if (!strcmp(name, "idle"))
			work_idle(job);
		else if (!strcmp(name, "soak"))
			work_soak(job);
		else if (!strcmp(name, "latency"))
			work_latency(job);
		else if (!strcmp(name, "die"))
			work_die(job);
		else
			do
				work_collective(job, name);
			while (job->opt.until && rendezvous_from_root(&job->rv, !work_over(job)));
	}
	if (open)
		comms_close(job);
}

/* The plugin's descriptors come after those of a process that has many. */
static void open_files(int n)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < (rlim_t)n + 4096) {
		limit.rlim_cur = (rlim_t)n + 4096;
		if (limit.rlim_max < limit.rlim_cur)
			limit.rlim_max = limit.rlim_cur;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			die("--open-files %d: %s", n, strerror(errno));
	}
	for (int fd = 0; fd < n - 1;)
		if ((fd = dup(2)) < 0)
			die("--open-files %d: %s", n, strerror(errno));
}

static void check_calls(const struct job *job)
{
	for (enum net_call call = 0; call < NET_CALLS; call++) {
		double ms = (double)call_time(call).longest_ns / 1e6;

		if (job->opt.max_call_ms > 0 && !call_may_wait(call) && ms > job->opt.max_call_ms)
			wrong("%s took %.3f ms; --max-call-ms allows %g", call_name(call), ms, job->opt.max_call_ms);
	}
}

int main(int argc, char **argv)
{
	static struct job job;
	char error[1024], id[32];
	long all_wrong;

	setvbuf(stderr, NULL, _IOLBF, 0);
	options_parse(&job.opt, argc, argv);
	if (job.opt.spawn)
		return spawn_ranks(&job.opt, argc, argv);
	log_open(job.opt.rank, job.opt.json && !strcmp(job.opt.json, "-") ? stderr : stdout);

	rendezvous_open(&job.rv, job.opt.rank, job.opt.nranks, job.opt.rendezvous, job.opt.rendezvous_fd,
	                job.opt.timeout);
	job.report = report_open(&job);
	if (wants(&job, "contract"))
		contract_before(&job);
	if (wants(&job, "tuner"))
		tuner_before(&job);

	/* Set late, as NCCL does from nccl.conf and Python programs from their first lines. */
	if (job.opt.nodeid_env) {
		snprintf(id, sizeof id, "netdriver-%d", job.opt.rank);
		setenv("NCCL_HOSTID", id, 1);
	}
	open_files(job.opt.open_files);
	memory_use(job.opt.memory, job.opt.libcuda);
	if (!net_load(&job.net, job.opt.plugin, job.opt.api, error, sizeof error))
		die("%s", error);
	if (net_missing(&job.net))
		die("ncclNetPlugin_v%d.%s is NULL", job.net.version, net_missing(&job.net));
	profiler_open(job.opt.profile, job.net.version);
	watchdog_start(job.opt.timeout, &job.rv);
	run_all(&job);

	check_calls(&job);
	profiler_close();
	all_wrong = rendezvous_sum(&job.rv, wrongs());
	report_close(&job, all_wrong == 0, all_wrong);
	watchdog_stop();
	rendezvous_close(&job.rv);
	if (all_wrong)
		die("FAILED, #wrong %ld on all ranks, %ld here", all_wrong, wrongs());
	say("ok, #wrong 0");
	return 0;
}
