// What a job does beside one collective after another.
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "rank.h"
#include "../gpu/gpu.h"

static void doze(double seconds) {
	nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

// check does one of a few orders, all different, by its number.
static void check(const struct job *j, struct group *g, int number) {
	static const char *const orders[] = {"allreduce f32 sum 30011", "alltoall i32 sum 1009", "allgather u8 sum 4099", "reducescatter f64 sum 2003"};
	char text[64];
	struct order o;
	snprintf(text, sizeof text, "%s", orders[number % 4]);
	order_parse(&o, text);
	o.seed = number;
	order_check(j, g, &o);
}

void case_split(struct job *j, struct group *g, bool share) {
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	config.splitShare = share;
	struct group child = {0};
	NCCL(ncclCommSplit(g->comm, g->rank % 2, -g->rank, &child.comm, &config)); // even and odd ranks, the last first
	CUDA(cudaStreamCreateWithFlags(&child.stream, 1));
	NCCL(ncclCommUserRank(child.comm, &child.rank));
	NCCL(ncclCommCount(child.comm, &child.ranks));
	for (int i = 0; i < 8; i++) check(j, i % 2 ? g : &child, i);
	group_close(j, &child);
	check(j, g, 0);
}

void case_abort(struct job *j, struct group *g, double after) {
	enum { COUNT = 1 << 20, DEPTH = 64 };
	void *buffer;
	CUDA(cudaMalloc(&buffer, COUNT * sizeof(float)));
	CUDA(cudaMemset(buffer, 0, COUNT * sizeof(float)));
	for (int i = 0; i < DEPTH; i++) // until a rank that was faster has ended its part
		if (ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, g->comm, g->stream) != ncclSuccess) break;
	doze(after);
	NCCL(ncclCommAbort(g->comm));
	CUDA(cudaStreamSynchronize(g->stream));
	CUDA(cudaStreamDestroy(g->stream));
	CUDA(cudaFree(buffer));
	if (j->rank == 0) say("aborted");
}

static int entries(const char *path) {
	DIR *d = opendir(path);
	if (!d) fail("%s: %s", path, strerror(errno));
	int n = -3; // itself, and the two of each directory
	while (readdir(d)) n++;
	closedir(d);
	return n;
}

// usage is what a communicator must give back.
struct usage {
	int descriptors, streams;
	size_t device, resident; // bytes
};

static struct usage usage(void) {
	struct usage u = {entries("/proc/self/fd"), stream_count(), gpu_memory_used(), 0};
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%*s %zu", &u.resident) != 1) fail("/proc/self/statm: %s", strerror(errno));
	fclose(f);
	u.resident *= 4096;
	return u;
}

void case_cycles(struct job *j, int cycles, double rest) {
	// The plugin's collector begins at 256 MiB, or when nothing has moved for half a second; a cycle may keep a little beside.
	enum { WARM = 3, GROWTH = 1 << 20 };
	size_t collector = (rest > .5 ? 16u : 256u) << 20;
	struct usage first = {0}, last = {0};
	for (int i = 0; i < cycles; i++) {
		struct group g;
		group_open(j, &g);
		check(j, &g, i);
		group_close(j, &g);
		doze(rest > 0 ? rest : .05); // threads that were told to end do
		last = usage();
		if (j->rank == 0) say("cycle %d: %d descriptors, %zu KiB resident", i + 1, last.descriptors, last.resident / 1024);
		if (i < WARM) first = last;
	}
	if (last.descriptors > first.descriptors) fail("%d descriptors after %d cycles, %d after %d", last.descriptors, cycles, first.descriptors, WARM);
	if (last.streams > first.streams) fail("%d streams after %d cycles, %d after %d", last.streams, cycles, first.streams, WARM);
	if (last.device > first.device) fail("%zu bytes of device memory after %d cycles, %zu after %d", last.device, cycles, first.device, WARM);
	if (last.resident > first.resident + collector + (size_t)cycles * GROWTH)
		fail("%zu bytes resident after %d cycles, %zu after %d", last.resident, cycles, first.resident, WARM);
}

// over says on all ranks whether rank 0 finds that it is time.
static ncclResult_t over(const struct job *j, struct group *g, bool mine, bool *all) {
	int *flag, value = g->rank == 0 && mine;
	CUDA(cudaMalloc((void **)&flag, sizeof *flag));
	CUDA(cudaMemcpy(flag, &value, sizeof value, cudaMemcpyHostToDevice));
	ncclResult_t error = ncclAllReduce(flag, flag, 1, ncclInt32, ncclMax, g->comm, g->stream);
	if (error == ncclSuccess) error = group_wait(j, g);
	if (error != ncclSuccess) return error;
	CUDA(cudaMemcpy(&value, flag, sizeof value, cudaMemcpyDeviceToHost));
	*all = value;
	CUDA(cudaFree(flag));
	return ncclSuccess;
}

void case_until_error(struct job *j, struct group *g, const char *until) {
	char text[] = "allreduce f32 sum 65536", *file;
	double seconds = strtod(until, &file);
	struct order o;
	order_parse(&o, text);
	say("going");
	double start = now(), begun = start;
	ncclResult_t error = ncclSuccess;
	for (bool end = false; !end && error == ncclSuccess; o.seed++) {
		begun = now();
		error = order_try(j, g, &o);
		bool time = *file ? access(file, F_OK) == 0 : begun - start > seconds;
		if (error == ncclSuccess && *until) error = over(j, g, time, &end);
	}
	if (error == ncclSuccess) {
		say("went on: %d checked", o.seed);
		return;
	}
	say("error %d after %.1f s: %s", error, now() - begun, ncclGetErrorString(error));
	NCCL(ncclCommAbort(g->comm));
	say("ended");
}

static void *end(void *arg) {
	doze(*(double *)arg);
	raise(SIGKILL);
	return NULL;
}

void case_killed(const struct job *j, int rank, double after) {
	static double seconds;
	pthread_t thread;
	seconds = after;
	if (j->rank == rank && pthread_create(&thread, NULL, end, &seconds)) fail("no thread");
}

