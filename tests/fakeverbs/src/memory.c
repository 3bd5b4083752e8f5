/* Where the bytes of a region lie: memory of the process as the kernel pins it, device memory through the address at which the processor
 * can read it, DMA-BUFs through a mapping of the descriptor. */
#include "fake.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t page_start(uint64_t addr) { return addr & ~(uint64_t)(PAGE - 1); }

/* The kernel refuses a range with holes. */
static bool mapped(uint64_t addr, uint64_t length)
{
	uint64_t first = page_start(addr), end = addr + length;

	return end >= addr && msync((void *)first, end - first, MS_ASYNC) == 0;
}

/* Whether the process may read all of a mapped range, and write it where `write` says so. */
static bool permitted(uint64_t addr, uint64_t length, bool write)
{
	FILE *f = fopen("/proc/self/maps", "re");
	bool ok = true;
	char *line = NULL;
	size_t size = 0;

	if (!f)
		return true;
	while (ok && getline(&line, &size, f) > 0) {
		unsigned long long from, to;
		char r, w;

		if (sscanf(line, "%llx-%llx %c%c", &from, &to, &r, &w) != 4 || to <= addr)
			continue;
		if (from >= addr + length)
			break;
		ok = r == 'r' && (w == 'w' || !write);
	}
	free(line);
	fclose(f);
	return ok;
}

/* The function of a libcuda.so.1 for tests that gives the readable address of device memory, NULL for other memory: what the kernel's
 * module for peer memory asks the GPU's driver. The library may have been loaded for its own user alone, so it is looked for by name. */
typedef void *(*alias_function)(const void *addr, size_t length);

static alias_function find_alias(void)
{
	void *own, *found = dlsym(RTLD_DEFAULT, "fakecuda_alias");
	alias_function f;

	if (!found) {
		own = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
		found = own ? dlsym(own, "fakecuda_alias") : NULL;
		if (own)
			dlclose(own);
	}
	memcpy(&f, &found, sizeof(f));
	return f;
}

static bool has_peermem(void)
{
	static const char *const files[] = {
		"kernel/mm/memory_peers/nv_mem/version", "kernel/mm/memory_peers/nv_mem_nc/version", "module/nvidia_peermem/version",
	};
	char path[4200];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", sysfs_root(), files[i]);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

int memory_find(uint64_t addr, uint64_t length, unsigned int access, uint64_t *readable, bool *gpu)
{
	alias_function alias = find_alias();
	void *at = alias ? alias((const void *)addr, length) : NULL;

	*gpu = at != NULL;
	if (at) {
		if (!has_peermem()) {
			fake_say("ibv_reg_mr of device memory: EFAULT, for node %s has no peermem: its line in the topology is to say 'node %s peermem'",
				 shm->node[fake.node].name, shm->node[fake.node].name);
			return EFAULT;
		}
		*readable = (uint64_t)at;
		return 0;
	}
	*readable = addr;
	return mapped(addr, length) && permitted(addr, length, access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) ? 0 : EFAULT;
}

/* A DMA-BUF is a memfd here, from the descriptor's position on; the kernel answers EINVAL for a descriptor of another kind. The region
 * keeps a mapping and no descriptor. */
int memory_map(int fd, uint64_t offset, uint64_t length, struct memory_map *map, uint64_t *readable)
{
	uint64_t first = page_start(offset), end = offset + length;
	struct stat st;
	off_t start;

	if (fcntl(fd, F_GETFD) < 0)
		return EBADF;
	start = lseek(fd, 0, SEEK_CUR);
	if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &st) || start < 0 || start % PAGE || length == 0 || end < offset)
		return EINVAL;
	if (start > st.st_size || end > (uint64_t)(st.st_size - start))
		return EINVAL;
	map->size = end - first;
	map->addr = mmap(NULL, map->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, start + (off_t)first);
	if (map->addr == MAP_FAILED) {
		*map = (struct memory_map){0};
		return errno;
	}
	*readable = (uint64_t)map->addr + (offset - first);
	return 0;
}

void memory_unmap(struct memory_map *map)
{
	if (map->size)
		munmap(map->addr, map->size);
	*map = (struct memory_map){0};
}
