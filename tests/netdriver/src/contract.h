/*
 * The contract cases. All ranks run a case together, on a ring: each is the sender to the rank
 * after it and the receiver from the rank before it (with one rank, from itself).
 */
#ifndef NETDRIVER_CONTRACT_H
#define NETDRIVER_CONTRACT_H

#include "progress.h"

/* What ranks tell each other at once: a handle, or words. */
enum { SYNC_BYTES = CONNECT_HANDLE };

/* A case's run on one rank. */
struct trial {
	struct job *job;
	struct comm comm; /* context and device of its connections; no threads, no slots */
	const char *name;
	int syncs, wanted_syncs;
	bool failed;
	char why[SYNC_BYTES - 4]; /* what failed, or what is worth telling */
	uint64_t deadline;
	uint64_t sequence; /* part of the keys of its messages */
};

struct contract_case {
	const char *name;
	void (*run)(struct trial *trial);
	int syncs;     /* calls of trial_sync and pair_open; a failed case makes up for them */
	int min_api;   /* older versions cannot do it */
};

/* trial_fail notes why, once. trial_tell notes something to print with PASS. */
void trial_fail(struct trial *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void trial_tell(struct trial *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* expect notes a failure and is false when the condition does not hold. */
#define expect(t, condition, ...) ((condition) || (trial_fail(t, __VA_ARGS__), false))

/* expect_ok: the call returned ncclSuccess. */
bool expect_ok(struct trial *t, ncclResult_t result, const char *call);

/* trial_patience starts a new deadline; trial_late: it has passed. */
void trial_patience(struct trial *t);
bool trial_late(struct trial *t);
void trial_pause(int ms);

/* trial_sync: what the rank after this one (next) or before it (previous) gave. */
void trial_sync(struct trial *t, const void *own, void *previous, void *next);

/* A send and a receive connection with a registered region each. */
struct pair {
	struct conn send, recv;
	struct region send_region, recv_region;
	void *send_mhandle, *recv_mhandle;
};

/* pair_open takes one sync. It leaves the pair empty if it fails; the others do nothing then. */
bool pair_open(struct trial *t, struct pair *p, int listen_dev, int connect_dev, size_t room);
/* pair_connect polls connect and accept on handles gathered before. */
bool pair_connect(struct trial *t, struct pair *p, int connect_dev);
bool pair_register(struct trial *t, struct pair *p, size_t room);
void pair_deregister(struct trial *t, struct pair *p);
void pair_close(struct trial *t, struct pair *p);

/* pair_flush: the bytes of receives that are complete are visible to the GPU when it returns; it does nothing for host memory. False
 * and a failure if not. */
bool pair_flush(struct trial *t, struct pair *p, int n, void **data, int *sizes);

/* What to exchange: groups of messages, the same for every rank. */
enum { SCRIPT_MESSAGES = 512 };

struct script_message {
	size_t size, extra; /* room behind it */
	int tag, group;     /* groups count up from 0 */
	int order;          /* when it is sent, within its group */
};

struct script {
	int n;
	struct script_message messages[SCRIPT_MESSAGES];
	bool optional, no_sizes;
	int depth; /* 0: as deep as can be */
};

/* exchange carries a script over the pair and checks all of it; false and a failure if not. */
bool exchange(struct trial *t, struct pair *p, const struct script *script);

/* exchange_some: a few messages of several sizes, to see that a pair works. */
bool exchange_some(struct trial *t, struct pair *p);

extern const struct contract_case setup_cases[], data_cases[], end_cases[], gone_cases[], process_cases[], tuner_cases[];

#endif
