/* What needs no other process: arguments, errors, forked children, and the words of triggers. It opens the library by its path. */
#define _GNU_SOURCE
#include <ncclmesh.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *library;

static void *find(const char *name)
{
	void *f = dlsym(library, name);

	if (!f)
		printf("%s is missing\n", name);
	return f;
}

/* Calls a function of the library with a handle as its only argument. */
static ncclmeshResult_t call(const char *name, void *handle)
{
	ncclmeshResult_t (*f)(void *);

	*(void **)&f = find(name);
	return f(handle);
}

static void show(const char *what, ncclmeshResult_t result)
{
	const char *(*last)(void);
	const char *(*text)(ncclmeshResult_t);

	*(void **)&last = find("ncclmeshGetLastError");
	*(void **)&text = find("ncclmeshGetErrorString");
	printf("%s: %d, %s: %s\n", what, result, text(result), result == ncclmeshSuccess ? "" : last());
}

static ncclmeshFifo fifo;

static void words(void)
{
	uint64_t n = 0;

	if (ncclmeshFifoPush(&fifo, 8, 0, 0, 0, &n) != ncclmeshInvalidArgument ||
	    ncclmeshFifoPush(&fifo, 1, NCCLMESH_TRIGGER_LIMIT, 0, 0, &n) != ncclmeshInvalidArgument || fifo.head != 0)
		printf("a trigger that is none was pushed\n");
	ncclmeshFifoPush(&fifo, ncclmeshTriggerPut, 0, 0, 0, &n);
	printf("trigger %d: %016llx %016llx\n", (int)n, (unsigned long long)fifo.slots[0][0], (unsigned long long)fifo.slots[0][1]);
	fifo.head = fifo.tail = 200;
	ncclmeshFifoPush(&fifo, 7, 0x1234567890, 0xabcdef0123, 0x9876543210, &n);
	printf("trigger %d: %016llx %016llx\n", (int)n, (unsigned long long)fifo.slots[72][0], (unsigned long long)fifo.slots[72][1]);
}

int main(int argc, char **argv)
{
	ncclmeshResult_t (*init)(ncclmeshComm_t *, int, const char *, int);
	ncclmeshResult_t (*init_id)(ncclmeshComm_t *, int, const ncclmeshUniqueId *, int);
	ncclmeshResult_t (*timeout)(int64_t);
	ncclmeshUniqueId id = { { 0 } };
	ncclmeshComm_t comm = NULL;
	int status;

	if (argc != 2 || !(library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)))
		return fprintf(stderr, "%s\n", dlerror()), 1;
	*(void **)&init = find("ncclmeshCommInitRank");
	*(void **)&init_id = find("ncclmeshCommInitRankFromId");
	*(void **)&timeout = find("ncclmeshSetBootstrapTimeout");
	show("no communicator to destroy", call("ncclmeshCommDestroy", NULL));
	show("a communicator that is none", call("ncclmeshCommDestroy", (void *)42));
	show("a barrier of nobody", call("ncclmeshBootstrapBarrier", NULL));
	show("a buffer that is none", call("ncclmeshDeregisterBuffer", (void *)42));
	show("a signal of nobody", call("ncclmeshSignal", NULL));
	show("no memory to free", call("ncclmeshFree", NULL));
	show("memory of another", call("ncclmeshFree", (void *)42));
	show("nowhere to put the id", call("ncclmeshGetUniqueId", NULL));
	show("no time", timeout(0));
	show("a rank that is none", init(&comm, 2, "127.0.0.1:5000", 2));
	show("no handler", call("ncclmeshSetLogHandler", NULL));
	show("an id of nothing", init_id(&comm, 1, &id, 0));
	printf("communicator %p\n", (void *)comm);
	words();
	fflush(stdout);
	if (fork() == 0) {
		show("in a child", call("ncclmeshGetUniqueId", &id));
		fflush(stdout);
		_exit(0);
	}
	wait(&status);
	return status;
}
