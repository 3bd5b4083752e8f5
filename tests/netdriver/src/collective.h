/*
 * The collectives: who sends which part of which buffer when. Data go through the protocol
 * buffers, copied in and out by the progress thread where NCCL's kernels would do it.
 */
#ifndef NETDRIVER_COLLECTIVE_H
#define NETDRIVER_COLLECTIVE_H

#include "progress.h"

/* What one communicator of one rank works on. Counts are of 8-byte words. */
struct buffers {
	const struct collective *collective;
	struct comm *comm;
	uint64_t sequence; /* of this operation: part of its contents' keys */
	size_t count;      /* allreduce: of the vector; otherwise: of a rank's or pair's block */
	size_t in_words, out_words;
	uint64_t *in, *out;
	int repeat; /* times the operation is done, one after the other */
	struct stream *streams;
	int nstreams;
};

struct collective {
	const char *name, *redop;
	size_t (*count)(int nranks, size_t size);
	size_t (*size)(int nranks, size_t count); /* as nccl-tests counts it */
	size_t (*in_words)(int nranks, size_t count);
	size_t (*out_words)(int nranks, size_t count);
	void (*fill)(struct buffers *b);
	void (*start)(struct buffers *b); /* sets up the streams, 2 * nranks at most */
	size_t (*check)(struct buffers *b);
	double (*time_share)(int nranks); /* the part of the time that a row shows */
	double (*bus_factor)(int nranks);
};

extern const struct collective allreduce, allgather, alltoall, sendrecv, tree, doubling;

/* Chunks: a block of words is cut into messages of the option's size, an empty one into one. */
uint64_t chunks_of(const struct buffers *b, size_t words);
size_t chunk_range(const struct buffers *b, size_t words, uint64_t chunk, size_t *at);

/* chunk_send copies words into the message's slot; chunk_recv posts a whole slot. */
void chunk_send(struct stream *s, uint64_t index, struct message *m, const uint64_t *from, size_t words);
bool chunk_recv(struct stream *s, uint64_t index, struct message *m);

/* chunk_take checks what arrived - its size, the canaries around it - and adds or copies it. */
void chunk_take(struct stream *s, uint64_t index, struct message *m, uint64_t *to, size_t words, bool add);

/* What every rank has of a vector or block of its own, and what becomes of them. */
void vector_fill(struct buffers *b);
size_t sum_check(struct buffers *b);
size_t gather_check(struct buffers *b);
size_t block_count(int nranks, size_t size);
size_t vector_size(int nranks, size_t count);
size_t blocks_size(int nranks, size_t count);
size_t one_block(int nranks, size_t count);
size_t all_blocks(int nranks, size_t count);
double allreduce_bus(int nranks);
double allgather_bus(int nranks);

size_t identity_count(int nranks, size_t size);
double one(int nranks);

#endif
