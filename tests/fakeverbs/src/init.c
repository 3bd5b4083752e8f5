/* How a process finds its fabric: FAKEVERBS_DIR names the directory of the shared state, FAKEVERBS_NODE the node it is on. */
#include "fake.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct fake fake = {.node = NONE, .proc = NONE, .objects = PTHREAD_MUTEX_INITIALIZER};

static pthread_mutex_t start = PTHREAD_MUTEX_INITIALIZER;

void fake_say(const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n = snprintf(line, sizeof(line), "fakeverbs: ");

	va_start(ap, fmt);
	vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s\n", line);
}

/* The peers copy into this process: allow it where Yama would not. */
__attribute__((constructor)) static void allow_peers(void)
{
#ifdef PR_SET_PTRACER
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
}

__attribute__((destructor)) static void leave(void)
{
	if (shm && fake.proc >= 0 && shm->proc[fake.proc].pid == getpid())
		proc_release(fake.proc);
}

/* A forked child shares nothing of the parent's objects: it enters the fabric anew when it opens a device. */
static void forked(void)
{
	pthread_mutex_init(&start, NULL);
	pthread_mutex_init(&fake.objects, NULL);
	fake.proc = NONE;
	fake.epoch++;
	fake.contexts = NULL;
	memset(fake.qp, 0, sizeof(fake.qp));
	memset(fake.cq, 0, sizeof(fake.cq));
	work_reset();
}

static int attach(void)
{
	const char *dir = getenv("FAKEVERBS_DIR"), *node = getenv("FAKEVERBS_NODE");

	if (fake.node >= 0)
		return 0;
	if (!dir || !*dir)
		return ENOSYS; /* as on a machine without RDMA */
	if (strlen(dir) >= sizeof(fake.dir))
		return ENAMETOOLONG;
	strcpy(fake.dir, dir);
	if (shm_attach(dir)) {
		int err = errno;

		fake_say("FAKEVERBS_DIR=%s: %s; make the fabric first with 'fakenet init -d %s topology'", dir,
			 err == EPROTO ? "state of another version" : strerror(err), dir);
		return err;
	}
	if (!node || !*node) {
		if (shm->nodes != 1) {
			fake_say("FAKEVERBS_NODE is not set, and %s has %u nodes", dir, shm->nodes);
			return ENODEV;
		}
		node = shm->node[0].name;
	}
	fake.node = node_find(node);
	if (fake.node < 0) {
		fake_say("FAKEVERBS_NODE=%s: %s has no such node", node, dir);
		return ENODEV;
	}
	pthread_atfork(NULL, NULL, forked);
	return 0;
}

int fake_attach(void)
{
	int err;

	pthread_mutex_lock(&start);
	err = attach();
	pthread_mutex_unlock(&start);
	return err;
}

int fake_enter(void)
{
	int err;

	pthread_mutex_lock(&start);
	err = attach();
	if (!err && fake.proc < 0) {
		fake.proc = proc_register(fake.node);
		err = fake.proc < 0 ? errno : service_start();
	}
	pthread_mutex_unlock(&start);
	return err;
}
