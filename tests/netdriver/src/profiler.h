/*
 * NCCL's side of its profiler, as of 2.28: the callback that init is given, and the steps that
 * isend and irecv name a message by. Network events come inside test, before it says that the
 * message is through: one for each part that a path carries, in the description of NCCL's own IB
 * or socket network.
 *
 * NCCL gives both whether or not a profiler listens. With --profile one does, and refuses the
 * events of some messages, as it does when it has no room.
 */
#ifndef NETDRIVER_PROFILER_H
#define NETDRIVER_PROFILER_H

#include <stdbool.h>
#include <stddef.h>

#include "abi.h"

struct step; /* a message, to the profiler */

/* profiler_open: before init; version is of its interface. */
void profiler_open(bool listens, int version);
/* profiler_close says how much was heard, if one listened. */
void profiler_close(void);

ncclResult_t profiler_callback(void **eHandle, int type, void *phandle, int64_t pluginId, void *extData);

/* profiler_in_test: this thread is inside test. */
void profiler_in_test(bool inside);

/* step_begin takes the step of a message to be posted, step_end checks that all was said of it
 * when test has said that it is through; size is -1 where nobody knows. A step may be NULL. */
struct step *step_begin(bool sending);
void step_end(struct step *step, long size);

#endif
