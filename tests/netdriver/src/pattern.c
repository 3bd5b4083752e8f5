#include "pattern.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log.h"
#include "memory.h"

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

static void host_fill(void *data, size_t size, uint64_t key, size_t at)
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

static size_t host_check(const void *data, size_t size, uint64_t key, size_t at, size_t *first)
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

static void host_canary(void *data, size_t size)
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
static size_t host_canary_check(const void *data, size_t size)
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

/* Device memory is filled and looked at in pieces of STAGE bytes at most, whose ends are words of the message or of the canary. */
enum { STAGE = 16384 };

static size_t piece(size_t left, size_t phase)
{
	return left < STAGE - phase % 8 ? left : STAGE - phase % 8;
}

void pattern_fill(void *data, size_t size, uint64_t key, size_t at)
{
	unsigned char stage[STAGE], *to = data;

	if (!memory_is_device(data)) {
		host_fill(data, size, key, at);
		return;
	}
	for (size_t n; size; to += n, at += n, size -= n) {
		n = piece(size, at);
		host_fill(stage, n, key, at);
		memory_put(to, stage, n);
	}
}

size_t pattern_check(const void *data, size_t size, uint64_t key, size_t at, size_t *first)
{
	const unsigned char *from = data;
	unsigned char stage[STAGE];
	size_t bad = 0, where;

	if (!memory_is_device(data))
		return host_check(data, size, key, at, first);
	for (size_t done = 0, n; done < size; done += n) {
		size_t some;

		n = piece(size - done, at + done);
		memory_get(stage, from + done, n);
		some = host_check(stage, n, key, at + done, &where);
		if (some && !bad)
			*first = done + where;
		bad += some;
	}
	return bad;
}

void canary_fill(void *data, size_t size)
{
	_Alignas(8) unsigned char stage[STAGE + 8];
	unsigned char *to = data;

	if (!memory_is_device(data)) {
		host_canary(data, size);
		return;
	}
	for (size_t n; size; to += n, size -= n) {
		n = piece(size, (uintptr_t)to);
		host_canary(stage + (uintptr_t)to % 8, n);
		memory_put(to, stage + (uintptr_t)to % 8, n);
	}
}

size_t canary_check(const void *data, size_t size)
{
	_Alignas(8) unsigned char stage[STAGE + 8];
	const unsigned char *from = data;

	if (!memory_is_device(data))
		return host_canary_check(data, size);
	for (size_t done = 0, n; done < size; done += n) {
		uintptr_t phase = (uintptr_t)(from + done) % 8;
		size_t kept;

		n = piece(size - done, phase);
		memory_get(stage + phase, from + done, n);
		kept = host_canary_check(stage + phase, n);
		if (kept < n)
			return done + kept;
	}
	return size;
}

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* whole_pages: how many bytes the pages of size bytes have. */
static size_t whole_pages(size_t size)
{
	return (size + page_size() - 1) / page_size() * page_size();
}

void region_open_host(struct region *region, size_t size)
{
	size_t page = page_size(), body = whole_pages(size);
	unsigned char *map = mmap(NULL, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED || mprotect(map + page, body, PROT_READ | PROT_WRITE))
		die("cannot map %zu bytes for messages; --max or --comms may be too large", body);
	*region = (struct region){.base = map + page, .size = body, .map = map, .map_size = body + 2 * page};
	canary_fill(region->base, region->size);
}

void region_open(struct region *region, size_t size)
{
	if (memory_kind() == MEMORY_HOST) {
		region_open_host(region, size);
		return;
	}
	*region = (struct region){.base = memory_allocate(whole_pages(size)), .size = whole_pages(size)};
	canary_fill(region->base, region->size);
}

void region_close(struct region *region)
{
	if (region->map)
		munmap(region->map, region->map_size);
	else if (region->base)
		memory_free(region->base);
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
