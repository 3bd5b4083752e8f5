/*
 * A network plugin to test the driver with: correct, simple, over loopback TCP, without a thread.
 * A connection is a socket; a message is a header and its bytes; everything moves inside test.
 * SELFPLUGIN_FAULT makes it break one rule of NCCL's contract (see fault.h).
 */
#include "selfplugin.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fault.h"

enum { REQUESTS = NCCL_NET_MAX_REQUESTS * NCCL_NET_MAX_RECVS, DEVICES = 2, PENDING_CALLS = 3 };

struct header {
	uint64_t size;
	int64_t tag;
};

struct mr {
	struct mr *next;
	unsigned char *base;
	size_t size;
};

struct part {
	unsigned char *data;
	size_t size, got; /* to send, or capacity; and what arrived */
	int tag;
	struct mr *mr;
	bool matched, done;
};

struct end;

struct request {
	struct end *end;
	bool used, started;
	int n;
	struct part parts[NCCL_NET_MAX_RECVS];
	unsigned char *copy; /* a fault sends this instead */
};

/* An end of a connection, or a listener. */
struct end {
	int fd;
	bool sending;
	ncclResult_t error;
	uint64_t failed_ns;
	pthread_mutex_t mutex;
	struct mr *mrs;
	struct request requests[REQUESTS]; /* ring: [tail, head) are in use or done out of order */
	uint64_t head, tail, next;         /* next: the one whose bytes move */
	struct header header;              /* being read or written, */
	size_t moved;                      /* header and payload bytes moved so far */
	struct part *target;
	unsigned char *last;               /* for the fault that repeats a message */
	size_t last_size;
};

struct handle {
	uint32_t magic, port;
	uint32_t calls; /* of connect so far; the connector's */
	int32_t fd;
};

enum { MAGIC = 0x73656c66 };

static ncclDebugLogger_t logger;
static int inits;
static bool forked;
static pthread_mutex_t fd_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool fds[65536];

#define GUARD() \
	if (forked && !fault("fork-open")) \
	return ncclSystemError
#define WARN(...) logger(NCCL_LOG_WARN, ~0ul, __FILE__, __LINE__, __VA_ARGS__)

/* In a forked child nothing of the plugin is left open, so that its peers notice its parent's end. */
static void in_child(void)
{
	forked = true;
	for (int fd = 0; fd < 65536; fd++)
		if (fds[fd] && !fault("fork-fds"))
			close(fd);
}

__attribute__((constructor)) static void loaded(void)
{
	static bool once;

	fault_loaded();
	if (!once)
		pthread_atfork(NULL, NULL, in_child);
	once = true;
}

static int keep(int fd)
{
	pthread_mutex_lock(&fd_mutex);
	if (fd >= 0 && fd < 65536)
		fds[fd] = true;
	pthread_mutex_unlock(&fd_mutex);
	return fd;
}

static void drop(int fd)
{
	pthread_mutex_lock(&fd_mutex);
	fds[fd] = false;
	if (!fault("leak"))
		close(fd);
	pthread_mutex_unlock(&fd_mutex);
}

/* Setting up. */

static bool check_env(const char *name, long most)
{
	const char *value = fault("env-early") ? fault_early_env(name) : getenv(name);
	char *end;
	long x;

	if (!value || !*value)
		return true;
	x = strtol(value, &end, 10);
	if (!*end && x >= 0 && x <= most)
		return true;
	WARN("NET/Self : %s=%s: a number from 0 to %ld is accepted", name, value, most);
	return false;
}

ncclResult_t self_init(ncclDebugLogger_t log)
{
	GUARD();
	logger = log;
	if (!check_env("NCCL_IB_TIMEOUT", 31) || !check_env("NCCL_MESH_DEBUG", 1))
		return ncclInvalidArgument;
	if (inits++ && fault("reinit"))
		return ncclInternalError;
	log(NCCL_LOG_INFO, 1, __FILE__, __LINE__, "NET/Self : loopback TCP");
	return ncclSuccess;
}

ncclResult_t self_finalize(void *ctx)
{
	GUARD();
	return !ctx && fault("finalize-null") ? ncclInternalError : ncclSuccess;
}

ncclResult_t self_devices(int *ndev)
{
	GUARD();
	*ndev = DEVICES - fault("devices-flap");
	return ncclSuccess;
}

ncclResult_t self_properties(int dev, struct self_props *props)
{
	static char *const names[DEVICES] = {"self0", "self1"};

	GUARD();
	if (dev < 0 || dev >= DEVICES)
		return ncclInvalidArgument;
	props->name = fault("name-moves") ? strdup(names[dev]) : fault("name-twice") ? names[0] : names[dev];
	props->guid = 0x5e1f0000u + (uint64_t)dev;
	props->latency_unset = fault("props-unset");
	return ncclSuccess;
}

static struct end *new_end(int fd, bool sending)
{
	struct end *end = calloc(1, sizeof *end);
	int one = 1;

	end->fd = keep(fd);
	end->sending = sending;
	pthread_mutex_init(&end->mutex, NULL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return end;
}

ncclResult_t self_listen(int dev, void *opaque, void **listenComm)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	struct handle handle = {.magic = MAGIC, .fd = -1};
	int fd;

	GUARD();
	(void)dev;
	*listenComm = NULL;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) || listen(fd, 128) ||
	    getsockname(fd, (struct sockaddr *)&address, &length)) {
		WARN("NET/Self : listen: %s", strerror(errno));
		return ncclSystemError;
	}
	handle.port = ntohs(address.sin_port);
	memset(opaque, 0, NCCL_NET_HANDLE_MAXSIZE + fault("handle-long"));
	memcpy(opaque, &handle, sizeof handle);
	*listenComm = new_end(fd, false);
	return ncclSuccess;
}

ncclResult_t self_connect(int dev, void *opaque, void **sendComm)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct handle handle;

	GUARD();
	(void)dev;
	memcpy(&handle, opaque, sizeof handle);
	if (handle.magic != MAGIC)
		return ncclInvalidArgument;
	if (fault("connect-blocks"))
		usleep(300000);
	if (handle.calls++ < PENDING_CALLS) {
		memcpy(opaque, &handle, sizeof handle);
		if (!fault("connect-unset"))
			*sendComm = NULL;
		return fault("connect-in-progress") ? ncclInProgress : ncclSuccess;
	}
	*sendComm = NULL;
	address.sin_port = htons((uint16_t)handle.port);
	if (handle.fd < 0)
		handle.fd = keep(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (connect(handle.fd, (struct sockaddr *)&address, sizeof address) && errno != EISCONN) {
		memcpy(opaque, &handle, sizeof handle);
		if (errno == EINPROGRESS || errno == EALREADY)
			return ncclSuccess;
		WARN("NET/Self : connect to port %u: %s", handle.port, strerror(errno));
		drop(handle.fd);
		return ncclRemoteError;
	}
	*sendComm = new_end(handle.fd, true);
	return ncclSuccess;
}

ncclResult_t self_accept(void *listenComm, void **recvComm)
{
	struct end *listener = listenComm;
	int fd;

	GUARD();
	*recvComm = NULL;
	if (fault("accept-blocks"))
		poll(&(struct pollfd){.fd = listener->fd, .events = POLLIN}, 1, 300);
	fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		*recvComm = new_end(fd, false);
	else if (errno != EAGAIN && errno != ECONNABORTED)
		return ncclSystemError;
	return ncclSuccess;
}

ncclResult_t self_close(void *comm)
{
	struct end *end = comm;

	GUARD();
	drop(end->fd);
	for (struct mr *mr = end->mrs, *next; mr; mr = next) {
		next = mr->next;
		free(mr);
	}
	for (int i = 0; i < REQUESTS; i++)
		free(end->requests[i].copy);
	free(end->last);
	pthread_mutex_destroy(&end->mutex);
	free(end);
	return ncclSuccess;
}

/* Memory. */

ncclResult_t self_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct end *end = comm;
	struct mr *mr;

	GUARD();
	*mhandle = NULL;
	if (type != NCCL_PTR_HOST)
		return ncclInvalidArgument;
	mr = calloc(1, sizeof *mr);
	mr->base = data;
	mr->size = size;
	pthread_mutex_lock(&end->mutex);
	mr->next = end->mrs;
	end->mrs = mr;
	pthread_mutex_unlock(&end->mutex);
	*mhandle = mr;
	return ncclSuccess;
}

static bool in_use(const struct end *end, const struct mr *mr)
{
	for (uint64_t i = end->tail; i < end->head; i++) {
		const struct request *r = &end->requests[i % REQUESTS];

		for (int p = 0; r->used && p < r->n; p++)
			if (r->parts[p].mr == mr && !r->parts[p].done)
				return true;
	}
	return false;
}

ncclResult_t self_dereg(void *comm, void *mhandle)
{
	struct end *end = comm;
	struct mr *mr = mhandle;

	GUARD();
	if (!mr)
		return fault("dereg-null") ? ncclInvalidArgument : ncclSuccess;
	pthread_mutex_lock(&end->mutex);
	if (in_use(end, mr)) { /* nothing may touch the memory from here on: the connection ends */
		if (fault("dereg-late"))
			fault_touch_later(mr->base);
		end->error = ncclInternalError;
		shutdown(end->fd, SHUT_RDWR);
	}
	for (struct mr **at = &end->mrs; *at; at = &(*at)->next)
		if (*at == mr) {
			*at = mr->next;
			free(mr);
			break;
		}
	pthread_mutex_unlock(&end->mutex);
	return ncclSuccess;
}

/* Data. */

static ncclResult_t lost(struct end *end, const char *what)
{
	if (fault("remote-silent"))
		return ncclSuccess;
	if (!end->failed_ns)
		end->failed_ns = fault_now();
	if (fault("remote-slow") && fault_now() - end->failed_ns < 3000000000u)
		return ncclSuccess;
	if (!end->error)
		logger(NCCL_LOG_INFO, 16, __FILE__, __LINE__, "NET/Self : the peer is gone (%s)", what);
	return end->error = fault("remote-as-system") ? ncclSystemError : ncclRemoteError;
}

static struct request *take_request(struct end *end)
{
	uint64_t most = fault("few-requests") ? 4 : REQUESTS;

	while (end->tail < end->head && !end->requests[end->tail % REQUESTS].used)
		end->tail++;
	if (end->head - end->tail >= most)
		return NULL;
	return &end->requests[end->head++ % REQUESTS];
}

static struct part part_of(void *data, size_t size, int tag, void *mhandle)
{
	return (struct part){.data = data, .size = size, .tag = tag, .mr = mhandle};
}

static bool outside(const struct part *p)
{
	return !p->mr || p->data < p->mr->base || p->data + p->size > p->mr->base + p->mr->size;
}

/* fault_payload: the bytes that a fault sends instead of the message's. */
static void fault_payload(struct end *end, struct request *r)
{
	struct part *p = &r->parts[0];
	size_t half = p->size / 16 * 8;

	if (p->size < 16)
		return;
	if (fault("truncate")) {
		p->size -= 8;
		return;
	}
	if (fault("corrupt")) {
		r->copy = memcpy(malloc(p->size), p->data, p->size);
		r->copy[p->size / 2] ^= 0x10;
	} else if (fault("shift")) {
		r->copy = malloc(p->size);
		memcpy(r->copy, p->data + 1, p->size - 1);
		r->copy[p->size - 1] = p->data[0];
	} else if (fault("tear")) {
		r->copy = memcpy(malloc(p->size), p->data, p->size);
		memcpy(r->copy + half, r->copy, half);
	} else if (fault_named("duplicate")) {
		if (end->last && end->last_size == p->size && fault("duplicate"))
			r->copy = memcpy(malloc(p->size), end->last, p->size);
		free(end->last);
		end->last = memcpy(malloc(p->size), p->data, end->last_size = p->size);
	}
}

/* move_bytes moves header and payload through the socket; 1 when all have moved, 0 when it would
 * block, -1 when the peer is gone. */
static int move_bytes(struct end *end, unsigned char *payload, size_t size)
{
	static __thread unsigned char sink[65536];

	while (end->moved < sizeof end->header + size) {
		bool head = end->moved < sizeof end->header;
		size_t at = head ? end->moved : end->moved - sizeof end->header;
		size_t left = (head ? sizeof end->header : size) - at;
		unsigned char *data = head ? (unsigned char *)&end->header + at : payload ? payload + at : sink;
		ssize_t n;

		if (!head && !payload && left > sizeof sink)
			left = sizeof sink;
		n = end->sending ? send(end->fd, data, left, MSG_NOSIGNAL) : recv(end->fd, data, left, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n <= 0)
			return -1;
		end->moved += (size_t)n;
	}
	return 1;
}

static ncclResult_t progress_send(struct end *end)
{
	char byte;

	for (; end->next < end->head; end->next++) {
		struct request *r = &end->requests[end->next % REQUESTS];
		struct part *p = &r->parts[0];
		int moved = 1;

		if (!r->started) {
			fault_payload(end, r);
			end->header = (struct header){p->size, p->tag};
			end->moved = 0;
			r->started = true;
		}
		if (!fault("lose"))
			moved = move_bytes(end, r->copy ? r->copy : p->data, p->size);
		if (moved < 0)
			return lost(end, strerror(errno));
		if (!moved)
			break;
		if (p->size && fault("send-scribble"))
			p->data[0] ^= 1;
		p->done = true;
	}
	if (recv(end->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) /* receivers never send */
		return lost(end, "closed");
	return ncclSuccess;
}

/* find_part: within the first group that has one free, the first free part of that tag. */
static struct part *find_part(struct end *end, int64_t tag)
{
	for (uint64_t i = end->tail; i < end->head; i++) {
		struct request *r = &end->requests[i % REQUESTS];
		bool open = false;

		for (int p = 0; r->used && p < r->n; p++) {
			open |= !r->parts[p].matched;
			if (!r->parts[p].matched && (r->parts[p].tag == tag || fault("tags-ignored")))
				return &r->parts[p];
		}
		if (open)
			break;
	}
	return NULL;
}

static void received(struct end *end)
{
	struct part *p = end->target;

	p->got = end->header.size < p->size ? end->header.size : p->size;
	p->done = true;
	if (p->got < p->size && fault("overrun"))
		p->data[p->got] ^= 0xff;
	if (fault("underrun"))
		p->data[-1] ^= 0xff;
	if (p->got && p->got + 8 <= p->size && fault("misplace"))
		memmove(p->data + 8, p->data, p->got);
	if (fault("size-capacity"))
		p->got = p->size;
	end->moved = 0;
	end->target = NULL;
}

static ncclResult_t progress_recv(struct end *end)
{
	for (;;) {
		int moved;

		if (!end->target) {
			moved = move_bytes(end, NULL, 0);
			if (moved < 0)
				return lost(end, "closed");
			if (!moved || !(end->target = find_part(end, end->header.tag)))
				return ncclSuccess;
			end->target->matched = true;
			if (end->header.size <= end->target->size && fault("early"))
				end->target->done = true, end->target->got = end->header.size;
		}
		if (end->header.size > end->target->size) { /* keep what fits, drop the rest */
			moved = move_bytes(end, end->target->data, end->target->size);
			if (moved == 1)
				moved = move_bytes(end, NULL, end->header.size);
		} else {
			moved = move_bytes(end, end->target->data, end->header.size);
		}
		if (moved < 0)
			return lost(end, "closed");
		if (!moved)
			return ncclSuccess;
		received(end);
	}
}

static ncclResult_t progress(struct end *end)
{
	if (end->error)
		return end->error;
	return end->sending ? progress_send(end) : progress_recv(end);
}

/* fault_swap exchanges the contents of this message and an equal one that still waits. */
static void fault_swap(struct end *end)
{
	struct part *a = &end->requests[(end->head - 1) % REQUESTS].parts[0], *b;
	unsigned char *data = a->data;

	if (!fault_named("swap") || end->head - 1 <= end->next)
		return;
	b = &end->requests[(end->head - 2) % REQUESTS].parts[0];
	if (end->requests[(end->head - 2) % REQUESTS].started || b->size != a->size || a->size < 16 ||
	    !fault("swap"))
		return;
	a->data = b->data;
	b->data = data;
}

ncclResult_t self_isend(void *sendComm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	struct end *end = sendComm;
	struct request *r;
	ncclResult_t result;

	GUARD();
	if (fault("request-stale"))
		return ncclSuccess;
	*request = NULL;
	pthread_mutex_lock(&end->mutex);
	result = end->error;
	if (!result && (r = take_request(end))) {
		free(r->copy);
		*r = (struct request){.end = end, .used = true, .n = 1};
		r->parts[0] = part_of(data, size, tag, mhandle);
		if (outside(&r->parts[0]))
			result = ncclInvalidArgument;
		fault_swap(end);
		/* Where contents are to be swapped, messages must have to wait for each other. */
		if (!result && (!fault_named("swap") || end->head % 2 == 0))
			progress(end);
		*request = r;
	} else if (!result && fault("full-error")) {
		result = ncclInternalError;
	}
	pthread_mutex_unlock(&end->mutex);
	return result;
}

ncclResult_t self_irecv(void *recvComm, int n, void **data, size_t *sizes, int *tags, void **mhandles,
                        void **request)
{
	struct end *end = recvComm;
	struct request *r;
	ncclResult_t result;

	GUARD();
	if (*request == (void *)NCCL_NET_OPTIONAL_RECV_COMPLETION && fault("hint-kept"))
		return ncclSuccess;
	*request = NULL;
	if (n < 1 || n > NCCL_NET_MAX_RECVS)
		return ncclInvalidArgument;
	pthread_mutex_lock(&end->mutex);
	result = end->error;
	if (!result && (r = take_request(end))) {
		*r = (struct request){.end = end, .used = true, .n = n};
		for (int i = 0; i < n; i++) {
			r->parts[i] = part_of(data[i], sizes[i], tags[i], mhandles[i]);
			if (outside(&r->parts[i]))
				result = ncclInvalidArgument;
		}
		*request = r;
	} else if (!result && fault("full-error")) {
		result = ncclInternalError;
	}
	pthread_mutex_unlock(&end->mutex);
	return result;
}

ncclResult_t self_iflush(void *recvComm, int n, void **data, int *sizes, void **mhandles, void **request)
{
	GUARD();
	(void)recvComm, (void)n, (void)data, (void)sizes, (void)mhandles;
	*request = NULL;
	return ncclSuccess;
}

ncclResult_t self_test(void *request, int *done, int *sizes)
{
	struct request *r = request;
	struct end *end;
	ncclResult_t result;
	bool all = true;

	GUARD();
	end = r->end;
	pthread_mutex_lock(&end->mutex);
	result = progress(end);
	for (int i = 0; i < r->n; i++)
		all &= r->parts[i].done;
	if (all || !fault("done-unset"))
		*done = all ? 1 + fault("done-two") : 0;
	if (all) {
		result = ncclSuccess; /* whatever has happened to the connection since */
		for (int i = 0; sizes && i < r->n; i++)
			if (!fault("sizes-unset"))
				sizes[i] = (int)(end->sending ? r->parts[i].size : r->parts[i].got);
		if (sizes && fault("sizes-extra"))
			sizes[r->n] = 0;
		r->used = false;
	}
	pthread_mutex_unlock(&end->mutex);
	return result;
}
