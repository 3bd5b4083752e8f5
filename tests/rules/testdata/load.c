/*
 * Loads the plugin as NCCL does and takes every version's vtables through what a
 * machine without RDMA allows: init, which fails with a reason, the calls that
 * then must fail too, tuners that keep out, and a forked child. Prints what came back, and the log to
 * standard error.
 *
 *	load PLUGIN NAME=VALUE...	the settings are made just before loading
 */
#include "tuner_abi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *process = "parent";

static void logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char text[4096];
	va_list ap;

	(void)file;
	(void)line;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	fprintf(stderr, "%s %d %lu %s %s\n", process, level, flags, fmt, text);
}

/* How many of a vtable's pointers are NULL: those that NCCL may find so. */
static int nulls(const void *vtable, size_t size)
{
	const void *const *slot = vtable;
	int n = 0;

	for (size_t i = 0; i < size / sizeof(void *); i++)
		n += slot[i] == NULL;
	return n;
}

#define GARBAGE ((void *)0x5a5a5a5a5a5a)

/* A call and what it left in its output, which held garbage. */
static void *out;
#define CALL(name, call)                                                       \
	do {                                                                   \
		int result = call;                                             \
		printf(" " name "=%d,%p", result, out);                        \
		out = GARBAGE;                                                 \
	} while (0)

/* Every entry that all versions have; the arguments are the calls that differ. */
#define TRY(v, INIT, LISTEN, CONNECT, ACCEPT, ISEND, IRECV)                    \
	static void try_v##v(const ncclNet_v##v##_t *net)                      \
	{                                                                      \
		void *ctx = GARBAGE, *data = &ctx, *mhandle = NULL;            \
		int ndev = 77, done = 77, sizes[8] = { 77 }, tag = 0;          \
		int isize = 8, result;                                         \
		size_t size = 8;                                               \
		char handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };                  \
		ncclNetProperties_##v##_props props;                           \
                                                                               \
		(void)ctx, (void)size;                                         \
		printf("v%d %s nulls=%d", v, net->name, nulls(net, sizeof *net)); \
		printf(" init=%d", (int)(INIT));                               \
		result = net->devices(&ndev);                                  \
		printf(" devices=%d,%d", result, ndev);                        \
		printf(" properties=%d", (int)net->getProperties(0, &props));  \
		out = GARBAGE;                                                 \
		CALL("listen", LISTEN);                                        \
		CALL("connect", CONNECT);                                      \
		CALL("accept", ACCEPT);                                        \
		CALL("regMr", net->regMr(GARBAGE, data, 8, NCCL_PTR_HOST, &out)); \
		printf(" deregMr=%d", (int)net->deregMr(GARBAGE, GARBAGE));    \
		CALL("isend", ISEND);                                          \
		out = (void *)1;                                               \
		CALL("irecv", IRECV);                                          \
		CALL("iflush", net->iflush(GARBAGE, 1, &data, &isize, &mhandle, &out)); \
		result = net->test(GARBAGE, &done, sizes);                     \
		printf(" test=%d,%d", result, done);                           \
		printf(" close=%d", (int)net->closeSend(GARBAGE));             \
		printf(",%d", (int)net->closeRecv(GARBAGE));                   \
		printf(",%d", (int)net->closeListen(GARBAGE));                 \
		printf(" NULL=%d", (int)net->deregMr(NULL, NULL));             \
		printf(",%d", (int)net->closeSend(NULL));                      \
		printf(",%d", (int)net->closeRecv(NULL));                      \
		printf(",%d\n", (int)net->closeListen(NULL));                  \
	}

typedef ncclNetProperties_v5_t ncclNetProperties_5_props, ncclNetProperties_6_props;
typedef ncclNetProperties_v7_t ncclNetProperties_7_props;
typedef ncclNetProperties_v8_t ncclNetProperties_8_props;
typedef ncclNetProperties_v9_t ncclNetProperties_9_props, ncclNetProperties_10_props;
typedef ncclNetProperties_v11_t ncclNetProperties_11_props;
typedef ncclNetProperties_v12_t ncclNetProperties_12_props;

#define INIT5 net->init(logger)
#define INIT10 net->init(logger, NULL)
#define INIT11 net->init(&ctx, 42, NULL, logger, NULL)
#define LISTEN5 net->listen(0, handle, &out)
#define LISTEN11 net->listen(NULL, 0, handle, &out)
#define CONNECT5 net->connect(0, handle, &out)
#define CONNECT7 net->connect(0, handle, &out, NULL)
#define CONNECT10 net->connect(0, NULL, handle, &out, NULL)
#define CONNECT11 net->connect(NULL, 0, handle, &out, NULL)
#define ACCEPT5 net->accept(GARBAGE, &out)
#define ACCEPT7 net->accept(GARBAGE, &out, NULL)
#define ISEND5 net->isend(GARBAGE, data, 8, 0, mhandle, &out)
#define ISEND10 net->isend(GARBAGE, data, 8, 0, mhandle, NULL, &out)
#define IRECV5 net->irecv(GARBAGE, 1, &data, &isize, &tag, &mhandle, &out)
#define IRECV9 net->irecv(GARBAGE, 1, &data, &size, &tag, &mhandle, &out)
#define IRECV10 net->irecv(GARBAGE, 1, &data, &size, &tag, &mhandle, NULL, &out)

TRY(5, INIT5, LISTEN5, CONNECT5, ACCEPT5, ISEND5, IRECV5)
TRY(6, INIT5, LISTEN5, CONNECT5, ACCEPT5, ISEND5, IRECV5)
TRY(7, INIT5, LISTEN5, CONNECT7, ACCEPT7, ISEND5, IRECV5)
TRY(8, INIT5, LISTEN5, CONNECT7, ACCEPT7, ISEND5, IRECV5)
TRY(9, INIT5, LISTEN5, CONNECT7, ACCEPT7, ISEND5, IRECV9)
TRY(10, INIT10, LISTEN5, CONNECT10, ACCEPT7, ISEND10, IRECV10)
TRY(11, INIT11, LISTEN11, CONNECT11, ACCEPT7, ISEND10, IRECV10)
TRY(12, INIT11, LISTEN11, CONNECT11, ACCEPT7, ISEND10, IRECV10)

/* A tuner beside a network that is not open: it changes nothing. */
#define TRY_TUNER(v, INIT, INFO, DESTROY)                                      \
	static void try_tuner_v##v(const ncclTuner_v##v##_t *tuner)            \
	{                                                                      \
		void *ctx = GARBAGE;                                           \
		int algo = 77, proto = 77, channels = 77, result;              \
		float cells[7][3] = { { 1.5f } };                              \
                                                                               \
		(void)algo, (void)proto;                                       \
		printf("tuner v%d %s nulls=%d", v, tuner->name, nulls(tuner, sizeof *tuner)); \
		result = INIT;                                                 \
		printf(" init=%d,%p", result, ctx);                            \
		result = INFO;                                                 \
		printf(" getCollInfo=%d,%d,%g", result, channels, (double)cells[0][0]); \
		printf(" destroy=%d\n", (int)tuner->DESTROY(ctx));             \
	}

#define TUNER_INIT2 tuner->init(2, 2, logger, &ctx)
#define TUNER_INIT5 tuner->init(&ctx, 42, 2, 2, logger, NULL, NULL)
#define TUNER_INFO2 tuner->getCollInfo(ctx, 4, 4096, 0, 0, 1, &algo, &proto, &channels)
#define TUNER_INFO3 tuner->getCollInfo(ctx, 4, 4096, 1, (float **)cells, 7, 3, &channels)
#define TUNER_INFO4 tuner->getCollInfo(ctx, 4, 4096, 1, (float **)cells, 7, 3, 0, &channels)

TRY_TUNER(2, TUNER_INIT2, TUNER_INFO2, destroy)
TRY_TUNER(3, TUNER_INIT2, TUNER_INFO3, destroy)
TRY_TUNER(4, TUNER_INIT2, TUNER_INFO4, destroy)
TRY_TUNER(5, TUNER_INIT5, TUNER_INFO4, finalize)
TRY_TUNER(6, TUNER_INIT5, TUNER_INFO4, finalize)

static void *symbol(void *lib, const char *name)
{
	void *p = dlsym(lib, name);

	if (p == NULL) {
		printf("%s\n", dlerror());
		exit(1);
	}
	return p;
}

static void try_all(void *lib)
{
	try_v5(symbol(lib, "ncclNetPlugin_v5"));
	try_v6(symbol(lib, "ncclNetPlugin_v6"));
	try_v7(symbol(lib, "ncclNetPlugin_v7"));
	try_v8(symbol(lib, "ncclNetPlugin_v8"));
	try_v9(symbol(lib, "ncclNetPlugin_v9"));
	try_v10(symbol(lib, "ncclNetPlugin_v10"));
	try_v11(symbol(lib, "ncclNetPlugin_v11"));
	try_v12(symbol(lib, "ncclNetPlugin_v12"));
	try_tuner_v2(symbol(lib, "ncclTunerPlugin_v2"));
	try_tuner_v3(symbol(lib, "ncclTunerPlugin_v3"));
	try_tuner_v4(symbol(lib, "ncclTunerPlugin_v4"));
	try_tuner_v5(symbol(lib, "ncclTunerPlugin_v5"));
	try_tuner_v6(symbol(lib, "ncclTunerPlugin_v6"));
}

int main(int argc, char **argv)
{
	void *lib;
	pid_t pid;
	int status;

	for (int i = 2; i < argc; i++)
		putenv(argv[i]);
	lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	if (lib == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	try_all(lib);
	printf("finalize(NULL)=%d\n", (int)((ncclNet_v11_t *)symbol(lib, "ncclNetPlugin_v11"))->finalize(NULL));

	/* Unloading and loading again gives the same image. */
	printf("dlclose=%d\n", dlclose(lib));
	lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	try_v12(symbol(lib, "ncclNetPlugin_v12"));

	puts("child");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		process = "child";
		try_all(lib);
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	printf("exit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
	return 0;
}
