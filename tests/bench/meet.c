#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

enum { MEET_SECONDS = 20 };

static int sock = -1;

/* Finds the address of HOST:PORT. */
static struct addrinfo *resolve(const char *meet)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
	const char *colon = strrchr(meet, ':');
	char host[256];
	int err;

	if (!colon || (size_t)(colon - meet) >= sizeof host)
		die("--meet %s: want HOST:PORT", meet);
	memcpy(host, meet, (size_t)(colon - meet));
	host[colon - meet] = 0;
	if ((err = getaddrinfo(host, colon + 1, &hints, &found)))
		die("--meet %s: %s", meet, gai_strerror(err));
	return found;
}

static int wait_for_peer(const char *meet, const struct addrinfo *a)
{
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, got;

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s, a->ai_addr, a->ai_addrlen) || listen(s, 1))
		die("--meet %s: %s", meet, strerror(errno));
	alarm(MEET_SECONDS);
	got = accept4(s, NULL, NULL, SOCK_CLOEXEC);
	alarm(0);
	close(s);
	return got;
}

static int dial(const char *meet, const struct addrinfo *a)
{
	uint64_t until = now_ns() + MEET_SECONDS * 1000000000ull;

	for (;;) {
		int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (connect(s, a->ai_addr, a->ai_addrlen) == 0)
			return s;
		close(s);
		if (now_ns() > until)
			die("--meet %s: nobody there after %d s", meet, MEET_SECONDS);
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
}

void meet_open(const char *meet, int rank)
{
	struct addrinfo *a = resolve(meet);
	int one = 1;

	sock = rank == 0 ? wait_for_peer(meet, a) : dial(meet, a);
	if (sock < 0)
		die("--meet %s: %s", meet, strerror(errno));
	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	freeaddrinfo(a);
}

void meet_exchange(const void *own, void *peer, size_t size)
{
	size_t out = 0, in = 0;

	/* Both write first: a part at a time, so that neither fills the socket and waits for the other. */
	while (in < size) {
		size_t part = size - out < 32768 ? size - out : 32768;

		for (size_t end = out + part; out < end;) {
			ssize_t n = send(sock, (const char *)own + out, end - out, MSG_NOSIGNAL);

			if (n <= 0)
				die("the other process is gone");
			out += (size_t)n;
		}
		while (in < out) {
			ssize_t n = read(sock, (char *)peer + in, out - in);

			if (n <= 0)
				die("the other process is gone");
			in += (size_t)n;
		}
	}
}

void meet_barrier(void)
{
	char own = 0, peer;

	meet_exchange(&own, &peer, 1);
}

void meet_give(bool last)
{
	char turn = last ? 'l' : 't';

	if (send(sock, &turn, 1, MSG_NOSIGNAL) != 1)
		die("the other process is gone");
}

bool meet_take(void)
{
	char turn;

	if (read(sock, &turn, 1) != 1)
		die("the other process is gone");
	return turn == 't';
}
