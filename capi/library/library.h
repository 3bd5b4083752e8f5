/*
 * The functions that the C and the Go half of libncclmesh call in each other. Objects are numbers; pointers belong to the caller and
 * are not kept, unless it is said.
 */
#ifndef MESH_LIBRARY_H
#define MESH_LIBRARY_H

#include "../host/host.h"
#include "ncclmesh.h"

/* The size of the text of an error, with its final 0. */
#define MESH_TEXT 1024

/* Memory to register. */
struct mesh_region {
	uintptr_t address;
	uint64_t size;
	int kind;
	int dma_buf; /* -1: none */
	uint64_t offset;
};

/* In Go. Each function returns an ncclmeshResult_t, and writes the text of an error to text. */
int meshUniqueId(char *id, char *text);
int meshInitRank(uint64_t *comm, int nranks, char *address, int rank, char *text);
int meshInitRankFromId(uint64_t *comm, int nranks, char *id, int rank, char *text);
int meshDestroy(uint64_t comm, char *text);
int meshRank(uint64_t comm, int *rank, int *size, char *text);
int meshSetTimeout(int64_t milliseconds, char *text);
int meshAllGather(uint64_t comm, char *data, size_t size, char *text);
int meshBarrier(uint64_t comm, char *text);
int meshConnect(uint64_t comm, int rank, int tag, struct mesh_region *region, char *text);
int meshSetup(uint64_t comm, char *text);
int meshConnection(uint64_t comm, int rank, int tag, ncclmeshConn **conn, char *text);
int meshConnections(uint64_t comm, ncclmeshConn ***conns, int *n, char *text);
int meshPut(uint64_t conn, uint64_t dst, uint64_t src, uint64_t size, char *text);
int meshSignal(uint64_t conn, char *text);
int meshPutSignal(uint64_t conn, uint64_t dst, uint64_t src, uint64_t size, char *text);
int meshGet(uint64_t conn, uint64_t dst, uint64_t src, uint64_t size, char *text);
int meshFlush(uint64_t conn, int64_t timeout, char *text);
int meshWait(uint64_t conn, int64_t timeout, char *text);
int meshIncrementEpoch(uint64_t conn, char *text);
int meshRegister(uint64_t comm, struct mesh_region *region, uint64_t *buffer, char *text);
int meshDeregister(uint64_t buffer, char *text);
int meshWrite(uint64_t dst, int rank, uint64_t dstOffset, uint64_t src, uint64_t srcOffset, uint64_t size, char *text);
int meshRead(uint64_t src, int rank, uint64_t srcOffset, uint64_t dst, uint64_t dstOffset, uint64_t size, char *text);
int meshSignalWord(uint64_t buffer, int rank, uint64_t offset, int op, uint64_t value, char *text);
int meshLoadWord(uint64_t buffer, uint64_t offset, uint64_t *value, char *text);
int meshWaitWord(uint64_t buffer, uint64_t offset, uint64_t value, int64_t timeout, char *text);
int meshFlushRank(uint64_t buffer, int rank, int64_t timeout, char *text);
int meshLaunch(uint64_t comm, char *text);
int meshStop(uint64_t comm, char *text);
int meshAlloc(uintptr_t *memory, size_t size, char *text);
int meshFree(uintptr_t memory, char *text);
char *meshResultText(int result); /* never freed */
char *meshVersion(void);          /* never freed */
void meshFlushBeforeExit(void);

/* In C. */
void mesh_log(int level, char *text); /* log.c */
void mesh_set_log_handler(ncclmeshLogHandler_t handler); /* log.c */
void mesh_free(uintptr_t memory);     /* api.c: frees memory of malloc */

#endif
