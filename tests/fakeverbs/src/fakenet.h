/* The parts of the commands fakenet and fakefault. */
#ifndef FAKEVERBS_FAKENET_H
#define FAKEVERBS_FAKENET_H

#include "shm.h"

#include <sys/types.h>

void die(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* topology.c: fills the state from a file; false with a message that names file and line. */
bool topology_read(struct shm *s, const char *file, char *err, size_t n);

/* tree.c: a directory in the shape of /sys for each node. */
void tree_make(const char *dir);
void tree_port(const char *dir, int port); /* the files that change with the port's state */

/* net.c: namespaces. */
void net_enter(void);                     /* once, before the rest: the right to make networks */
void net_make(const char *dir);           /* a network for each node, and the cables between them */
void net_join(int node, const char *dir); /* the calling process becomes one of the node's */
void net_follow(void);                    /* sets interfaces up and down as the cables are */
const char *mgmt_address(int node);       /* empty without a management network */

#endif
