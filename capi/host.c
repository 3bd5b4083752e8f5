/* What the plugin needs of the process it is loaded into. */
#include "plugin.h"

#include <pthread.h>
#include <unistd.h>

extern char **environ;

int mesh_forked;

/* The descriptors that the plugin holds, one bit each. */
static const volatile uint64_t *fork_bitmap;
static int fork_bits;

void mesh_fork_table(uintptr_t bitmap, int bits)
{
	fork_bitmap = (const volatile uint64_t *)bitmap;
	fork_bits = bits;
}

/*
 * A forked child has no Go runtime to speak of, only the copy of one. It must
 * not enter the plugin, and must not keep the parent's sockets and queue pairs
 * alive after the parent has died.
 */
static void in_child(void)
{
	int word, bit;

	mesh_forked = 1;
	for (word = 0; word < fork_bits / 64; word++) {
		uint64_t set = fork_bitmap[word];

		for (bit = 0; set != 0; bit++, set >>= 1)
			if (set & 1)
				close(word * 64 + bit);
	}
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

/* The logger is variadic, which Go cannot call. */
void mesh_log(ncclDebugLogger_t logger, int level, unsigned long flags, char *file, int line, char *text)
{
	logger(level, flags, file, line, "%s", text);
}

/* The i-th NAME=value, or NULL after the last. */
char *mesh_environ(int i)
{
	return environ ? environ[i] : NULL;
}
