/* --spawn: starts all ranks on this machine, meeting on the loopback interface. */
#ifndef NETDRIVER_SPAWN_H
#define NETDRIVER_SPAWN_H

#include "options.h"

/* spawn_ranks runs argv again for each rank and returns the status for the process to end with. */
int spawn_ranks(const struct options *options, int argc, char **argv);

#endif
