/* The kinds of work. Each runs on all ranks at once, over open communicators. */
#ifndef NETDRIVER_WORK_H
#define NETDRIVER_WORK_H

#include <stdbool.h>

#include "comm.h"

/* work_collective runs allreduce, allgather, alltoall or sendrecv over all sizes; false: another. */
bool work_collective(struct job *job, const char *name);
void work_latency(struct job *job);
void work_soak(struct job *job);
void work_storm(struct job *job);
void work_idle(struct job *job);

/* work_over: the file is there until which work goes on. */
bool work_over(const struct job *job);

/* work_die ends every rank's process: one by SIGKILL, the others with their verdict. */
_Noreturn void work_die(struct job *job);

/* work_rma plays NCCL's host RMA and its GIN proxy; work_rmadie ends a rank meanwhile, as work_die does. */
void work_rma(struct job *job);
_Noreturn void work_rmadie(struct job *job);

/* work_rmaorder calls the RMA interface in another order than NCCL's. */
void work_rmaorder(struct job *job);

/* contract_before runs the cases that need a process which has not loaded the plugin yet;
 * work_contract the others. */
void contract_before(struct job *job);
void work_contract(struct job *job);

/* The same for the tuner in the plugin's library. */
void tuner_before(struct job *job);
void work_tuner(struct job *job);

#endif
