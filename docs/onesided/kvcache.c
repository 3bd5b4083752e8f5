/*
 * A KV cache handed from a prefill node to a decode node. The prefill node (rank 0) computes the cache of one request after another, and puts
 * each layer when it is ready; the decode node (rank 1) reads the cache in place, and says when its slot may be used again.
 *
 *     cc kvcache.c -lncclmesh -o kvcache
 *     NCCL_MESH_KEY=... ./kvcache 10.0.0.1:5000 0       and on the other node: ... ./kvcache 10.0.0.1:5000 1
 */
#include <ncclmesh.h>
#include <stdio.h>
#include <stdlib.h>

#define LAYERS 8
#define LAYER (1 << 20) /* bytes of one layer of a request */
#define REQUESTS 6
#define SLOTS 2 /* requests whose caches the decode node holds at once */

static void check(ncclmeshResult_t result)
{
	if (result != ncclmeshSuccess)
		fprintf(stderr, "%s: %s\n", ncclmeshGetErrorString(result), ncclmeshGetLastError()), exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return fprintf(stderr, "usage: %s ADDRESS:PORT RANK\n", argv[0]), 2;
	const int rank = atoi(argv[2]);
	const ncclmeshConn *peer;
	ncclmeshComm_t comm;
	unsigned char *cache;
	check(ncclmeshCommInitRank(&comm, 2, argv[1], rank));
	check(ncclmeshAlloc((void **)&cache, (size_t)SLOTS * LAYERS * LAYER));
	check(ncclmeshConnect(comm, 1 - rank, 0, cache, (size_t)SLOTS * LAYERS * LAYER));
	check(ncclmeshConnectionSetup(comm));
	check(ncclmeshGetConnection(comm, 1 - rank, 0, &peer));
	for (int request = 0; request < REQUESTS; request++) {
		if (rank == 0 && request >= SLOTS)
			check(ncclmeshWait(peer, -1)); /* the slot is free */
		for (int l = 0; l < LAYERS; l++) {
			const size_t at = ((size_t)(request % SLOTS) * LAYERS + l) * LAYER;
			if (rank == 1)
				check(ncclmeshWait(peer, -1)); /* the layer is here */
			for (int i = 0; i < LAYER; i++) /* stands for the computation of the layer, and for its use */
				if (rank == 0)
					cache[at + i] = (unsigned char)(request * 31 + l * 7 + i);
				else if (cache[at + i] != (unsigned char)(request * 31 + l * 7 + i))
					return fprintf(stderr, "request %d, layer %d: wrong byte %d\n", request, l, i), 1;
			if (rank == 0)
				check(ncclmeshPutWithSignal(peer, at, at, LAYER)); /* while the next one is computed */
		}
		if (rank == 1)
			check(ncclmeshSignal(peer));
		printf("rank %d: request %d %s\n", rank, request, rank == 0 ? "sent" : "decoded");
	}
	check(ncclmeshFlush(peer, -1));
	check(ncclmeshBootstrapBarrier(comm));
	check(ncclmeshCommDestroy(comm));
	check(ncclmeshFree(cache));
	return 0;
}
