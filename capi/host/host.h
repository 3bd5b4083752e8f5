/* The environment of the process, and notice of forks, for the C halves of the libraries. */
#ifndef MESH_HOST_H
#define MESH_HOST_H

#include <stdint.h>

#define MESH_HIDDEN __attribute__((visibility("hidden")))

/* This process is a forked child, which has none of Go's threads: no entry may reach Go. */
extern int mesh_forked MESH_HIDDEN;

/* Returns 1 in the process that loaded the library, and 0 in its children, also those of clone, which calls no handler of forks. */
MESH_HIDDEN int mesh_is_owner(void);

/* Go's table of file descriptors that a forked child closes: see package transport/forkfd. */
MESH_HIDDEN void mesh_fork_table(uintptr_t bitmap, int bits, uintptr_t gate);

/* The i-th NAME=value of the environment, or NULL after the last. */
MESH_HIDDEN char *mesh_environ(int i);

#endif
