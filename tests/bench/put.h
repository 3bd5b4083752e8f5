/*
 * One-sided transfers between two processes. Both have memory of the same size, and what one of them puts it writes from an offset of its
 * own memory to the same offset of the other's. library.c does so by libncclmesh, writes.c by RDMA WRITEs of its own, which is the limit.
 */
#ifndef BENCH_PUT_H
#define BENCH_PUT_H

#include <sched.h>

#include "bench.h"

void put_open(const struct options *o, unsigned char *data, size_t size);
/* Queues a write. The memory must not change before put_flush has returned. */
void put_write(size_t offset, size_t size);
void put_flush(void);
/*
 * A write that the other process waits for. As what it writes the last word differs from what was there, a loop that has no signals looks at that
 * word; before is what it was.
 */
void put_signal(size_t offset, size_t size);
void put_wait(const uint64_t *word, uint64_t before);
void put_close(void);

/* Waits until a word of memory is no longer as it was. */
static inline void await_word(const uint64_t *word, uint64_t before)
{
	for (unsigned n = 1; __atomic_load_n(word, __ATOMIC_ACQUIRE) == before; n++)
		if (n % 1024 == 0)
			sched_yield();
}

#endif
