/*
 * The limit of TCP lanes: the same messages over plain sockets, one a connection, without a grant
 * or a header. Sends and receives do not block and go from and into the buffers of the caller.
 * A connection that goes the other way than the one before it shares its socket: a ping-pong then
 * has a socket, as usual, and answers carry the acknowledgements.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"

struct message {
	char *data;
	size_t left;
};

struct half {
	bool sending;
	int fd;
	uint64_t posted, done;
	struct message queue[MAX_DEPTH];
};

static struct sockaddr_in own;

/* The address of the interface that --device names. */
void net_init(const struct options *o)
{
	struct ifaddrs *all, *a;

	if (!o->device)
		die("--device INTERFACE is missing");
	if (getifaddrs(&all))
		die("getifaddrs: %s", strerror(errno));
	for (a = all; a; a = a->ifa_next)
		if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET && strcmp(a->ifa_name, o->device) == 0)
			memcpy(&own, a->ifa_addr, sizeof own);
	freeifaddrs(all);
	if (!own.sin_family)
		die("--device %s: no such interface, or it has no IPv4 address", o->device);
}

/* A socket that is bound to the interface's address. */
static int bound(void)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (s < 0 || setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) || bind(s, (const struct sockaddr *)&own, sizeof own))
		die("%s: %s", inet_ntoa(own.sin_addr), strerror(errno));
	return s;
}

static bool shares(const struct conn *conns, int i) { return i > 0 && conns[i].sending != conns[i - 1].sending; }

void net_connect(struct conn *conns, int n)
{
	struct sockaddr_in *told = calloc((size_t)n, sizeof *told), *peers = calloc((size_t)n, sizeof *peers);
	socklen_t size = sizeof *told;

	for (int i = 0; i < n; i++) {
		struct half *h = conns[i].half = calloc(1, sizeof *h);

		h->sending = conns[i].sending;
		if (shares(conns, i))
			continue;
		h->fd = bound();
		if (!h->sending && (listen(h->fd, 1) || getsockname(h->fd, (struct sockaddr *)&told[i], &size)))
			die("listen: %s", strerror(errno));
	}
	meet_exchange(told, peers, (size_t)n * sizeof *told);
	for (int i = 0; i < n; i++) {
		struct half *h = conns[i].half;

		if (h->sending && !shares(conns, i) && connect(h->fd, (const struct sockaddr *)&peers[i], sizeof peers[i]))
			die("connect to %s: %s", inet_ntoa(peers[i].sin_addr), strerror(errno));
	}
	meet_barrier();
	for (int i = 0; i < n; i++) {
		struct half *h = conns[i].half;
		int listener = h->fd;

		if (shares(conns, i))
			h->fd = ((struct half *)conns[i - 1].half)->fd;
		if (h->sending || shares(conns, i))
			continue;
		h->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (h->fd < 0)
			die("accept: %s", strerror(errno));
		close(listener);
	}
	free(told);
	free(peers);
}

void net_register(struct conn *c, void *data, size_t size) { (void)c, (void)data, (void)size; }

/* Moves the oldest message as far as it goes. */
static bool move(struct half *h)
{
	struct message *m = &h->queue[h->done % MAX_DEPTH];
	ssize_t n = h->sending ? send(h->fd, m->data, m->left, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(h->fd, m->data, m->left, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0)
		die("%s: %s", h->sending ? "send" : "receive", n ? strerror(errno) : "the other process is gone");
	m->data += n;
	m->left -= (size_t)n;
	if (m->left == 0)
		h->done++;
	return m->left == 0;
}

static bool post(struct half *h, void *data, size_t size, uint64_t *request)
{
	if (h->posted - h->done == MAX_DEPTH)
		return false;
	h->queue[h->posted % MAX_DEPTH] = (struct message){data, size};
	*request = h->posted++;
	return true;
}

bool net_isend(struct conn *c, void *data, size_t size, uint64_t *request)
{
	struct half *h = c->half;

	if (!post(h, data, size, request))
		return false;
	if (h->posted - h->done == 1)
		move(h);
	return true;
}

bool net_irecv(struct conn *c, void *data, size_t size, uint64_t *request) { return post(c->half, data, size, request); }

bool net_test(struct conn *c, uint64_t request)
{
	struct half *h = c->half;

	while (h->done <= request && move(h))
		;
	return h->done > request;
}

void net_close(struct conn *conns, int n)
{
	meet_barrier();
	for (int i = 0; i < n; i++)
		if (!shares(conns, i))
			close(((struct half *)conns[i].half)->fd);
	meet_barrier();
}

size_t net_beside(void) { return sizeof(struct half); }
