// The collectives: how each is called, and whose data ends up where.
#include <string.h>
#include "rank.h"

static ncclResult_t all_reduce(const struct order *o, const struct group *g, const void *from, void *to) {
	return ncclAllReduce(from, to, o->count, o->type, o->op, g->comm, g->stream);
}

static ncclResult_t all_gather(const struct order *o, const struct group *g, const void *from, void *to) {
	return ncclAllGather(from, to, o->count, o->type, g->comm, g->stream);
}

static ncclResult_t reduce_scatter(const struct order *o, const struct group *g, const void *from, void *to) {
	return ncclReduceScatter(from, to, o->count, o->type, o->op, g->comm, g->stream);
}

static ncclResult_t broadcast(const struct order *o, const struct group *g, const void *from, void *to) {
	return ncclBroadcast(from, to, o->count, o->type, o->root, g->comm, g->stream);
}

static ncclResult_t reduce(const struct order *o, const struct group *g, const void *from, void *to) {
	return ncclReduce(from, to, o->count, o->type, o->op, o->root, g->comm, g->stream);
}

// send_recv passes data to the next rank.
static ncclResult_t send_recv(const struct order *o, const struct group *g, const void *from, void *to) {
	NCCL(ncclGroupStart());
	NCCL(ncclSend(from, o->count, o->type, (g->rank + 1) % g->ranks, g->comm, g->stream));
	NCCL(ncclRecv(to, o->count, o->type, (g->rank + g->ranks - 1) % g->ranks, g->comm, g->stream));
	return ncclGroupEnd();
}

// send_across passes data half the way round: on a ring of cables to a rank that shares none with this one.
static ncclResult_t send_across(const struct order *o, const struct group *g, const void *from, void *to) {
	NCCL(ncclGroupStart());
	NCCL(ncclSend(from, o->count, o->type, (g->rank + g->ranks / 2) % g->ranks, g->comm, g->stream));
	NCCL(ncclRecv(to, o->count, o->type, (g->rank + g->ranks - g->ranks / 2) % g->ranks, g->comm, g->stream));
	return ncclGroupEnd();
}

static ncclResult_t all_to_all(const struct order *o, const struct group *g, const void *from, void *to) {
	size_t bytes = o->count * type_bytes(o->type);
	NCCL(ncclGroupStart());
	for (int r = 0; r < g->ranks; r++) {
		NCCL(ncclSend((const char *)from + (size_t)r * bytes, o->count, o->type, r, g->comm, g->stream));
		NCCL(ncclRecv((char *)to + (size_t)r * bytes, o->count, o->type, r, g->comm, g->stream));
	}
	return ncclGroupEnd();
}

// broadcasts is one of every rank, in a group.
static ncclResult_t broadcasts(const struct order *o, const struct group *g, const void *from, void *to) {
	size_t bytes = o->count * type_bytes(o->type);
	NCCL(ncclGroupStart());
	for (int r = 0; r < g->ranks; r++) NCCL(ncclBroadcast(from, (char *)to + (size_t)r * bytes, o->count, o->type, r, g->comm, g->stream));
	return ncclGroupEnd();
}

// What source says for the collectives that reduce: the element, of all ranks.

static int same(const struct order *o, const struct group *g, size_t i, size_t *element) {
	(void)o, (void)g;
	*element = i;
	return 0;
}

static int scattered(const struct order *o, const struct group *g, size_t i, size_t *element) {
	*element = (size_t)g->rank * o->count + i;
	return 0;
}

static int at_root(const struct order *o, const struct group *g, size_t i, size_t *element) {
	*element = i;
	return g->rank == o->root ? 0 : -1;
}

// And for the others: whose.

static int gathered(const struct order *o, const struct group *g, size_t i, size_t *element) {
	(void)g;
	*element = i % o->count;
	return (int)(i / o->count);
}

static int of_root(const struct order *o, const struct group *g, size_t i, size_t *element) {
	(void)g;
	*element = i;
	return o->root;
}

static int of_previous(const struct order *o, const struct group *g, size_t i, size_t *element) {
	(void)o;
	*element = i;
	return (g->rank + g->ranks - 1) % g->ranks;
}

static int of_across(const struct order *o, const struct group *g, size_t i, size_t *element) {
	(void)o;
	*element = i;
	return (g->rank + g->ranks - g->ranks / 2) % g->ranks;
}

static int exchanged(const struct order *o, const struct group *g, size_t i, size_t *element) {
	*element = (size_t)g->rank * o->count + i % o->count;
	return (int)(i / o->count);
}

static const struct collective collectives[] = {
	{"allreduce", false, false, true, all_reduce, same},
	{"allgather", false, true, false, all_gather, gathered},
	{"reducescatter", true, false, true, reduce_scatter, scattered},
	{"broadcast", false, false, false, broadcast, of_root},
	{"reduce", false, false, true, reduce, at_root},
	{"sendrecv", false, false, false, send_recv, of_previous},
	{"sendacross", false, false, false, send_across, of_across},
	{"alltoall", true, true, false, all_to_all, exchanged},
	{"broadcasts", false, true, false, broadcasts, gathered},
};

const struct collective *collective_named(const char *name) {
	for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++)
		if (strcmp(collectives[i].name, name) == 0) return &collectives[i];
	fail("%s is no collective; allreduce, allgather, reducescatter, broadcast, reduce, sendrecv, sendacross, alltoall and broadcasts are", name);
}
