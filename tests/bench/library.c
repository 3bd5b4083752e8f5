/* One-sided transfers by libncclmesh, as a program does them that is linked with it. The library's threads are those that it has by itself. */
#include <dlfcn.h>

#include "../../capi/library/ncclmesh.h"
#include "put.h"

enum { TAG = 7 };

#define FUNCTIONS(F) \
	F(GetUniqueId) F(CommInitRankFromId) F(CommDestroy) F(Connect) F(ConnectionSetup) F(GetConnection) F(Put) F(PutWithSignal) F(Flush) \
	F(Wait) F(BootstrapBarrier) F(GetErrorString) F(GetLastError)

static struct {
#define MEMBER(name) __typeof__(&ncclmesh##name) name;
	FUNCTIONS(MEMBER)
} mesh;

static ncclmeshComm_t comm;
static const ncclmeshConn *conn;

static void ok(ncclmeshResult_t result, const char *call)
{
	if (result != ncclmeshSuccess)
		die("ncclmesh%s: %s: %s", call, mesh.GetErrorString(result), mesh.GetLastError());
}

#define CALL(name, ...) ok(mesh.name(__VA_ARGS__), #name)

void net_init(const struct options *o)
{
	ncclmeshUniqueId id, unused;
	void *library;

	if (!o->plugin)
		die("--plugin FILE is missing: libncclmesh.so");
	library = dlopen(o->plugin, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		die("%s", dlerror());
#define FIND(name)                                                            \
	*(void **)(void *)&mesh.name = dlsym(library, "ncclmesh" #name);      \
	if (!mesh.name)                                                       \
		die("%s: no ncclmesh%s", o->plugin, #name);
	FUNCTIONS(FIND)
	if (o->rank == 0)
		CALL(GetUniqueId, &id);
	meet_exchange(&id, o->rank == 0 ? &unused : &id, sizeof id);
	CALL(CommInitRankFromId, &comm, 2, &id, o->rank);
}

void put_open(const struct options *o, unsigned char *data, size_t size)
{
	CALL(Connect, comm, 1 - o->rank, TAG, data, size);
	CALL(ConnectionSetup, comm);
	CALL(GetConnection, comm, 1 - o->rank, TAG, &conn);
}

void put_write(size_t offset, size_t size) { CALL(Put, conn, offset, offset, size); }

void put_flush(void) { CALL(Flush, conn, -1); }

void put_signal(size_t offset, size_t size) { CALL(PutWithSignal, conn, offset, offset, size); }

void put_wait(const uint64_t *word, uint64_t before)
{
	(void)word, (void)before;
	CALL(Wait, conn, -1);
}

void put_close(void)
{
	CALL(BootstrapBarrier, comm);
	CALL(CommDestroy, comm);
}
