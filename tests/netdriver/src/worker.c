#include "worker.h"

#include "log.h"

static void *loop(void *arg)
{
	struct worker *w = arg;

	pthread_mutex_lock(&w->mutex);
	for (;;) {
		while (!w->run && !w->quit)
			pthread_cond_wait(&w->changed, &w->mutex);
		if (!w->run)
			break;
		pthread_mutex_unlock(&w->mutex);
		w->run(w->arg);
		pthread_mutex_lock(&w->mutex);
		w->run = NULL;
		pthread_cond_broadcast(&w->changed);
	}
	pthread_mutex_unlock(&w->mutex);
	return NULL;
}

void worker_start(struct worker *w, const char *name)
{
	*w = (struct worker){.quit = false};
	pthread_mutex_init(&w->mutex, NULL);
	pthread_cond_init(&w->changed, NULL);
	if (pthread_create(&w->thread, NULL, loop, w))
		die("cannot start a thread");
	pthread_setname_np(w->thread, name);
}

void worker_give(struct worker *w, void (*run)(void *), void *arg)
{
	worker_wait(w);
	pthread_mutex_lock(&w->mutex);
	w->run = run;
	w->arg = arg;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->mutex);
}

void worker_wait(struct worker *w)
{
	pthread_mutex_lock(&w->mutex);
	while (w->run)
		pthread_cond_wait(&w->changed, &w->mutex);
	pthread_mutex_unlock(&w->mutex);
}

void worker_stop(struct worker *w)
{
	worker_wait(w);
	pthread_mutex_lock(&w->mutex);
	w->quit = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->mutex);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->mutex);
}
