/* Functions that the plugin needs from the process that loads it. */
#define _GNU_SOURCE /* dladdr */
#include "plugin.h"

#include <dlfcn.h>
#include <sys/prctl.h>

/*
 * Go's monitor thread (sysmon) checks every 20 microseconds for threads that are in C, as NCCL's are between two calls, and
 * takes the P of each such thread, which the thread's next call has to acquire again. That costs an eighth of the time of a
 * message if both threads share a processor. No timer of the plugin needs that precision: the timers of Go's threads may be
 * late by a millisecond. A thread inherits its timer slack from the thread that starts it. The thread that loads the library
 * starts Go's first thread between these two constructors; the first one raises the slack and the second one restores it.
 */
#define GO_TIMER_SLACK 1000000 /* ns */

static int own_slack;

__attribute__((constructor(101))) static void let_timers_be_late(void)
{
	own_slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	if (own_slack > 0 && own_slack < GO_TIMER_SLACK)
		prctl(PR_SET_TIMERSLACK, GO_TIMER_SLACK, 0, 0, 0);
}

__attribute__((constructor)) static void keep_own_timers(void)
{
	if (own_slack > 0)
		prctl(PR_SET_TIMERSLACK, own_slack, 0, 0, 0);
}

/*
 * When a process ends, the kernel resets each socket that has unread input, and discards output that
 * it has not sent, although NCCL's sends are done. The plugin therefore flushes its connections first.
 */
__attribute__((destructor)) static void flush_before_exit(void)
{
	if (mesh_is_owner())
		meshSettle();
}

/* The logger is a variadic function, which Go cannot call. */
void mesh_log(ncclDebugLogger_t logger, int level, unsigned long flags, char *file, int line, char *text)
{
	logger(level, flags, file, line, "%s", text);
}

static uintptr_t base_of(uintptr_t address)
{
	Dl_info info;

	return dladdr((void *)address, &info) ? (uintptr_t)info.dli_fbase : 0;
}

/*
 * The version of the NCCL that the logger belongs to, or 0 if that NCCL does not
 * export ncclGetVersion. A process may have loaded more than one NCCL.
 */
int mesh_nccl_version(ncclDebugLogger_t logger)
{
	uintptr_t address = (uintptr_t)logger, get;
	void *library = NULL;
	int version = 0;
	Dl_info info;

	if (logger == NULL || !dladdr((void *)address, &info))
		return 0;
	if (info.dli_fname)
		library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		library = dlopen(NULL, RTLD_LAZY); /* the program itself */
	get = library ? (uintptr_t)dlsym(library, "ncclGetVersion") : 0;
	if (get != 0 && base_of(get) == (uintptr_t)info.dli_fbase)
		((ncclResult_t(*)(int *))get)(&version);
	if (library)
		dlclose(library);
	return version;
}
