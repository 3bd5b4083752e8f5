/*
 * How ranks meet, as in NCCL's bootstrap: rank 0 listens, the others dial it and stay connected;
 * every exchange is an all-gather through it. Losing a rank ends an exchange, never hangs it.
 */
#ifndef NETDRIVER_RENDEZVOUS_H
#define NETDRIVER_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>

struct rendezvous {
	int rank, nranks;
	int *peers; /* on rank 0 a socket for each other rank; elsewhere peers[0] only */
};

/* rendezvous_listen binds HOST:PORT (port 0: any) and returns the socket and the port. */
int rendezvous_listen(const char *address, int *port);

/* rendezvous_open meets the others within timeout seconds. listener: a bound socket, or -1. */
void rendezvous_open(struct rendezvous *rv, int rank, int nranks, const char *address, int listener,
                     double timeout);

/* rendezvous_gather: rank r's size bytes from own arrive at all + r * size on every rank. */
void rendezvous_gather(struct rendezvous *rv, const void *own, void *all, size_t size);
void rendezvous_barrier(struct rendezvous *rv);

/* rendezvous_max and _sum combine a number over all ranks. */
double rendezvous_max(struct rendezvous *rv, double own);
long rendezvous_sum(struct rendezvous *rv, long own);

/* rendezvous_from_root: rank 0's value on every rank. */
long rendezvous_from_root(struct rendezvous *rv, long own);

/* rendezvous_lost waits up to wait_ms for a rank to vanish; true when one has. Rank 0 tells the
 * others, so no exchange may follow, but rendezvous_survivors. */
bool rendezvous_lost(struct rendezvous *rv, int wait_ms);

/* rendezvous_survivors waits, once after rendezvous_lost was true, until all ranks that live have called it.
 * It returns false at once if rank 0, through which they meet, is the one that is lost. */
bool rendezvous_survivors(struct rendezvous *rv);

/* rendezvous_gone looks, without waiting or telling, whether a rank has closed its connection. */
bool rendezvous_gone(struct rendezvous *rv);

/* rendezvous_forget closes the sockets in a forked child. */
void rendezvous_forget(struct rendezvous *rv);
void rendezvous_close(struct rendezvous *rv);

#endif
