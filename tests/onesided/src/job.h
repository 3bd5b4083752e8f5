/* What the test programs have in common: the job that the arguments name, and an end at the first error. */
#ifndef JOB_H
#define JOB_H

#include <ncclmesh.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                                  \
	do {                                                                                                         \
		ncclmeshResult_t result_ = (call);                                                                   \
		if (result_ != ncclmeshSuccess) {                                                                    \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, ncclmeshGetErrorString(result_),      \
				ncclmeshGetLastError());                                                             \
			exit(1);                                                                                     \
		}                                                                                                    \
	} while (0)

#define FAIL(...) (fprintf(stderr, __VA_ARGS__), exit(1))

/* Joins the job: program address ranks rank. */
static inline ncclmeshComm_t job(int argc, char **argv, int *ranks, int *rank)
{
	ncclmeshComm_t comm;

	if (argc != 4)
		FAIL("usage: %s address:port ranks rank\n", argv[0]);
	*ranks = atoi(argv[2]);
	*rank = atoi(argv[3]);
	CHECK(ncclmeshCommInitRank(&comm, *ranks, argv[1], *rank));
	return comm;
}

/* Waits for an epoch as a GPU does, without a call. */
static inline void await_epoch(const ncclmeshConn *conn, uint64_t epoch)
{
	while (ncclmeshEpoch(conn) < epoch)
		if (ncclmeshFifoFailure(conn->fifo) != ncclmeshSuccess)
			FAIL("a trigger failed: %s\n", ncclmeshGetErrorString(ncclmeshFifoFailure(conn->fifo)));
}

#endif
