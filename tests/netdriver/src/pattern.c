#include "pattern.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log.h"

static const uint64_t canary = 0xe7a6e7b5e7c4e7d3u;

uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 33) * 0xd1342543de82ef95u;
	x = (x ^ x >> 29) * 0xc2b2ae3d27d4eb4fu;
	return x ^ x >> 32;
}

uint64_t pattern_key(uint64_t seed, int comm, int sender, int receiver, uint64_t sequence)
{
	uint64_t who = (uint64_t)comm << 40 | (uint64_t)sender << 20 | (uint64_t)receiver;

	return mix(mix(mix(seed) + who) + sequence);
}

void pattern_fill(void *data, size_t size, uint64_t key, size_t at)
{
	unsigned char *to = data;

	while (size) {
		uint64_t word = pattern_word(key, at / 8) >> at % 8 * 8;
		size_t n = 8 - at % 8 < size ? 8 - at % 8 : size;

		memcpy(to, &word, n); /* little-endian, as everything NCCL runs on */
		to += n;
		at += n;
		size -= n;
	}
}

size_t pattern_check(const void *data, size_t size, uint64_t key, size_t at, size_t *first)
{
	const unsigned char *from = data;
	size_t bad = 0, offset = 0;

	while (offset < size) {
		size_t where = at + offset, n = 8 - where % 8;
		uint64_t want = pattern_word(key, where / 8) >> where % 8 * 8, have = want;

		if (n > size - offset)
			n = size - offset;
		memcpy(&have, from + offset, n);
		if (have != want && bad++ == 0)
			*first = offset;
		offset += n;
	}
	return bad;
}

void canary_fill(void *data, size_t size)
{
	unsigned char *to = data, *end = to + size;

	for (; to < end && (uintptr_t)to % 8; to++)
		*to = (unsigned char)(canary >> (uintptr_t)to % 8 * 8);
	for (; end - to >= 8; to += 8)
		memcpy(to, &canary, 8);
	for (; to < end; to++)
		*to = (unsigned char)(canary >> (uintptr_t)to % 8 * 8);
}

/* The canary's phase is that of the address, so any part of a region can be checked alone. */
size_t canary_check(const void *data, size_t size)
{
	const unsigned char *from = data, *end = from + size, *at = from;

	while (at < end) {
		uint64_t word;

		if ((uintptr_t)at % 8 == 0 && end - at >= 8) {
			memcpy(&word, at, 8);
			if (word == canary) {
				at += 8;
				continue;
			}
		}
		if (*at != (unsigned char)(canary >> (uintptr_t)at % 8 * 8))
			break;
		at++;
	}
	return (size_t)(at - from);
}

void region_open(struct region *region, size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (size + page - 1) / page * page;
	unsigned char *map = mmap(NULL, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED || mprotect(map + page, body, PROT_READ | PROT_WRITE))
		die("cannot map %zu bytes for messages; --max or --comms may be too large", size);
	*region = (struct region){.base = map + page, .size = body, .map = map, .map_size = body + 2 * page};
	canary_fill(region->base, region->size);
}

void region_close(struct region *region)
{
	if (region->map)
		munmap(region->map, region->map_size);
	*region = (struct region){0};
}

uint64_t random_next(struct random *r)
{
	r->state += 0x9e3779b97f4a7c15u;
	return mix(r->state);
}

uint64_t random_below(struct random *r, uint64_t bound)
{
	return bound ? random_next(r) % bound : 0;
}

size_t random_size(struct random *r, size_t max)
{
	unsigned bits = 1;
	size_t size;

	while (bits < 63 && (size_t)1 << bits <= max)
		bits++;
	size = random_below(r, (uint64_t)1 << random_below(r, bits + 1));
	switch (random_below(r, 8)) {
	case 0:
		return 0;
	case 1:
		size = size / 128 * 128;
		break;
	case 2: {
		size_t power = (size_t)1 << random_below(r, bits), by = random_below(r, 3);

		size = power + by - 1;
		break;
	}
	}
	return size < max ? size : max;
}
