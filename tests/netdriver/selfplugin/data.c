/* Data: isend, irecv, test, and the bytes between them. */
#include "end.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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
	const struct mr *mr = mhandle;
	unsigned char *bytes = mr ? mr->bytes + ((unsigned char *)data - mr->base) : NULL;

	return (struct part){.data = bytes, .size = size, .tag = tag, .mr = mhandle};
}

static bool outside(const struct part *p)
{
	return !p->mr || p->data < p->mr->bytes || p->data + p->size > p->mr->bytes + p->mr->size;
}

/* hold_back: a GPU does not see a byte of the message yet. */
static void hold_back(struct end *end, unsigned char *at)
{
	if (end->nheld == HELD)
		return;
	end->held[end->nheld++] = (struct held){at, *at};
	*at ^= 0xff;
}

/* show makes the bytes of a range visible. */
static void show(struct end *end, const unsigned char *at, size_t size)
{
	for (int i = end->nheld - 1; i >= 0; i--) {
		struct held *h = &end->held[i];

		if (h->at < at || h->at >= at + size)
			continue;
		*h->at = h->byte;
		*h = end->held[--end->nheld];
	}
}

void forget_held(struct end *end, const struct mr *mr)
{
	show(end, mr->bytes, mr->size);
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

/* find_part: the first free part of that tag, of any group. */
static struct part *find_part(struct end *end, int64_t tag, bool *optional)
{
	for (uint64_t i = end->tail; i < end->head; i++) {
		struct request *r = &end->requests[i % REQUESTS];
		bool open = false;

		for (int p = 0; r->used && p < r->n; p++) {
			open |= !r->parts[p].matched;
			if (!r->parts[p].matched && (r->parts[p].tag == tag || fault("tags-ignored")))
				return *optional = r->optional, &r->parts[p];
		}
		if (open && fault("tags-oldest"))
			break;
	}
	return NULL;
}

/* fault_swap exchanges the contents of two messages of the same size, just received. */
static void fault_swap(struct end *end, struct part *now)
{
	struct part *before = end->before;

	end->before = now;
	if (!before || before->got != now->got || now->got < 16 || !fault("swap"))
		return;
	for (size_t i = 0; i < now->got; i++) {
		unsigned char byte = now->data[i];

		now->data[i] = before->data[i];
		before->data[i] = byte;
	}
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
	fault_swap(end, p);
	if (fault("size-capacity"))
		p->got = p->size;
	if (p->got && is_device(p->mr) && !end->optional)
		hold_back(end, p->data);
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
			if (!moved || !(end->target = find_part(end, end->header.tag, &end->optional)))
				return ncclSuccess;
			end->target->matched = true;
			if (end->header.size <= end->target->size && fault("early")) {
				end->target->done = true, end->target->got = end->header.size;
				return ncclSuccess; /* the data is for the next call */
			}
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

ncclResult_t self_isend(void *sendComm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	struct end *end = sendComm;
	struct request *r;
	ncclResult_t result;

	GUARD();
	if (fault("request-stale"))
		return ncclSuccess;
	*request = NULL;
	if (GONE(end))
		return fault("closed-works") ? ncclSuccess : ncclInvalidArgument;
	pthread_mutex_lock(&end->mutex);
	result = end->failed_ns && !fault("end-refuses") ? ncclSuccess : end->error; /* of a peer that has gone test tells */
	if (!result && !fault("isend-idle"))
		progress(end);
	if (!result && (r = take_request(end))) {
		free(r->copy);
		*r = (struct request){.end = end, .used = true, .n = 1};
		r->parts[0] = part_of(data, size, tag, mhandle);
		if (outside(&r->parts[0]))
			result = ncclInvalidArgument;
		if (!result && !fault("isend-idle"))
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
	bool optional = *request == (void *)NCCL_NET_OPTIONAL_RECV_COMPLETION;
	struct end *end = recvComm;
	struct request *r;
	ncclResult_t result;

	GUARD();
	if (optional && fault("hint-kept"))
		return ncclSuccess;
	*request = NULL;
	if (GONE(end) || n < 1 || n > NCCL_NET_MAX_RECVS)
		return ncclInvalidArgument;
	pthread_mutex_lock(&end->mutex);
	result = end->error;
	if (!result && (r = take_request(end))) {
		*r = (struct request){.end = end, .used = true, .optional = optional, .n = n};
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
	struct end *end = recvComm;
	struct request *r;
	int last = n;

	GUARD();
	*request = NULL;
	if (GONE(end))
		return ncclInvalidArgument;
	while (last > 0 && !sizes[last - 1])
		last--;
	if (!last || !is_device(mhandles[last - 1]) || fault("flush-none"))
		return ncclSuccess;
	pthread_mutex_lock(&end->mutex);
	for (r = end->flushes; r < end->flushes + REQUESTS && r->used; r++)
		;
	if (r < end->flushes + REQUESTS) {
		*r = (struct request){.end = end, .used = true, .flush = true, .n = fault("flush-one") ? 1 : n};
		for (int i = 0; i < r->n; i++) {
			r->parts[i] = part_of(data[i], (size_t)sizes[i], 0, mhandles[i]);
			r->parts[i].matched = r->parts[i].done = true;
		}
		*request = r;
	}
	pthread_mutex_unlock(&end->mutex);
	return *request ? ncclSuccess : ncclInternalError;
}

/* test_flush: bytes show at the second call. */
static bool test_flush(struct end *end, struct request *r, int *sizes)
{
	if (sizes || fault("flush-sizes"))
		sizes[0] = 0;
	if (!r->started && !fault("flush-early")) {
		r->started = true;
		return false;
	}
	for (int i = 0; i < r->n && r->started; i++)
		show(end, r->parts[i].data, r->parts[i].size);
	r->used = false;
	return true;
}

ncclResult_t self_test(void *request, int *done, int *sizes)
{
	struct request *r = request;
	struct end *end;
	ncclResult_t result;
	bool all = true;

	GUARD();
	if (!r || !r->end) /* of an end that is closed */
		return ncclInvalidArgument;
	end = r->end;
	pthread_mutex_lock(&end->mutex);
	if (r->flush) {
		*done = test_flush(end, r, sizes);
		pthread_mutex_unlock(&end->mutex);
		return ncclSuccess;
	}
	result = progress(end);
	for (int i = 0; i < r->n; i++)
		all &= r->parts[i].done;
	if (all || !fault("done-unset"))
		*done = all ? 1 + fault("done-two") : 0;
	if (all) {
		result = ncclSuccess; /* whatever has happened to the connection since */
		for (int i = 0; sizes && i < r->n; i++)
			if (end->sending || !fault("sizes-unset")) /* nobody looks at a send's */
				sizes[i] = (int)(end->sending ? r->parts[i].size : r->parts[i].got);
		if (sizes && fault("sizes-extra"))
			sizes[r->n] = 0;
		self_tell(r);
		r->used = false;
		end->before = NULL; /* its owner has looked at it */
	}
	pthread_mutex_unlock(&end->mutex);
	return result;
}
