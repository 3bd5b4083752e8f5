// How the ranks come together, and wait for each other.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "rank.h"

void meet(struct job *j, ncclUniqueId *id) {
	char path[512], part[520];
	snprintf(path, sizeof path, "%s.%d", j->id, j->meetings++);
	if (j->rank == 0) {
		NCCL(ncclGetUniqueId(id));
		snprintf(part, sizeof part, "%s.part", path);
		FILE *f = fopen(part, "w");
		if (!f || fwrite(id, sizeof *id, 1, f) != 1 || fclose(f) || rename(part, path)) fail("write %s: %s", path, strerror(errno));
		return;
	}
	FILE *f;
	while (!(f = fopen(path, "r"))) {
		if (errno != ENOENT) fail("read %s: %s", path, strerror(errno));
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	if (fread(id, sizeof *id, 1, f) != 1) fail("read %s: too short", path);
	fclose(f);
}

void group_open(struct job *j, struct group *g) {
	ncclUniqueId id;
	meet(j, &id);
	*g = (struct group){.rank = j->rank, .ranks = j->ranks};
	CUDA(cudaStreamCreateWithFlags(&g->stream, 1));
	NCCL(ncclCommInitRank(&g->comm, j->ranks, id, j->rank));
}

void group_close(const struct job *j, struct group *g) {
	// Who gives may be done long before those who get: together, or NCCL 2.22 ends connections that are still needed.
	char text[] = "allreduce i32 sum 1";
	struct order o;
	order_parse(&o, text);
	order_check(j, g, &o);
	NCCL(ncclCommFinalize(g->comm));
	NCCL(ncclCommDestroy(g->comm));
	CUDA(cudaStreamDestroy(g->stream));
	g->comm = NULL;
}

ncclResult_t group_wait(const struct job *j, struct group *g) {
	double start = now();
	while (cudaStreamQuery(g->stream) == cudaErrorNotReady) {
		ncclResult_t error = ncclSuccess;
		NCCL(ncclCommGetAsyncError(g->comm, &error));
		if (error != ncclSuccess && error != ncclInProgress) return error;
		if (j->patience && now() - start > j->patience) fail("nothing has come of it in %.0f s", j->patience);
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
	return ncclSuccess;
}
