#include "rendezvous.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

struct hello {
	uint32_t magic, rank, nranks;
};

static const uint32_t hello_magic = 0x6e647276;

static struct addrinfo *resolve(const char *address, bool passive)
{
	char host[256];
	const char *colon = strrchr(address, ':');
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = passive ? AI_PASSIVE : 0}, *list;
	size_t length;
	int e;

	if (!colon || (length = (size_t)(colon - address)) >= sizeof host)
		die("--rendezvous %s: HOST:PORT is wanted", address);
	memcpy(host, address, length);
	host[length] = 0;
	if (length > 2 && host[0] == '[' && host[length - 1] == ']') { /* [v6]:port */
		memmove(host, host + 1, length);
		host[length - 2] = 0;
	}
	if ((e = getaddrinfo(*host ? host : NULL, colon + 1, &hints, &list)))
		die("--rendezvous %s: %s", address, gai_strerror(e));
	return list;
}

int rendezvous_listen(const char *address, int *port)
{
	struct addrinfo *list = resolve(address, true);
	struct sockaddr_storage bound;
	socklen_t length = sizeof bound;
	int one = 1, s = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (s < 0 || bind(s, list->ai_addr, list->ai_addrlen) || listen(s, 128))
		die("--rendezvous %s: cannot listen there: %s", address, strerror(errno));
	freeaddrinfo(list);
	getsockname(s, (struct sockaddr *)&bound, &length);
	*port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
	                                          : ((struct sockaddr_in *)&bound)->sin_port);
	return s;
}

/* move sends or receives all of it; false at the end of the stream. */
static bool move(int s, void *data, size_t size, bool sending)
{
	char *at = data;

	while (size) {
		ssize_t n = sending ? send(s, at, size, MSG_NOSIGNAL) : recv(s, at, size, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		size -= (size_t)n;
	}
	return true;
}

static void give(struct rendezvous *rv, int peer, const void *data, size_t size)
{
	if (!move(rv->peers[peer], (void *)data, size, true))
		die("rank %d left the rendezvous", peer);
}

static void take(struct rendezvous *rv, int peer, void *data, size_t size)
{
	if (!move(rv->peers[peer], data, size, false))
		die("rank %d left the rendezvous", peer);
}

static void no_delay(int s)
{
	int one = 1;

	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void accept_all(struct rendezvous *rv, int listener, double timeout)
{
	uint64_t deadline = now_ns() + (uint64_t)(timeout * 1e9);

	for (int met = 1; met < rv->nranks;) {
		struct pollfd p = {.fd = listener, .events = POLLIN};
		struct timeval patience = {.tv_sec = 5};
		struct hello hello;
		int s;

		if (now_ns() > deadline)
			die("only %d of %d ranks came to the rendezvous within %g s", met, rv->nranks, timeout);
		if (poll(&p, 1, 200) <= 0 || (s = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
			continue;
		setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
		if (!move(s, &hello, sizeof hello, false) || hello.magic != hello_magic ||
		    hello.nranks != (uint32_t)rv->nranks || hello.rank < 1 ||
		    hello.rank >= (uint32_t)rv->nranks || rv->peers[hello.rank] >= 0) {
			say("somebody who is not one of the %d ranks knocked at the rendezvous", rv->nranks);
			close(s);
			continue;
		}
		patience.tv_sec = 0;
		setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
		no_delay(s);
		rv->peers[hello.rank] = s;
		met++;
	}
	close(listener);
}

static void dial(struct rendezvous *rv, const char *address, double timeout)
{
	struct hello hello = {hello_magic, (uint32_t)rv->rank, (uint32_t)rv->nranks};
	uint64_t deadline = now_ns() + (uint64_t)(timeout * 1e9);
	struct addrinfo *list = resolve(address, false);

	for (;;) {
		int s = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (s >= 0 && !connect(s, list->ai_addr, list->ai_addrlen)) {
			no_delay(s);
			rv->peers[0] = s;
			break;
		}
		if (now_ns() > deadline)
			die("rank 0 did not answer at %s within %g s: %s", address, timeout, strerror(errno));
		close(s);
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	}
	freeaddrinfo(list);
	give(rv, 0, &hello, sizeof hello);
}

void rendezvous_open(struct rendezvous *rv, int rank, int nranks, const char *address, int listener,
                     double timeout)
{
	int port;

	*rv = (struct rendezvous){.rank = rank, .nranks = nranks};
	rv->peers = malloc((size_t)nranks * sizeof *rv->peers);
	for (int r = 0; r < nranks; r++)
		rv->peers[r] = -1;
	if (nranks == 1)
		return;
	if (rank == 0)
		accept_all(rv, listener >= 0 ? listener : rendezvous_listen(address, &port), timeout);
	else
		dial(rv, address, timeout);
	rendezvous_barrier(rv);
}

void rendezvous_gather(struct rendezvous *rv, const void *own, void *all, size_t size)
{
	size_t total = size * (size_t)rv->nranks;

	memcpy((char *)all + (size_t)rv->rank * size, own, size);
	if (rv->rank) {
		give(rv, 0, own, size);
		take(rv, 0, all, total);
		return;
	}
	for (int r = 1; r < rv->nranks; r++)
		take(rv, r, (char *)all + (size_t)r * size, size);
	for (int r = 1; r < rv->nranks; r++)
		give(rv, r, all, total);
}

void rendezvous_barrier(struct rendezvous *rv)
{
	rendezvous_sum(rv, 0);
}

double rendezvous_max(struct rendezvous *rv, double own)
{
	double all[rv->nranks];

	rendezvous_gather(rv, &own, all, sizeof own);
	for (int r = 0; r < rv->nranks; r++)
		if (all[r] > own)
			own = all[r];
	return own;
}

long rendezvous_sum(struct rendezvous *rv, long own)
{
	long all[rv->nranks], sum = 0;

	rendezvous_gather(rv, &own, all, sizeof own);
	for (int r = 0; r < rv->nranks; r++)
		sum += all[r];
	return sum;
}

long rendezvous_from_root(struct rendezvous *rv, long own)
{
	return rendezvous_sum(rv, rv->rank ? 0 : own);
}

static bool closed(int s)
{
	char byte;
	ssize_t n;

	if (s < 0)
		return false;
	n = recv(s, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

bool rendezvous_gone(struct rendezvous *rv)
{
	for (int r = 0; r < rv->nranks; r++)
		if (closed(rv->peers[r]))
			return true;
	return false;
}

bool rendezvous_lost(struct rendezvous *rv, int wait_ms)
{
	struct pollfd polls[rv->nranks];
	char byte = 0;

	for (int r = 0; r < rv->nranks; r++)
		polls[r] = (struct pollfd){.fd = rv->peers[r], .events = POLLIN | POLLRDHUP};
	if (poll(polls, (nfds_t)rv->nranks, wait_ms) <= 0)
		return false;
	for (int r = 1; rv->rank == 0 && r < rv->nranks; r++)
		send(rv->peers[r], &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
	return true;
}

bool rendezvous_survivors(struct rendezvous *rv)
{
	char bytes[2] = { 0 }; /* of rank 0: that a rank is lost, and that all others have come */

	if (rv->rank)
		return move(rv->peers[0], bytes, 1, true) && move(rv->peers[0], bytes, sizeof bytes, false);
	for (int r = 1; r < rv->nranks; r++)
		move(rv->peers[r], bytes, 1, false);
	for (int r = 1; r < rv->nranks; r++)
		move(rv->peers[r], bytes, 1, true);
	return true;
}

void rendezvous_forget(struct rendezvous *rv)
{
	for (int r = 0; r < rv->nranks; r++) {
		if (rv->peers[r] >= 0)
			close(rv->peers[r]);
		rv->peers[r] = -1;
	}
}

void rendezvous_close(struct rendezvous *rv)
{
	rendezvous_barrier(rv);
	rendezvous_forget(rv);
	free(rv->peers);
}
