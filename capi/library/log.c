#include "library.h"

#include <stdio.h>

static ncclmeshLogHandler_t handler = ncclmeshDefaultLogHandler;

__attribute__((visibility("default"))) void ncclmeshDefaultLogHandler(ncclmeshLogLevel level, const char *text)
{
	static const char *const names[] = { "", "warning: ", "", "debug: " };

	fprintf(stderr, "ncclmesh: %s%s\n", level >= ncclmeshLogWarn && level <= ncclmeshLogDebug ? names[level] : "", text);
}

void mesh_set_log_handler(ncclmeshLogHandler_t f)
{
	__atomic_store_n(&handler, f, __ATOMIC_RELEASE);
}

void mesh_log(int level, char *text)
{
	__atomic_load_n(&handler, __ATOMIC_ACQUIRE)((ncclmeshLogLevel)level, text);
}
