/*
 * A network plugin to test the driver with: correct, simple, over loopback TCP, without a thread.
 * A connection is a socket; a message is a header and its bytes; everything moves inside test.
 * SELFPLUGIN_FAULT makes it break one rule of NCCL's contract (see fault.h).
 */
#include "end.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DEVICES = 2, PENDING_CALLS = 3 };

struct handle {
	uint32_t magic, port;
	uint32_t calls; /* of connect so far; the connector's */
	int32_t fd;
};

enum { MAGIC = 0x73656c66 };

ncclDebugLogger_t logger;
static int inits;
bool forked;
static pthread_mutex_t fd_mutex = PTHREAD_MUTEX_INITIALIZER;
static bool fds[65536];
static struct end *closed; /* ends stay until the library goes, so that late calls find out */

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

__attribute__((destructor)) static void unloaded(void)
{
	for (struct end *end = closed, *next; end; end = next) {
		next = end->next_closed;
		free(end);
	}
	closed = NULL;
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

int self_inits(void)
{
	return inits;
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

/* SELFPLUGIN_GPU has "cuda" and "dmabuf" where a GPU's memory is taken in these ways. */
static int gpu_pointers(void)
{
	const char *list = getenv("SELFPLUGIN_GPU");

	return list ? (strstr(list, "cuda") ? NCCL_PTR_CUDA : 0) | (strstr(list, "dmabuf") ? NCCL_PTR_DMABUF : 0) : 0;
}

ncclResult_t self_properties(int dev, struct self_props *props)
{
	static char *const names[DEVICES] = {"self0", "self1"};

	GUARD();
	if (dev < 0 || dev >= DEVICES)
		return ncclInvalidArgument;
	props->name = fault("name-moves") ? strdup(names[dev]) : fault("name-twice") ? names[0] : names[dev];
	props->guid = 0x5e1f0000u + (uint64_t)dev;
	props->pointers = NCCL_PTR_HOST | gpu_pointers();
	if (fault("ptr-changes"))
		props->pointers ^= NCCL_PTR_CUDA;
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
	if (GONE(listener))
		return ncclInvalidArgument;
	if (fault("accept-blocks"))
		poll(&(struct pollfd){.fd = listener->fd, .events = POLLIN}, 1, 300);
	fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		*recvComm = new_end(fd, false);
	else if (errno != EAGAIN && errno != ECONNABORTED)
		return ncclSystemError;
	return ncclSuccess;
}

static void free_mr(struct mr *mr)
{
	if (mr->map)
		munmap(mr->map, mr->map_size);
	free(mr);
}

ncclResult_t self_close(void *comm)
{
	struct end *end = comm;

	GUARD();
	if (GONE(end))
		return fault(end ? "close-twice" : "close-null") ? ncclInvalidArgument : ncclSuccess;
	drop(end->fd);
	for (struct mr *mr = end->mrs, *next; mr; mr = next) {
		next = mr->next;
		free_mr(mr);
	}
	for (int i = 0; i < REQUESTS; i++)
		free(end->requests[i].copy);
	free(end->last);
	memset(end->requests, 0, sizeof end->requests);
	memset(end->flushes, 0, sizeof end->flushes);
	end->nheld = 0;
	end->mrs = NULL;
	pthread_mutex_lock(&fd_mutex);
	end->closed = true;
	end->next_closed = closed;
	closed = end;
	pthread_mutex_unlock(&fd_mutex);
	return ncclSuccess;
}

/* Memory. */

bool is_device(const struct mr *mr)
{
	return mr->bytes != mr->base;
}

static ncclResult_t add_mr(struct end *end, struct mr own, void **mhandle)
{
	struct mr *mr = malloc(sizeof *mr);

	*mr = own;
	if (is_device(mr) && fault("gpu-touch"))
		mr->bytes[0] = *mr->base;
	pthread_mutex_lock(&end->mutex);
	mr->next = end->mrs;
	end->mrs = mr;
	pthread_mutex_unlock(&end->mutex);
	*mhandle = mr;
	return ncclSuccess;
}

/* A GPU's memory is the one of tests/fakecuda, which says where it can be reached. */
void *self_reach(const void *data, size_t size)
{
	void *(*alias)(const void *at, size_t length), *found = dlsym(RTLD_DEFAULT, "fakecuda_alias");

	memcpy(&alias, &found, sizeof alias);
	return alias ? alias(data, size) : NULL;
}

ncclResult_t self_reg(void *comm, void *data, size_t size, int type, void **mhandle)
{
	struct end *end = comm;
	void *bytes = data;

	GUARD();
	*mhandle = NULL;
	if (GONE(end))
		return ncclInvalidArgument;
	if (type == NCCL_PTR_CUDA && gpu_pointers() & NCCL_PTR_CUDA)
		bytes = self_reach(data, size);
	else if (type != NCCL_PTR_HOST && !(type == NCCL_PTR_CUDA && fault("reg-any")))
		bytes = NULL;
	return bytes ? add_mr(end, (struct mr){.base = data, .size = size, .bytes = bytes}, mhandle) : ncclInvalidArgument;
}

ncclResult_t self_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), skip = offset % page;
	struct mr mr = {.base = data, .size = size, .map_size = skip + size};
	off_t start = lseek(fd, 0, SEEK_CUR); /* where the DMA-BUF begins in its memfd */
	struct end *end = comm;

	GUARD();
	*mhandle = NULL;
	if (GONE(end) || type != NCCL_PTR_CUDA || !(gpu_pointers() & NCCL_PTR_DMABUF) || fcntl(fd, F_GET_SEALS) < 0)
		return ncclInvalidArgument;
	mr.map = mmap(NULL, mr.map_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, start + (off_t)(offset - skip));
	if (mr.map == MAP_FAILED)
		return ncclSystemError;
	mr.bytes = (unsigned char *)mr.map + (fault("dmabuf-offset") ? 0 : skip);
	return add_mr(end, mr, mhandle);
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
	if (!mr || GONE(end))
		return fault("dereg-null") ? ncclInvalidArgument : ncclSuccess;
	pthread_mutex_lock(&end->mutex);
	if (in_use(end, mr)) { /* nothing may touch the memory from here on: the connection ends */
		if (fault("dereg-late") || fault("dereg-gone"))
			fault_touch_later(mr->base, fault("dereg-gone"));
		end->error = ncclInternalError;
		shutdown(end->fd, SHUT_RDWR);
	}
	for (struct mr **at = &end->mrs; *at; at = &(*at)->next)
		if (*at == mr) {
			*at = mr->next;
			forget_held(end, mr);
			free_mr(mr);
			break;
		}
	pthread_mutex_unlock(&end->mutex);
	return ncclSuccess;
}
