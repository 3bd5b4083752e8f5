/* Rank 1 signals once and dies. Rank 0, which waits for two signals, gets the first one, and an error. */
#include "job.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int ranks, rank;
	const ncclmeshConn *conn;
	ncclmeshComm_t comm = job(argc, argv, &ranks, &rank);
	ncclmeshResult_t result;
	void *buffer;

	CHECK(ncclmeshAlloc(&buffer, 4096));
	CHECK(ncclmeshConnect(comm, 1 - rank, 0, buffer, 4096));
	CHECK(ncclmeshConnectionSetup(comm));
	CHECK(ncclmeshGetConnection(comm, 1 - rank, 0, &conn));
	if (rank == 1) {
		CHECK(ncclmeshSignal(conn));
		CHECK(ncclmeshFlush(conn, -1));
		CHECK(ncclmeshWait(conn, -1));
		kill(getpid(), SIGKILL);
	}
	CHECK(ncclmeshWait(conn, -1));
	CHECK(ncclmeshSignal(conn));
	result = ncclmeshWait(conn, -1);
	if (result != ncclmeshRemoteError || !strstr(ncclmeshGetLastError(), "connection of rank 0 to rank 1, tag 0: wait: "))
		FAIL("the wait ends with %d: %s\n", result, ncclmeshGetLastError());
	result = ncclmeshPut(conn, 0, 0, 8);
	if (result != ncclmeshRemoteError)
		FAIL("a put ends with %d: %s\n", result, ncclmeshGetLastError());
	CHECK(ncclmeshCommDestroy(comm));
	CHECK(ncclmeshFree(buffer));
	printf("ok\n");
	return 0;
}
