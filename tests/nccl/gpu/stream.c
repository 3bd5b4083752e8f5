// Streams and events. Stream NULL is one of its own, which waits for no other.
#include <pthread.h>
#include <stdlib.h>
#include "gpu.h"

struct task {
	void (*f)(void *);
	void *data;
	struct task *next;
};

struct CUstream_st {
	pthread_mutex_t mu;
	pthread_cond_t work, idle;
	struct task *first, **last;
	bool busy, closing;
	unsigned long long id;
	pthread_t thread;
};

static pthread_mutex_t streams_mu = PTHREAD_MUTEX_INITIALIZER;
static int streams;
static unsigned long long ids;

int stream_count(void) {
	pthread_mutex_lock(&streams_mu);
	int n = streams;
	pthread_mutex_unlock(&streams_mu);
	return n;
}

static void *loop(void *arg) {
	cudaStream_t s = arg;
	pthread_mutex_lock(&s->mu);
	for (;;) {
		while (!s->first && !s->closing) pthread_cond_wait(&s->work, &s->mu);
		struct task *t = s->first;
		if (!t) break;
		if (!(s->first = t->next)) s->last = &s->first;
		s->busy = true;
		pthread_mutex_unlock(&s->mu);
		t->f(t->data);
		free(t->data);
		free(t);
		pthread_mutex_lock(&s->mu);
		s->busy = false;
		if (!s->first) pthread_cond_broadcast(&s->idle);
	}
	pthread_mutex_unlock(&s->mu);
	return NULL;
}

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
	(void)flags;
	cudaStream_t s = calloc(1, sizeof *s);
	s->last = &s->first;
	pthread_mutex_init(&s->mu, NULL);
	pthread_cond_init(&s->work, NULL);
	pthread_cond_init(&s->idle, NULL);
	pthread_mutex_lock(&streams_mu);
	s->id = ++ids;
	streams++;
	pthread_mutex_unlock(&streams_mu);
	if (pthread_create(&s->thread, NULL, loop, s)) gpu_panic("no thread for a stream");
	*stream = s;
	return cudaSuccess;
}

static cudaStream_t null_stream;

static void make_null_stream(void) {
	cudaStreamCreateWithFlags(&null_stream, 0);
	pthread_mutex_lock(&streams_mu);
	streams--; // it is nobody's
	pthread_mutex_unlock(&streams_mu);
}

static cudaStream_t real(cudaStream_t s) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if ((uintptr_t)s > 2) return s;
	pthread_once(&once, make_null_stream); // 0, and the names 1 and 2 for the default streams
	return null_stream;
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t s) {
	pthread_mutex_lock(&s->mu);
	s->closing = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->mu);
	pthread_join(s->thread, NULL);
	pthread_mutex_destroy(&s->mu);
	pthread_cond_destroy(&s->work);
	pthread_cond_destroy(&s->idle);
	free(s);
	pthread_mutex_lock(&streams_mu);
	streams--;
	pthread_mutex_unlock(&streams_mu);
	return cudaSuccess;
}

void stream_run(cudaStream_t stream, void (*f)(void *), void *data) {
	cudaStream_t s = real(stream);
	struct task *t = malloc(sizeof *t);
	*t = (struct task){f, data, NULL};
	pthread_mutex_lock(&s->mu);
	*s->last = t;
	s->last = &t->next;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&s->mu);
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
	cudaStream_t s = real(stream);
	pthread_mutex_lock(&s->mu);
	while (s->first || s->busy) pthread_cond_wait(&s->idle, &s->mu);
	pthread_mutex_unlock(&s->mu);
	return cudaSuccess;
}

EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) {
	cudaStream_t s = real(stream);
	pthread_mutex_lock(&s->mu);
	bool done = !s->first && !s->busy;
	pthread_mutex_unlock(&s->mu);
	return done ? cudaSuccess : cudaErrorNotReady;
}

EXPORT cudaError_t cudaDeviceSynchronize(void) {
	return cudaStreamSynchronize(NULL);
}

EXPORT cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long *id) {
	*id = real(stream)->id;
	return cudaSuccess;
}

struct host_function {
	void (*f)(void *);
	void *data;
};

static void call(void *data) {
	struct host_function *h = data;
	h->f(h->data);
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*f)(void *), void *data) {
	struct host_function *h = malloc(sizeof *h);
	*h = (struct host_function){f, data};
	stream_run(stream, call, h);
	return cudaSuccess;
}

// A record is one point in a stream's work. Whoever waits for an event waits for the record it had then: a later one, of
// another stream perhaps, says nothing of it.
struct record {
	int references;
	bool reached;
};

struct CUevent_st {
	struct record *last;
};

static pthread_mutex_t records_mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t records_reached = PTHREAD_COND_INITIALIZER;

static struct record *take(struct record *r) {
	r->references++;
	return r;
}

static void give_back(struct record *r) {
	if (--r->references == 0) free(r);
}

// new_record is of one reference. The first of an event is of nothing, and reached.
static struct record *new_record(bool reached) {
	struct record *r = malloc(sizeof *r);
	*r = (struct record){1, reached};
	return r;
}

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
	(void)flags;
	*event = malloc(sizeof **event);
	(*event)->last = new_record(true);
	return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event) {
	return cudaEventCreateWithFlags(event, 0);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e) {
	pthread_mutex_lock(&records_mu);
	give_back(e->last);
	pthread_mutex_unlock(&records_mu);
	free(e);
	return cudaSuccess;
}

static void reach(void *data) {
	struct record **r = data;
	pthread_mutex_lock(&records_mu);
	(*r)->reached = true;
	pthread_cond_broadcast(&records_reached);
	give_back(*r);
	pthread_mutex_unlock(&records_mu);
}

static void await(void *data) {
	struct record **r = data;
	pthread_mutex_lock(&records_mu);
	while (!(*r)->reached) pthread_cond_wait(&records_reached, &records_mu);
	give_back(*r);
	pthread_mutex_unlock(&records_mu);
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
	struct record **r = malloc(sizeof *r);
	pthread_mutex_lock(&records_mu);
	give_back(e->last);
	e->last = new_record(false);
	*r = take(e->last);
	pthread_mutex_unlock(&records_mu);
	stream_run(stream, reach, r);
	return cudaSuccess;
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned flags) {
	(void)flags;
	struct record **r = malloc(sizeof *r);
	pthread_mutex_lock(&records_mu);
	*r = take(e->last);
	pthread_mutex_unlock(&records_mu);
	stream_run(stream, await, r);
	return cudaSuccess;
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t e) {
	pthread_mutex_lock(&records_mu);
	bool reached = e->last->reached;
	pthread_mutex_unlock(&records_mu);
	return reached ? cudaSuccess : cudaErrorNotReady;
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t e) {
	struct record **r = malloc(sizeof *r);
	pthread_mutex_lock(&records_mu);
	*r = take(e->last);
	pthread_mutex_unlock(&records_mu);
	await(r);
	free(r);
	return cudaSuccess;
}
