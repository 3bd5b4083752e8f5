// A launch: the works that NCCL's host half has written down, by channel and batch.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernel.h"
#include "../gpu/gpu.h"

enum { WORKS = 1024 };

// A block is what a block of threads does on a GPU: the batches of one channel.
struct block {
	const struct args *args;
	struct channel *channel;
	int number;     // the channel's
	int batch;      // the one to read next, -1 after the last
	const struct function *function;
	enum work_type type;
	char *works[WORKS];
	int count, done; // of works
	struct bcast_work *bcasts;
	struct strand *strands;
	int strand_count, strand_room;
};

static size_t work_size(enum work_type type) {
	switch (type) {
	case WORK_P2P: return sizeof(struct p2p_work);
	case WORK_COLL: return sizeof(struct coll_work);
	case WORK_BCAST: return sizeof(struct bcast_work);
	default: gpu_panic("NCCL uses registered buffers, which are not emulated: set NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0");
	}
}

static char *work_at(const struct args *a, uint32_t offset) {
	return a->storage == STORED_IN_ARGS ? (char *)a + offset : a->works + (offset & a->mask);
}

// read_batch notes the works of the next batch and of those that extend it.
static void read_batch(struct block *b) {
	const struct batch *batches = (const struct batch *)(b->args + 1), *batch;
	b->count = b->done = 0;
	for (bool more = true; more;) {
		batch = &batches[b->batch];
		size_t size = work_size(batch->type);
		uint32_t end = batch->offset;
		for (int i = 0; i < 64; i++) {
			if (!(batch->bits >> i & 1)) continue;
			if (b->count == WORKS) gpu_panic("a batch of more than %d works", WORKS);
			b->works[b->count++] = work_at(b->args, batch->offset + (uint32_t)(i * (int)size));
			end = batch->offset + (uint32_t)((i + 1) * (int)size);
		}
#if LAYOUT_2_22
		if (b->args->storage == STORED_IN_QUEUE) ((uint32_t *)gpu_reach(b->args->comm->consumed))[b->number] = end;
#else
		(void)end;
#endif
		more = batch->extends;
		if (more || batch->jump) b->batch += batch->jump;
	}
	b->function = function_of(batch->function);
	b->type = batch->type;
	if (!batch->jump) b->batch = -1;
	char name[64];
	enum algorithm a = b->function->algorithm;
	if (b->function->protocol == LL128 || (a != TREE && a != RING && a != PAT))
		gpu_panic("%s is not emulated: set NCCL_ALGO and NCCL_PROTO", function_text(b->function, name, sizeof name));
}

static struct strand *room(struct block *b) {
	if (b->strand_count + STRANDS > b->strand_room) {
		b->strand_room = 2 * b->strand_room + STRANDS;
		b->strands = realloc(b->strands, (size_t)b->strand_room * sizeof *b->strands);
	}
	return b->strands + b->strand_count;
}

// show says how a collective is done, once: what NCCL logs of it differs by version, and this is what it did.
static void show(const struct block *b, const struct coll_work *w) {
	char name[64];
	if (b->number == (int)w->first && getenv("SHOW_KERNELS")) {
		printf("kernel %s channels=%d\n", function_text(b->function, name, sizeof name), w->last - w->first + 1);
		fflush(stdout);
	}
}

// begin makes the strands of what can run now: of a collective that one, of sends and receives and grouped broadcasts all.
static void begin(struct block *b) {
	const struct comm *comm = b->args->comm;
	switch (b->type) {
	case WORK_P2P:
		for (; b->done < b->count; b->done++) {
			struct strand *s = room(b);
			b->strand_count += p2p_strands(s, (struct p2p_work *)(void *)b->works[b->done], comm, b->channel, b->number);
		}
		break;
	case WORK_BCAST:
		b->bcasts = realloc(b->bcasts, (size_t)b->count * sizeof *b->bcasts);
		for (; b->done < b->count; b->done++) memcpy(&b->bcasts[b->done], b->works[b->done], sizeof *b->bcasts);
		b->strand_count = bcasts_strands(room(b), b->function, b->bcasts, b->count, comm, b->channel);
		break;
	default: {
		struct coll_work *w = (struct coll_work *)(void *)b->works[b->done++];
		show(b, w);
		b->strand_count = coll_strands(room(b), b->function, w, comm, b->channel, b->number);
	}
	}
}

static enum progress advance(struct block *b) {
	enum progress progress = IDLE;
	for (int i = 0; i < b->strand_count;) {
		enum progress p = strand_advance(&b->strands[i]);
		if (p != IDLE) progress = MOVED;
		if (p == FINISHED) b->strands[i] = b->strands[--b->strand_count];
		else i++;
	}
	while (b->strand_count == 0) {
		if (b->done == b->count) {
			if (b->batch < 0) return FINISHED;
			read_batch(b);
		}
		begin(b);
		progress = MOVED;
	}
	return progress;
}

// rest gives the processor away, and after a while of nothing more than that.
static void rest(unsigned idle) {
	enum { SPINS = 2000 };
	if (idle < SPINS) {
		sched_yield();
		return;
	}
	nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static void run(void *data) {
	const struct args *a = data;
	struct channel *channels = ((struct comm_and_channels *)(void *)a->comm)->channels;
	int count = 0;
	struct block *blocks = calloc((size_t)__builtin_popcountll(a->channels), sizeof *blocks);
	for (int c = 0; c < CHANNELS; c++)
		if (a->channels >> c & 1) {
			blocks[count] = (struct block){.args = a, .channel = &channels[c], .number = c, .batch = count};
			count++;
		}
	int left = count;
	for (unsigned idle = 0; left && !*(volatile uint32_t *)gpu_reach((const void *)a->comm->abort);) {
		bool moved = false;
		for (int i = 0; i < left;) {
			enum progress p = advance(&blocks[i]);
			if (p != IDLE) moved = true;
			if (p != FINISHED) {
				i++;
				continue;
			}
			struct block finished = blocks[i];
			blocks[i] = blocks[--left];
			blocks[left] = finished;
		}
		if (moved) idle = 0;
		else rest(idle++);
	}
	for (int i = 0; i < count; i++) {
		free(blocks[i].strands);
		free(blocks[i].bcasts);
	}
	free(blocks);
}

CUresult kernel_launch(cudaStream_t stream, const void *args, size_t size) {
	if (size < sizeof(struct args)) gpu_panic("a kernel with %zu bytes of arguments is none of NCCL's", size);
	struct args *copy = aligned_alloc(16, (size + 15) & ~(size_t)15);
	memcpy(copy, args, size);
	copy->comm = gpu_reach(copy->comm);
	copy->works = gpu_reach(copy->works);
	stream_run(stream, run, copy);
	return cudaSuccess;
}
