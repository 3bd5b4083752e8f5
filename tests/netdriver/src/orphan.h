/* Children, as of a data loader, that keep what a fork keeps and outlive their parent. */
#ifndef NETDRIVER_ORPHAN_H
#define NETDRIVER_ORPHAN_H

#include "comm.h"

/* orphans_leave forks n of them where the rank is the one that will die. They end by themselves, later. */
void orphans_leave(struct job *job, int n);

#endif
