/*
 * An all-gather around a ring. Each rank writes its block to the next rank, and then the block that it has got from the one before. Edge i of the
 * ring leads from rank i to the next one, and has tag i.
 */
#include "job.h"

#define ROUNDS 4
#define BLOCK (256 << 10) /* numbers of a rank */

int main(int argc, char **argv)
{
	int ranks, rank, round, step, left, right;
	const ncclmeshConn *to, *from;
	ncclmeshComm_t comm = job(argc, argv, &ranks, &rank);
	size_t block = BLOCK * sizeof(uint32_t), i;
	uint32_t *data;

	left = (rank + ranks - 1) % ranks;
	right = (rank + 1) % ranks;
	CHECK(ncclmeshAlloc((void **)&data, ranks * block));
	CHECK(ncclmeshConnect(comm, right, rank, data, ranks * block));
	CHECK(ncclmeshConnect(comm, left, left, data, ranks * block));
	CHECK(ncclmeshConnectionSetup(comm));
	CHECK(ncclmeshGetConnection(comm, right, rank, &to));
	CHECK(ncclmeshGetConnection(comm, left, left, &from));
	CHECK(ncclmeshProxyLaunch(comm));
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < BLOCK; i++)
			data[rank * BLOCK + i] = round * 1000003 + rank * 7919 + i;
		for (step = 0; step < ranks - 1; step++) {
			uint64_t at = (rank + ranks - step) % ranks * block;

			CHECK(ncclmeshFifoPush(to->fifo, ncclmeshTriggerPut | ncclmeshTriggerSignal, at, at, block, NULL));
			await_epoch(from, (uint64_t)round * (ranks - 1) + step + 1);
		}
		for (i = 0; i < (size_t)ranks * BLOCK; i++)
			if (data[i] != (uint32_t)(round * 1000003 + i / BLOCK * 7919 + i % BLOCK))
				FAIL("round %d: number %zu is %u\n", round, i, data[i]);
		CHECK(ncclmeshBootstrapBarrier(comm)); /* all have read */
	}
	CHECK(ncclmeshProxyStop(comm));
	CHECK(ncclmeshFlush(to, -1));
	CHECK(ncclmeshBootstrapBarrier(comm));
	CHECK(ncclmeshCommDestroy(comm));
	CHECK(ncclmeshFree(data));
	printf("ok\n");
	return 0;
}
