/*
 * Contents of messages and the memory they lie in.
 *
 * A message's bytes depend on its key (who sends what to whom, and which message it is) and on
 * each byte's offset, so one that is swapped, repeated, torn, shifted or misplaced is found.
 * Memory not meant to be written holds a canary.
 */
#ifndef NETDRIVER_PATTERN_H
#define NETDRIVER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* mix spreads x over 64 bits. */
uint64_t mix(uint64_t x);

/* pattern_key names a message: two that differ in anything have different contents. */
uint64_t pattern_key(uint64_t seed, int comm, int sender, int receiver, uint64_t sequence);

/* pattern_word is the word at index (offset / 8). */
static inline uint64_t pattern_word(uint64_t key, uint64_t index)
{
	uint64_t x = key + index * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 31) * 0xbf63d1a5c29f6e4bu;
	return x ^ x >> 32;
}

/* Contents from byte offset at of the message on; no alignment is asked of data. */
void pattern_fill(void *data, size_t size, uint64_t key, size_t at);

/* pattern_check counts wrong words (a part of a word counts as one) and gives the first's offset. */
size_t pattern_check(const void *data, size_t size, uint64_t key, size_t at, size_t *first);

/* Canaries. */
void canary_fill(void *data, size_t size);

/* canary_check returns the offset of the first byte touched, or size. */
size_t canary_check(const void *data, size_t size);

/*
 * A region is memory that a plugin registers, of the kind that --memory names, with canary inside. The host's has a page that
 * faults in front and behind, and once freed a touch faults; of a GPU's any touch by the processor does.
 */
struct region {
	unsigned char *base;
	size_t size;
	void *map; /* of the host's */
	size_t map_size;
};

void region_open(struct region *region, size_t size);
void region_open_host(struct region *region, size_t size); /* in the host's memory, of whatever kind the others are */
void region_close(struct region *region);

/* A seeded stream of numbers. */
struct random {
	uint64_t state;
};

uint64_t random_next(struct random *r);
uint64_t random_below(struct random *r, uint64_t bound);
/* random_size: 0 to max, every magnitude about as likely, often at an interesting boundary. */
size_t random_size(struct random *r, size_t max);

#endif
