/* The public functions of libncclmesh. */
#include "library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

/*
 * The text of the last error of each thread. It is not in thread-local storage, because that of a library that a program opens later is scarce: Go
 * makes the linker use the static kind.
 */
static pthread_key_t texts;
static int has_texts;
static char shared_text[MESH_TEXT]; /* for a thread without memory for its own */

__attribute__((constructor)) static void make_texts(void)
{
	has_texts = pthread_key_create(&texts, free) == 0;
}

static char *last_error(void)
{
	char *text = has_texts ? pthread_getspecific(texts) : shared_text;

	if (__builtin_expect(text != NULL, 1))
		return text;
	text = calloc(1, MESH_TEXT);
	if (text && pthread_setspecific(texts, text) == 0)
		return text;
	free(text);
	return shared_text;
}

static ncclmeshResult_t refused(ncclmeshResult_t result, const char *text)
{
	snprintf(last_error(), MESH_TEXT, "%s", text);
	return result;
}

static ncclmeshResult_t in_child(void)
{
	return refused(ncclmeshSystemError, "libncclmesh was called in a forked child, which has none of its threads: call exec, or "
					    "use the library in the child only");
}

static ncclmeshResult_t no_argument(const char *name)
{
	snprintf(last_error(), MESH_TEXT, "the argument %s is NULL", name);
	return ncclmeshInvalidArgument;
}

#define REFUSE_IN_CHILD()                                                                                            \
	do {                                                                                                         \
		if (__builtin_expect(mesh_forked, 0))                                                                \
			return in_child();                                                                           \
	} while (0)

#define REFUSE_NULL(argument)                                                                                        \
	do {                                                                                                         \
		if (__builtin_expect(!(argument), 0))                                                                \
			return no_argument(#argument);                                                               \
	} while (0)

/* Calls Go, which writes the text of an error. */
#define CALL(function, ...) ((ncclmeshResult_t)function(__VA_ARGS__, last_error()))

void mesh_free(uintptr_t memory)
{
	free((void *)memory);
}

static uint64_t number(const void *handle)
{
	return (uint64_t)(uintptr_t)handle;
}

EXPORT ncclmeshResult_t ncclmeshGetUniqueId(ncclmeshUniqueId *id)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(id);
	return CALL(meshUniqueId, id->bytes);
}

EXPORT ncclmeshResult_t ncclmeshCommInitRank(ncclmeshComm_t *comm, int nranks, const char *address, int rank)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(comm);
	REFUSE_NULL(address);
	return CALL(meshInitRank, (uint64_t *)comm, nranks, (char *)(uintptr_t)address, rank);
}

EXPORT ncclmeshResult_t ncclmeshCommInitRankFromId(ncclmeshComm_t *comm, int nranks, const ncclmeshUniqueId *id, int rank)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(comm);
	REFUSE_NULL(id);
	return CALL(meshInitRankFromId, (uint64_t *)comm, nranks, (char *)(uintptr_t)id->bytes, rank);
}

EXPORT ncclmeshResult_t ncclmeshCommDestroy(ncclmeshComm_t comm)
{
	if (!comm)
		return ncclmeshSuccess;
	REFUSE_IN_CHILD();
	return CALL(meshDestroy, number(comm));
}

EXPORT ncclmeshResult_t ncclmeshCommRank(ncclmeshComm_t comm, int *rank)
{
	int size;

	REFUSE_IN_CHILD();
	REFUSE_NULL(rank);
	return CALL(meshRank, number(comm), rank, &size);
}

EXPORT ncclmeshResult_t ncclmeshCommSize(ncclmeshComm_t comm, int *size)
{
	int rank;

	REFUSE_IN_CHILD();
	REFUSE_NULL(size);
	return CALL(meshRank, number(comm), &rank, size);
}

EXPORT ncclmeshResult_t ncclmeshSetBootstrapTimeout(int64_t milliseconds)
{
	REFUSE_IN_CHILD();
	return CALL(meshSetTimeout, milliseconds);
}

EXPORT ncclmeshResult_t ncclmeshBootstrapAllGather(ncclmeshComm_t comm, void *data, size_t size)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(data);
	return CALL(meshAllGather, number(comm), data, size);
}

EXPORT ncclmeshResult_t ncclmeshBootstrapBarrier(ncclmeshComm_t comm)
{
	REFUSE_IN_CHILD();
	return CALL(meshBarrier, number(comm));
}

EXPORT ncclmeshResult_t ncclmeshConnect(ncclmeshComm_t comm, int remoteRank, int tag, void *buffer, size_t size)
{
	return ncclmeshConnectMemory(comm, remoteRank, tag, buffer, size, ncclmeshHostMemory, -1, 0);
}

EXPORT ncclmeshResult_t ncclmeshConnectMemory(ncclmeshComm_t comm, int remoteRank, int tag, void *buffer, size_t size,
					      ncclmeshMemoryKind kind, int dmaBuf, uint64_t offset)
{
	struct mesh_region region = { (uintptr_t)buffer, size, (int)kind, dmaBuf, offset };

	REFUSE_IN_CHILD();
	return CALL(meshConnect, number(comm), remoteRank, tag, &region);
}

EXPORT ncclmeshResult_t ncclmeshConnectionSetup(ncclmeshComm_t comm)
{
	REFUSE_IN_CHILD();
	return CALL(meshSetup, number(comm));
}

EXPORT ncclmeshResult_t ncclmeshGetConnection(ncclmeshComm_t comm, int remoteRank, int tag, const ncclmeshConn **conn)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(conn);
	return CALL(meshConnection, number(comm), remoteRank, tag, (ncclmeshConn **)(uintptr_t)conn);
}

EXPORT ncclmeshResult_t ncclmeshGetAllConnections(ncclmeshComm_t comm, const ncclmeshConn *const **conns, int *n)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(conns);
	REFUSE_NULL(n);
	return CALL(meshConnections, number(comm), (ncclmeshConn ***)(uintptr_t)conns, n);
}

EXPORT ncclmeshResult_t ncclmeshPut(const ncclmeshConn *conn, uint64_t dstOffset, uint64_t srcOffset, uint64_t size)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(conn);
	return CALL(meshPut, conn->handle, dstOffset, srcOffset, size);
}

EXPORT ncclmeshResult_t ncclmeshSignal(const ncclmeshConn *conn)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(conn);
	return CALL(meshSignal, conn->handle);
}

EXPORT ncclmeshResult_t ncclmeshPutWithSignal(const ncclmeshConn *conn, uint64_t dstOffset, uint64_t srcOffset, uint64_t size)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(conn);
	return CALL(meshPutSignal, conn->handle, dstOffset, srcOffset, size);
}

EXPORT ncclmeshResult_t ncclmeshPutWithSignalAndFlush(const ncclmeshConn *conn, uint64_t dstOffset, uint64_t srcOffset,
						      uint64_t size, int64_t timeout)
{
	ncclmeshResult_t result = ncclmeshPutWithSignal(conn, dstOffset, srcOffset, size);

	return result == ncclmeshSuccess ? ncclmeshFlush(conn, timeout) : result;
}

EXPORT ncclmeshResult_t ncclmeshGet(const ncclmeshConn *conn, uint64_t dstOffset, uint64_t srcOffset, uint64_t size)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(conn);
	return CALL(meshGet, conn->handle, dstOffset, srcOffset, size);
}

EXPORT ncclmeshResult_t ncclmeshFlush(const ncclmeshConn *conn, int64_t timeout)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(conn);
	return CALL(meshFlush, conn->handle, timeout);
}

EXPORT ncclmeshResult_t ncclmeshWait(const ncclmeshConn *conn, int64_t timeout)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(conn);
	return CALL(meshWait, conn->handle, timeout);
}

EXPORT ncclmeshResult_t ncclmeshEpochIncrement(const ncclmeshConn *conn)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(conn);
	return CALL(meshIncrementEpoch, conn->handle);
}

EXPORT ncclmeshResult_t ncclmeshRegisterBuffer(ncclmeshComm_t comm, void *buffer, size_t size, ncclmeshBuffer_t *registered)
{
	return ncclmeshRegisterMemory(comm, buffer, size, ncclmeshHostMemory, -1, 0, registered);
}

EXPORT ncclmeshResult_t ncclmeshRegisterMemory(ncclmeshComm_t comm, void *buffer, size_t size, ncclmeshMemoryKind kind,
					       int dmaBuf, uint64_t offset, ncclmeshBuffer_t *registered)
{
	struct mesh_region region = { (uintptr_t)buffer, size, (int)kind, dmaBuf, offset };

	REFUSE_IN_CHILD();
	REFUSE_NULL(registered);
	return CALL(meshRegister, number(comm), &region, (uint64_t *)registered);
}

EXPORT ncclmeshResult_t ncclmeshDeregisterBuffer(ncclmeshBuffer_t registered)
{
	REFUSE_IN_CHILD();
	return CALL(meshDeregister, number(registered));
}

EXPORT ncclmeshResult_t ncclmeshRegisteredBufferWrite(ncclmeshBuffer_t dst, int rank, uint64_t dstOffset, ncclmeshBuffer_t src,
						      uint64_t srcOffset, uint64_t size)
{
	REFUSE_IN_CHILD();
	return CALL(meshWrite, number(dst), rank, dstOffset, number(src), srcOffset, size);
}

EXPORT ncclmeshResult_t ncclmeshRegisteredBufferRead(ncclmeshBuffer_t src, int rank, uint64_t srcOffset, ncclmeshBuffer_t dst,
						     uint64_t dstOffset, uint64_t size)
{
	REFUSE_IN_CHILD();
	return CALL(meshRead, number(src), rank, srcOffset, number(dst), dstOffset, size);
}

EXPORT ncclmeshResult_t ncclmeshRegisteredBufferSignal(ncclmeshBuffer_t buffer, int rank, uint64_t offset, ncclmeshSignalOp op,
						       uint64_t value)
{
	REFUSE_IN_CHILD();
	return CALL(meshSignalWord, number(buffer), rank, offset, (int)op, value);
}

EXPORT ncclmeshResult_t ncclmeshRegisteredBufferLoad(ncclmeshBuffer_t buffer, uint64_t offset, uint64_t *value)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(value);
	return CALL(meshLoadWord, number(buffer), offset, value);
}

EXPORT ncclmeshResult_t ncclmeshRegisteredBufferWait(ncclmeshBuffer_t buffer, uint64_t offset, uint64_t value, int64_t timeout)
{
	REFUSE_IN_CHILD();
	return CALL(meshWaitWord, number(buffer), offset, value, timeout);
}

EXPORT ncclmeshResult_t ncclmeshRegisteredBufferFlush(ncclmeshBuffer_t buffer, int rank, int64_t timeout)
{
	REFUSE_IN_CHILD();
	return CALL(meshFlushRank, number(buffer), rank, timeout);
}

EXPORT ncclmeshResult_t ncclmeshProxyLaunch(ncclmeshComm_t comm)
{
	REFUSE_IN_CHILD();
	return CALL(meshLaunch, number(comm));
}

EXPORT ncclmeshResult_t ncclmeshProxyStop(ncclmeshComm_t comm)
{
	REFUSE_IN_CHILD();
	return CALL(meshStop, number(comm));
}

EXPORT ncclmeshResult_t ncclmeshAlloc(void **memory, size_t size)
{
	REFUSE_IN_CHILD();
	REFUSE_NULL(memory);
	return CALL(meshAlloc, (uintptr_t *)memory, size);
}

EXPORT ncclmeshResult_t ncclmeshFree(void *memory)
{
	if (!memory)
		return ncclmeshSuccess;
	REFUSE_IN_CHILD();
	return CALL(meshFree, (uintptr_t)memory);
}

EXPORT ncclmeshResult_t ncclmeshSetLogHandler(ncclmeshLogHandler_t handler)
{
	REFUSE_NULL(handler);
	mesh_set_log_handler(handler);
	return ncclmeshSuccess;
}

EXPORT const char *ncclmeshGetErrorString(ncclmeshResult_t result)
{
	return mesh_forked ? "a forked child has no texts" : meshResultText((int)result);
}

EXPORT const char *ncclmeshGetLastError(void)
{
	return last_error();
}

EXPORT const char *ncclmeshGetVersion(void)
{
	return mesh_forked ? "" : meshVersion();
}

/*
 * When a process ends, the kernel resets each socket that has unread input, and discards output that it has not sent, although the
 * program's requests are done. The library therefore flushes its connections first.
 */
__attribute__((destructor)) static void flush_before_exit(void)
{
	if (mesh_is_owner())
		meshFlushBeforeExit();
}
