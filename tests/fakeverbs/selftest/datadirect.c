/* Data Direct: the function of an adapter for GPU memory, as libmlx5 tells it. Node a has one, node b has not. */
#include "selftest.h"

#include <dlfcn.h>
#include <sys/mman.h>

enum { PAGE = 4096, SIZE = 4 * PAGE };

typedef int path_fn(struct ibv_context *context, char *buf, size_t buf_len);
typedef struct ibv_mr *register_fn(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, int mlx5_access);

typedef int count_fn(void);

/* ISO C has no conversion of what dlvsym returns to a function. */
static void find(void *lib, const char *name, const char *version, void *function)
{
	void *p = dlvsym(lib, name, version);

	CHECK(p, "%s", dlerror());
	memcpy(function, &p, sizeof(p));
}

static void datadirect(void)
{
	static const char want[] = "/devices/pci0000:00/0000:00:02.0/0000:02:00.0";
	struct end e;
	struct ibv_mr *mr;
	register_fn *reg;
	path_fn *path;
	count_fn *registered;
	char buf[256], file[4200];
	void *lib;
	int fd;

	make_end(&e, &(struct wish){0});
	lib = dlopen("libmlx5.so.1", RTLD_NOLOAD | RTLD_LAZY);
	if (!is_a) {
		CHECK(!lib, "the provider is loaded for a node that has no use for it");
		close_end(&e);
		return;
	}
	CHECK(lib, "%s", dlerror());
	find(lib, "mlx5dv_get_data_direct_sysfs_path", "MLX5_1.25", &path);
	find(lib, "mlx5dv_reg_dmabuf_mr", "MLX5_1.25", &reg);
	find(lib, "fakemlx5_registered", "FAKEMLX5", &registered);
	EQUAL(path(e.ctx, buf, sizeof(buf)), 0);
	CHECK(strcmp(buf, want) == 0, "%s", buf);
	EQUAL(path(e.ctx, buf, sizeof(want)), 0);
	EQUAL(path(e.ctx, buf, sizeof(want) - 1), ENOSPC);
	snprintf(file, sizeof(file), "%s%s/class", getenv("NCCL_MESH_SYSFS"), want);
	CHECK(access(file, F_OK) == 0, "%s", file);

	fd = memfd_create("gpu", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
	mr = reg(e.pd, PAGE, PAGE, 0x7000000, fd, ALL, 1);
	CHECK(mr, "%s", strerror(errno));
	EQUAL(ibv_dereg_mr(mr), 0);
	mr = reg(e.pd, 0, SIZE, 0x7000000, fd, ALL, 0);
	CHECK(mr, "%s", strerror(errno));
	EQUAL(ibv_dereg_mr(mr), 0);
	CHECK(!reg(e.pd, 0, SIZE, 0x7000000, fd, ALL, 2) && errno == EINVAL);
	CHECK(!reg(e.pd, 0, SIZE, 0x7000000, -1, ALL, 1) && errno == EBADF);
	EQUAL(registered(), 1);
	close(fd);
	close_end(&e);
	e.ctx = open_device("ib0"); /* a device without such a function */
	EQUAL(path(e.ctx, buf, sizeof(buf)), ENODEV);
	EQUAL(ibv_close_device(e.ctx), 0);
}

const struct test datadirect_tests[] = {{"datadirect", datadirect}, {NULL, NULL}};
