/* A named thread that runs one function at a time for somebody else. */
#ifndef NETDRIVER_WORKER_H
#define NETDRIVER_WORKER_H

#include <pthread.h>
#include <stdbool.h>

struct worker {
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	void (*run)(void *);
	void *arg;
	bool quit;
};

void worker_start(struct worker *w, const char *name);
/* worker_give hands it run(arg); worker_wait returns once that has returned. */
void worker_give(struct worker *w, void (*run)(void *), void *arg);
void worker_wait(struct worker *w);
void worker_stop(struct worker *w);

#endif
