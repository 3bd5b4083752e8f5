/*
 * A communicator as NCCL has it: a context of the plugin, a service thread that opens and closes
 * everything and a progress thread that moves data. Every rank has a connection to every rank,
 * itself included, and each connection its protocol buffer: slots for the messages outstanding.
 */
#ifndef NETDRIVER_COMM_H
#define NETDRIVER_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "memory.h"
#include "options.h"
#include "pattern.h"
#include "plugin.h"
#include "rendezvous.h"
#include "worker.h"

struct report;

struct job {
	struct options opt;
	struct net net;
	struct rendezvous rv;
	struct report *report;
	int ndev;
	int max_recvs;
	int inits; /* calls of init so far: versions before 11 are initialised once a process */
	uint64_t sequence; /* operations so far; part of the key of their contents */
	struct comm *comms;
};

/* CONNECT_HANDLE: NCCL keeps integers of its own behind the plugin's 128 bytes. */
enum { CONNECT_HANDLE = 256 };

struct conn {
	struct comm *comm;
	int peer;
	bool sending;
	void *net_comm;
	void *listen_comm;
	unsigned char handle[CONNECT_HANDLE];
	struct region slots;
	size_t stride; /* from a slot to the next */
	void *mhandle;
	void *second_mhandle; /* of the same buffer, as NCCL's protocols register theirs */
};

struct comm {
	struct job *job;
	int index;
	int dev;
	uint64_t id;
	void *ctx;
	struct worker service, progress;
	struct conn *send, *recv; /* one for each rank */
	unsigned char *handles;   /* [listener][connector], as gathered */
};

/* SLOT_GUARD bytes of canary separate slots. */
enum { SLOT_GUARD = 256 };

/* plugin_init, plugin_fini: a context and the devices, as NCCL's init thread does; die on errors. */
void plugin_init(struct job *job, void **ctx, uint64_t id);
void plugin_fini(struct job *job, void *ctx);

void comms_open(struct job *job);
void comms_close(struct job *job);
/* comms_abort closes without a word to the other ranks, whatever is outstanding. */
void comms_abort(struct job *job);

unsigned char *conn_slot(const struct conn *conn, uint64_t message);

/* handle_check: the bytes behind a handle are NCCL's. */
void handle_prepare(unsigned char handle[CONNECT_HANDLE]);
void handle_check(const unsigned char handle[CONNECT_HANDLE], const char *call);

/* check_call dies unless the plugin returned ncclSuccess. */
void check_call(ncclResult_t result, const char *call);

#endif
