/* What all works need. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"

unsigned char *map_memory(size_t size)
{
	size_t huge = 2 << 20, slack = size >= huge ? huge : 0;
	unsigned char *p = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no memory for %zu bytes", size);
	if (slack) {
		p += -(uintptr_t)p % huge;
		madvise(p, size, MADV_HUGEPAGE); /* a kernel without them goes on without */
	}
	memset(p, 0, size);
	return p;
}

double agree(int rank, double own)
{
	double peer;

	meet_exchange(&own, &peer, sizeof own);
	return rank == 1 ? own : peer;
}

bool wanted(const struct options *o, int measured)
{
	char own = 0, peer;

	if (!o->slices)
		return measured == 0;
	if (o->rank == 0)
		own = getchar() != EOF;
	meet_exchange(&own, &peer, 1);
	return o->rank == 0 ? own : peer;
}

int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void print_times(const struct options *o, size_t size, const uint64_t *at, uint64_t count)
{
	if (o->rank == 0) {
		printf("{\"size\": %zu, \"done\": [%llu", size, (unsigned long long)at[0]);
		for (uint64_t i = 1; i < count; i++)
			printf(",%llu", (unsigned long long)at[i]);
		printf("]}\n");
	}
	fflush(stdout);
}
