// Memory: a memfd mapped twice. At the address that programs get, device memory is PROT_NONE.
#include "memory.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct block {
	struct memory m;
	size_t mapped; // size in whole pages
	struct block *next;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static uint64_t last_id;
static struct {
	uintptr_t base;
	size_t mapped;
} freed[16]; // where memory was, as hints for the next of that size
static unsigned freed_next;

static size_t page_size(void) {
	return (size_t)sysconf(_SC_PAGESIZE);
}

static void *hint(size_t mapped) {
	for (unsigned i = 0; i < sizeof freed / sizeof freed[0]; i++)
		if (freed[i].base && freed[i].mapped == mapped) {
			void *at = (void *)freed[i].base;
			freed[i].base = 0;
			return at;
		}
	return NULL;
}

static bool map(struct block *b) {
	if (ftruncate(b->m.fd, (off_t)b->mapped)) return false;
	b->m.bytes = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, b->m.fd, 0);
	if (b->m.bytes == MAP_FAILED) return false;
	int access = b->m.kind == MEMORY_DEVICE ? PROT_NONE : PROT_READ | PROT_WRITE;
	void *base = mmap(hint(b->mapped), b->mapped, access, MAP_SHARED, b->m.fd, 0);
	if (base == MAP_FAILED) {
		munmap(b->m.bytes, b->mapped);
		return false;
	}
	b->m.base = (uintptr_t)base;
	return true;
}

void *memory_allocate(size_t size, enum memory_kind kind) {
	size_t page = page_size();
	if (size == 0 || size > SIZE_MAX - page) return NULL;
	struct block *b = malloc(sizeof *b);
	if (!b) return NULL;
	*b = (struct block){{.size = size, .kind = kind, .fd = memfd_create("fakecuda", MFD_CLOEXEC)}, (size + page - 1) / page * page, NULL};
	pthread_mutex_lock(&mu);
	bool mapped = b->m.fd >= 0 && map(b);
	if (mapped) {
		b->m.id = ++last_id;
		b->next = blocks;
		blocks = b;
	}
	pthread_mutex_unlock(&mu);
	if (mapped) return (void *)b->m.base;
	if (b->m.fd >= 0) close(b->m.fd);
	free(b);
	return NULL;
}

bool memory_free(const void *base, enum memory_kind kind) {
	pthread_mutex_lock(&mu);
	struct block **at = &blocks, *b;
	while ((b = *at) && b->m.base != (uintptr_t)base) at = &b->next;
	if (b && (b->m.kind == kind || (kind == MEMORY_DEVICE && b->m.kind == MEMORY_MANAGED))) {
		*at = b->next;
		munmap((void *)b->m.base, b->mapped);
		munmap(b->m.bytes, b->mapped);
		freed[freed_next].base = b->m.base;
		freed[freed_next].mapped = b->mapped;
		freed_next = (freed_next + 1) % (sizeof freed / sizeof freed[0]);
	} else {
		b = NULL;
	}
	pthread_mutex_unlock(&mu);
	if (!b) return false;
	close(b->m.fd);
	free(b);
	return true;
}

bool memory_find(const void *at, struct memory *found) {
	pthread_mutex_lock(&mu);
	struct block *b = blocks;
	while (b && (uintptr_t)at - b->m.base >= b->m.size) b = b->next;
	if (b) *found = b->m;
	pthread_mutex_unlock(&mu);
	return b;
}

char *memory_reach(const void *at, size_t length) {
	struct memory m;
	if (!memory_find(at, &m) || m.kind == MEMORY_HOST) return NULL;
	size_t offset = (uintptr_t)at - m.base;
	return length <= m.size - offset ? m.bytes + offset : NULL;
}

int memory_export(const void *at, size_t length) {
	struct memory m;
	size_t page = page_size();
	if (!memory_find(at, &m) || m.kind != MEMORY_DEVICE || (uintptr_t)at % page || length == 0 || length % page) return -1;
	size_t offset = (uintptr_t)at - m.base;
	if (length > (m.size + page - 1) / page * page - offset) return -1;
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", m.fd);
	int fd = open(path, O_RDWR | O_CLOEXEC); // unlike a dup, it has a position of its own
	if (fd >= 0) lseek(fd, (off_t)offset, SEEK_SET);
	return fd;
}

EXPORT void *fakecuda_alias(const void *at, size_t length) {
	return memory_reach(at, length);
}
