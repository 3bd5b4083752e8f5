#include "fault.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static char fault_name[32];
static long fault_at;
static atomic_long chances;

void fault_loaded(void)
{
	const char *value = getenv("SELFPLUGIN_FAULT");
	size_t length = value ? strcspn(value, ":") : 0;

	if (!length || length >= sizeof fault_name)
		return;
	memcpy(fault_name, value, length);
	fault_at = value[length] ? atol(value + length + 1) : 0;
}

bool fault_named(const char *name)
{
	return *fault_name && strcmp(name, fault_name) == 0;
}

bool fault(const char *name)
{
	if (!fault_named(name))
		return false;
	return !fault_at || atomic_fetch_add(&chances, 1) + 1 == fault_at;
}

const char *fault_early_env(const char *name)
{
	static char environment[65536];
	size_t length = strlen(name);
	int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
	ssize_t size = read(fd, environment, sizeof environment - 1);

	close(fd);
	for (char *at = environment; at < environment + size; at += strlen(at) + 1)
		if (!strncmp(at, name, length) && at[length] == '=')
			return at + length + 1;
	return NULL;
}

static void *touch(void *memory)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	while (read(zero, memory, 1) == 1) /* the kernel refuses where a store of this thread's would end the process */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	close(zero);
	return NULL;
}

static void *touch_gone(void *memory)
{
	char *page = (char *)((uintptr_t)memory & -(uintptr_t)sysconf(_SC_PAGESIZE));

	while (msync(page, 1, MS_ASYNC) == 0)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	*(volatile char *)memory = 1;
	return NULL;
}

void fault_touch_later(void *memory, bool gone)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, gone ? touch_gone : touch, memory) == 0)
		pthread_detach(thread);
}

uint64_t fault_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
