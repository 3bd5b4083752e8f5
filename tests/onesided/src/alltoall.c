/* An all-to-all. A thread for each other rank, in the place of a GPU's block, pushes the part for that rank, and waits for its part. */
#include "job.h"

#include <pthread.h>

#define ROUNDS 20
#define PART (64 << 10) /* bytes from one rank to another */

static int ranks, rank;
static unsigned char *source, *target;
static pthread_barrier_t round_begins, round_ends;

static unsigned char value(int round, int from, int to, int i)
{
	return (unsigned char)(round * 3 + from * 5 + to * 11 + i);
}

static void *block(void *arg)
{
	const ncclmeshConn *conn = arg;
	int round, i, peer = conn->remoteRank;
	uint64_t n;

	for (round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&round_begins);
		for (i = 0; i < PART; i++)
			source[peer * PART + i] = value(round, rank, peer, i);
		CHECK(ncclmeshFifoPush(conn->fifo, ncclmeshTriggerPut | ncclmeshTriggerSignal | ncclmeshTriggerFlush,
				       (uint64_t)ranks * PART + rank * PART, (uint64_t)peer * PART, PART, &n));
		await_epoch(conn, round + 1);
		for (i = 0; i < PART; i++)
			if (target[peer * PART + i] != value(round, peer, rank, i))
				FAIL("round %d: byte %d from rank %d\n", round, i, peer);
		while (ncclmeshFifoExecuted(conn->fifo) <= n) /* the source may be overwritten */
			await_epoch(conn, 0);
		pthread_barrier_wait(&round_ends);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	ncclmeshComm_t comm = job(argc, argv, &ranks, &rank);
	const ncclmeshConn *const *conns;
	pthread_t *threads;
	int i, n, round;

	/* The first half is what the rank sends, by the rank that gets it, the second half what it gets, by the rank that sends it. */
	CHECK(ncclmeshAlloc((void **)&source, 2 * (size_t)ranks * PART));
	target = source + ranks * PART;
	for (i = 0; i < ranks; i++)
		if (i != rank)
			CHECK(ncclmeshConnect(comm, i, 0, source, 2 * (size_t)ranks * PART));
	CHECK(ncclmeshConnectionSetup(comm));
	CHECK(ncclmeshGetAllConnections(comm, &conns, &n));
	if (n != ranks - 1)
		FAIL("%d connections\n", n);
	CHECK(ncclmeshProxyLaunch(comm));
	threads = calloc(n, sizeof(*threads));
	pthread_barrier_init(&round_begins, NULL, n + 1);
	pthread_barrier_init(&round_ends, NULL, n + 1);
	for (i = 0; i < n; i++)
		pthread_create(&threads[i], NULL, block, (void *)(uintptr_t)conns[i]);
	for (round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&round_begins);
		pthread_barrier_wait(&round_ends);
		CHECK(ncclmeshBootstrapBarrier(comm)); /* all have read */
	}
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	CHECK(ncclmeshProxyStop(comm));
	CHECK(ncclmeshBootstrapBarrier(comm));
	CHECK(ncclmeshCommDestroy(comm));
	CHECK(ncclmeshFree(source));
	printf("ok\n");
	return 0;
}
