#include "shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct shm *shm;

static const size_t shm_size = sizeof(struct shm) + ARENA_PAGES * PAGE;

static struct shm *map(int fd)
{
	void *p = mmap(NULL, shm_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int state_path(char *out, size_t n, const char *dir, const char *suffix)
{
	if ((size_t)snprintf(out, n, "%s/state%s", dir, suffix) < n)
		return 0;
	errno = ENAMETOOLONG;
	return -1;
}

static void robust(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(m, &a);
	pthread_mutexattr_destroy(&a);
}

/* A new state, not yet visible to anybody: fill it, then publish. */
struct shm *shm_create(const char *dir)
{
	char path[4096];
	struct shm *s = NULL;
	int fd;

	if (state_path(path, sizeof(path), dir, ".new"))
		return NULL;
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return NULL;
	if (ftruncate(fd, shm_size) == 0)
		s = map(fd);
	close(fd);
	if (!s)
		return NULL;
	s->magic = SHM_MAGIC;
	s->version = SHM_VERSION;
	s->size = shm_size;
	s->next_pd = 1;
	for (int i = 0; i < MAX_PROCS; i++)
		robust(&s->proc[i].alive);
	return s;
}

int shm_publish(struct shm *s, const char *dir)
{
	char from[4096], to[4096];

	if (state_path(from, sizeof(from), dir, ".new") || state_path(to, sizeof(to), dir, ""))
		return -1;
	shm = s;
	return rename(from, to);
}

int shm_attach(const char *dir)
{
	char path[4096];
	struct stat st;
	struct shm *s;
	int fd;

	if (shm)
		return 0;
	if (state_path(path, sizeof(path), dir, ""))
		return -1;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (fstat(fd, &st) || (size_t)st.st_size != shm_size) {
		close(fd);
		errno = EPROTO;
		return -1;
	}
	s = map(fd);
	close(fd);
	if (!s)
		return -1;
	if (s->magic != SHM_MAGIC || s->version != SHM_VERSION || s->size != shm_size) {
		munmap(s, shm_size);
		errno = EPROTO;
		return -1;
	}
	shm = s;
	return 0;
}

uint32_t rota_take(struct shm_rota *r, uint32_t all, bool (*busy)(uint32_t place))
{
	for (r->size = r->size ? r->size : 64;; r->size *= 2) {
		for (uint32_t i = 0; i < r->size; i++) {
			uint32_t at = (r->next + i) % r->size;

			if (!busy(at)) {
				r->next = at + 1;
				return at;
			}
		}
		if (r->size >= all)
			return all;
	}
}

/* The first page is never given out, so that 0 can mean "none". */
uint64_t arena_alloc(size_t bytes, int proc)
{
	size_t want = (bytes + PAGE - 1) / PAGE, run = 0, at = shm->next_page;

	for (size_t tried = 0; tried < ARENA_PAGES; tried++, at++) {
		if (at >= ARENA_PAGES || at == 0) {
			at = 1;
			run = 0;
		}
		run = shm->page_owner[at] ? 0 : run + 1;
		if (run == want) {
			size_t first = at - want + 1;

			for (size_t i = first; i <= at; i++)
				shm->page_owner[i] = (int16_t)(proc + 1);
			shm->next_page = at + 1;
			return (uint64_t)first * PAGE;
		}
	}
	return 0;
}

void arena_free(uint64_t offset, size_t bytes)
{
	size_t first = offset / PAGE, n = (bytes + PAGE - 1) / PAGE;

	memset(&shm->page_owner[first], 0, n * sizeof(shm->page_owner[0]));
	if (first < shm->next_page)
		shm->next_page = first;
}

int futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

	return (int)syscall(SYS_futex, word, FUTEX_WAIT, seen, ns ? &t : NULL, NULL, 0);
}

void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

const char *const verb_names[VERBS] = {
#define name(v) [VERB_##v] = #v
	name(open_device), name(query_device), name(query_port), name(query_gid), name(alloc_pd), name(reg_mr), name(reg_dmabuf_mr),
	name(dereg_mr),
	name(create_comp_channel), name(create_cq), name(destroy_cq), name(create_qp), name(modify_qp), name(query_qp),
	name(destroy_qp), name(query_ece), name(set_ece), name(post_send), name(post_recv), name(poll_cq), name(req_notify_cq),
#undef name
};
