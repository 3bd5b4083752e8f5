/*
 * What a progress thread does: it carries streams, each the messages of one connection in
 * order. It posts as many as the depth allows, retries what the plugin could not take yet,
 * tests what is outstanding, and never waits for one connection while another could move.
 */
#ifndef NETDRIVER_PROGRESS_H
#define NETDRIVER_PROGRESS_H

#include "comm.h"
#include "profiler.h"

/* A message, or with n > 1 a group of receives that share a request. */
struct message {
	int n;
	unsigned char *data[NCCL_NET_MAX_RECVS];
	size_t sizes[NCCL_NET_MAX_RECVS]; /* to send; or the capacities */
	int tags[NCCL_NET_MAX_RECVS];
	void *mhandle;
	bool optional; /* of a receive: its completion says nothing about the data */
	bool no_sizes; /* test gets NULL for sizes, as from NCCL's bootstrap */
	int got[NCCL_NET_MAX_RECVS];  /* received, as test reported it */
	struct step *steps[NCCL_NET_MAX_RECVS]; /* to the profiler; or NULL */

	/* For the stream's owner. */
	uint64_t keys[NCCL_NET_MAX_RECVS]; /* of the contents */
	size_t lengths[NCCL_NET_MAX_RECVS];
	size_t at, span; /* in its region */
	uint64_t group, since;
};

struct stream {
	struct conn *conn;
	uint64_t total;
	int depth;
	bool any_order; /* test what is outstanding in random order, instead of the oldest */
	struct random random;

	/* prepare describes message index; false: not yet. finish takes it; false: ask again. */
	bool (*prepare)(struct stream *stream, uint64_t index, struct message *message);
	bool (*finish)(struct stream *stream, uint64_t index, struct message *message);
	void *owner;

	/* Kept by progress_run. */
	uint64_t posted, finished;
	ncclResult_t result;
	const char *failed_call;
	struct flight {
		void *request; /* NULL once done */
		bool used;
		void *flush; /* of device memory that has been received */
		uint64_t index;
		struct message message;
	} flights[NCCL_NET_MAX_REQUESTS];
	struct message waiting; /* prepared, not taken by the plugin yet */
	bool has_waiting;
};

/* An operation of one communicator. */
struct operation {
	struct comm *comm;
	struct stream *streams;
	int n;
	int beside; /* operations right behind it that the same thread carries: the channels of a communicator */
	bool ok;
	/* With step, a failing stream does not end the operation: step is asked each time around
	 * whether to go on. */
	bool (*step)(struct operation *operation);
	void *owner;
};

/* progress_run carries an operation to its end; it runs on the progress thread. */
void progress_run(void *operation);

/* operations_run runs one operation per communicator, all at once, and dies if any failed. */
void operations_run(struct job *job, struct operation *operations);

/* progress_idle gives the core away when nothing moved: ranks may be more than cores. */
void progress_idle(unsigned *idle);

/* stream_slot: the message's slot in the protocol buffer. */
unsigned char *stream_slot(const struct stream *stream, uint64_t index);

#endif
