/* Memory that the processor cannot touch, as a GPU's: registered by address where the node has peermem, and as a DMA-BUF. */
#include "selftest.h"

#include <sys/mman.h>

enum { DEVICE = 1 << 20, PAGE = 4096 };

/* Pretend device memory: no load or store reaches it at its address, both do at the alias. */
struct device {
	unsigned char *addr, *alias;
	int fd;
};

static struct device known; /* to fakecuda_alias */

/* What the library asks a libcuda.so.1 for tests; this program stands in for it. */
void *fakecuda_alias(const void *addr, size_t length);
void *fakecuda_alias(const void *addr, size_t length)
{
	const unsigned char *p = addr;

	if (!known.addr || p < known.addr || p >= known.addr + DEVICE || length > (size_t)(known.addr + DEVICE - p))
		return NULL;
	return known.alias + (p - known.addr);
}

static void open_memory(struct device *d)
{
	d->fd = memfd_create("device", MFD_CLOEXEC);
	CHECK(d->fd >= 0 && ftruncate(d->fd, DEVICE) == 0);
	d->addr = mmap(NULL, DEVICE, PROT_NONE, MAP_SHARED, d->fd, 0);
	d->alias = mmap(NULL, DEVICE, PROT_READ | PROT_WRITE, MAP_SHARED, d->fd, 0);
	CHECK(d->addr != MAP_FAILED && d->alias != MAP_FAILED);
	known = *d;
}

static void close_memory(struct device *d)
{
	known = (struct device){0};
	munmap(d->addr, DEVICE);
	munmap(d->alias, DEVICE);
	close(d->fd);
}

/* Memory is registered if the process could do with it what the adapter is allowed to do. */
static void touchable(void)
{
	struct end e;
	unsigned char *p;
	struct ibv_mr *mr;

	make_end(&e, &(struct wish){0});
	p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED);
	EQUAL(mprotect(p + PAGE, PAGE, PROT_READ), 0);
	EQUAL(mprotect(p + 2 * PAGE, PAGE, PROT_NONE), 0);
	CHECK(!ibv_reg_mr(e.pd, p + 2 * PAGE, 1, 0) && errno == EFAULT);
	CHECK(!ibv_reg_mr(e.pd, p + PAGE, PAGE + 1, 0) && errno == EFAULT);
	CHECK(!ibv_reg_mr(e.pd, p + 2 * PAGE - 1, 1, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	CHECK(!ibv_reg_mr(e.pd, p, PAGE + 1, ALL) && errno == EFAULT);
	mr = ibv_reg_mr(e.pd, p, PAGE, ALL);
	CHECK(mr);
	EQUAL(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(e.pd, p, 2 * PAGE, IBV_ACCESS_REMOTE_READ);
	CHECK(mr);
	EQUAL(ibv_dereg_mr(mr), 0);
	munmap(p, 4 * PAGE);
	close_end(&e);
}

/* ibv_reg_mr takes device memory where the node's kernel has the module for it, and nowhere else. */
static void peermem(void)
{
	static const char *const files[] = {
		"kernel/mm/memory_peers/nv_mem/version", "kernel/mm/memory_peers/nv_mem_nc/version", "module/nvidia_peermem/version",
	};
	const char *sys = getenv("NCCL_MESH_SYSFS");
	char aside[4200], own[4200], command[4300];
	struct device d;
	struct end e;
	struct ibv_mr *mr;

	CHECK(sys);
	snprintf(own, sizeof(own), "%s/%s", sys, files[2]);
	snprintf(aside, sizeof(aside), "%s/aside", sys);
	make_end(&e, &(struct wish){0});
	open_memory(&d);
	if (is_a) {
		EQUAL(rename(own, aside), 0);
		CHECK(!ibv_reg_mr(e.pd, d.addr, PAGE, ALL) && errno == EFAULT);
		for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
			snprintf(own, sizeof(own), "%s/%s", sys, files[i]);
			snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", own);
			EQUAL(system(command), 0);
			EQUAL(rename(aside, own), 0);
			mr = ibv_reg_mr(e.pd, d.addr + 100, DEVICE - 100, ALL);
			CHECK(mr && mr->addr == d.addr + 100, "%s", files[i]);
			EQUAL(ibv_dereg_mr(mr), 0);
			if (i < 2)
				EQUAL(rename(own, aside), 0);
		}
		CHECK(!ibv_reg_mr(e.pd, d.addr, DEVICE + 1, ALL) && errno == EFAULT); /* beyond the allocation */
		CHECK(!ibv_reg_mr(e.pd, d.addr + DEVICE - 1, 2, ALL) && errno == EFAULT);
		known = (struct device){0};
		CHECK(!ibv_reg_mr(e.pd, d.addr, PAGE, ALL) && errno == EFAULT); /* memory of no GPU */
	}
	close_memory(&d);
	meet();
	close_end(&e);
}

static unsigned char mark(size_t i, unsigned seed) { return (unsigned char)((i * 131 + seed * 29 + (i >> 9)) ^ seed); }

static void fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = mark(i, seed);
}

static void same(const unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		CHECK(p[i] == mark(i, seed), "seed %u: byte %zu of %zu", seed, i, n);
}

/* Registers device memory from the `skip`-th byte on in place of the end's own buffer, by address or as a DMA-BUF whose descriptor is
 * closed at once. */
static void use_device(struct end *e, const struct device *d, size_t skip, bool dmabuf)
{
	unsigned char *at = d->addr + skip;
	int fd = dup(d->fd);

	EQUAL(ibv_dereg_mr(e->mr), 0);
	EQUAL(lseek(fd, PAGE, SEEK_SET), PAGE); /* the DMA-BUF is what starts there */
	e->mr = dmabuf ? ibv_reg_dmabuf_mr(e->pd, skip - PAGE, DEVICE - skip, (uint64_t)at, fd, ALL) : ibv_reg_mr(e->pd, at, DEVICE - skip, ALL);
	close(fd);
	CHECK(e->mr, "%s", strerror(errno));
	free(e->buf);
	e->buf = at;
}

/* Every operation with device memory at both ends: what is sent, written and read is right, and nothing beside it changes. */
static void moves(bool dmabuf)
{
	enum { SKIP = 3 * PAGE + 5, N = 300001 };
	struct device d;
	struct end e;
	unsigned char *at;

	make_end(&e, &(struct wish){0});
	open_memory(&d);
	at = d.alias + SKIP;
	memset(d.alias, 0xee, DEVICE);
	use_device(&e, &d, SKIP, dmabuf);
	swap(&e);
	EQUAL(to_init(&e), 0);
	EQUAL(to_rtr(&e), 0);
	EQUAL(to_rts(&e, &(struct wish){0}), 0);
	if (is_a) {
		fill(at, N, 1);
		fill(at + N, N, 2);
		meet();
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, N, 1, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 1, IBV_WC_SUCCESS);
		EQUAL(post(&e, IBV_WR_SEND_WITH_IMM, 2, N, N, 0, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 2, IBV_WC_SUCCESS);
		meet();
		EQUAL(post(&e, IBV_WR_RDMA_READ, 3, 2, N, 1, IBV_SEND_SIGNALED), 0); /* what b filled since */
		want_wc(&e, 3, IBV_WC_SUCCESS);
		same(at + 2, N, 3);
		EQUAL(at[1], mark(1, 1));
	} else {
		EQUAL(post_recv(&e, 9, N + 7, N), 0);
		meet();
		want_wc(&e, 9, IBV_WC_SUCCESS);
		same(at + 1, N, 1);
		same(at + N + 7, N, 2);
		EQUAL(at[0], 0xee);
		EQUAL(at[-1], 0xee);
		EQUAL(at[N + 1], 0xee);
		EQUAL(at[2 * N + 7], 0xee);
		fill(at + 1, N, 3);
		meet();
	}
	meet();
	e.buf = NULL;
	close_end(&e);
	close_memory(&d);
}

static void device_by_address(void) { moves(false); }
static void device_as_dmabuf(void) { moves(true); }

/* A mapping that the region keeps ends with it. */
static void dmabuf_ends(void)
{
	struct device d;
	struct end e;

	make_end(&e, &(struct wish){0});
	open_memory(&d);
	for (int i = 0; i < 70000; i++) { /* more than a process may have mappings */
		struct ibv_mr *mr = ibv_reg_dmabuf_mr(e.pd, 8, 8, 8, d.fd, ALL);

		CHECK(mr, "%d: %s", i, strerror(errno));
		EQUAL(ibv_dereg_mr(mr), 0);
	}
	close_memory(&d);
	close_end(&e);
}

/* With the fault, the start of a write to device memory shows after a while, or when the same device reads there, by a queue pair that is
 * connected to itself say; before, nothing of a write of a few bytes does. Host memory shows at once. */
static void late(void)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 4, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1}};
	struct end e, self;
	struct device d;

	make_end(&e, &(struct wish){0});
	open_memory(&d);
	memset(d.alias, 0xee, DEVICE);
	use_device(&e, &d, PAGE, false);
	swap(&e);
	EQUAL(to_init(&e), 0);
	EQUAL(to_rtr(&e), 0);
	EQUAL(to_rts(&e, &(struct wish){0}), 0);
	self = e;
	init.send_cq = init.recv_cq = e.cq;
	self.qp = ibv_create_qp(e.pd, &init);
	CHECK(self.qp);
	self.self.qpn = self.qp->qp_num;
	self.peer = self.self;
	EQUAL(to_init(&self), 0);
	EQUAL(to_rtr(&self), 0);
	EQUAL(to_rts(&self, &(struct wish){0}), 0);
	if (is_a) {
		memset(d.alias + PAGE, 'a', 200000);
		fakefault("late time=1000s");
		meet();
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 100000, 0, 0), 0);
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 2, 0, 5, 150000, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 2, IBV_WC_SUCCESS);
		meet();
		meet();
		fakefault("clear");
		fakefault("late time=1ms");
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 3, 0, 5, 160000, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 3, IBV_WC_SUCCESS);
		meet();
		fakefault("clear");
	} else {
		const unsigned char *at = d.alias + PAGE;

		meet();
		meet();
		EQUAL(at[0], 0xee);
		EQUAL(at[7], 0xee);
		EQUAL(at[8], 'a');
		EQUAL(at[99999], 'a');
		EQUAL(at[150000], 0xee);
		EQUAL(at[150004], 0xee);
		EQUAL(post(&self, IBV_WR_RDMA_READ, 9, 200000, 1, 3, IBV_SEND_SIGNALED), 0);
		want_wc(&self, 9, IBV_WC_SUCCESS);
		EQUAL(at[0], 'a');
		EQUAL(at[7], 'a');
		EQUAL(at[150004], 'a');
		EQUAL(at[200000], 0xee); /* what a read brings to a GPU's memory is a write */
		EQUAL(post(&self, IBV_WR_RDMA_READ, 9, 200010, 0, 3, IBV_SEND_SIGNALED), 0);
		want_wc(&self, 9, IBV_WC_SUCCESS);
		EQUAL(at[200000], 0xee); /* nothing was read */
		EQUAL(post(&self, IBV_WR_RDMA_READ, 9, 200020, 1, 3, IBV_SEND_SIGNALED), 0);
		want_wc(&self, 9, IBV_WC_SUCCESS);
		EQUAL(at[200000], 'a');
		meet();
		meet();
		while (__atomic_load_n(&at[160004], __ATOMIC_ACQUIRE) != 'a') /* no call of a verb is needed */
			usleep(100);
	}
	EQUAL(ibv_destroy_qp(self.qp), 0);
	meet();
	e.buf = NULL;
	close_end(&e);
	close_memory(&d);
}

const struct test gpu_tests[] = {
	{"touchable", touchable},           {"peermem", peermem},         {"device_by_address", device_by_address},
	{"device_as_dmabuf", device_as_dmabuf}, {"dmabuf_ends", dmabuf_ends}, {"late", late}, {NULL, NULL},
};
