/* libmlx5.so.1: what libibverbs' provider for NVIDIA's adapters has beside the verbs for Data Direct, the PCIe function by which an
 * adapter reaches GPU memory. libibverbs.so.1 loads it where a device has one, as the real one loads its providers. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { DATA_DIRECT = 1 }; /* MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT of <infiniband/mlx5dv.h> */

bool mlx5dv_is_supported(struct ibv_device *device);
int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *context, char *buf, size_t buf_len);
struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, int mlx5_access);
int fakemlx5_registered(void);

/* libibverbs has it, without a place in a header. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static atomic_int registered;

/* The path that tree.c has written for a device with such a function; false for others. */
static bool path_of(struct ibv_device *device, char path[512])
{
	return ibv_read_sysfs_file(device->ibdev_path, "fakeverbs_data_direct", path, 512) > 0;
}

bool mlx5dv_is_supported(struct ibv_device *device)
{
	char path[512];

	return path_of(device, path);
}

int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *context, char *buf, size_t buf_len)
{
	char path[512];

	if (!path_of(context->device, path))
		return errno = ENODEV;
	if (strlen(path) >= buf_len)
		return errno = ENOSPC;
	strcpy(buf, path);
	return 0;
}

struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, int mlx5_access)
{
	struct ibv_mr *mr;
	char path[512];

	if (mlx5_access & ~DATA_DIRECT || (mlx5_access && !path_of(pd->context->device, path))) {
		errno = EINVAL;
		return NULL;
	}
	mr = ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
	if (mr && mlx5_access)
		registered++;
	return mr;
}

/* For tests: how many regions were registered for such a function. */
int fakemlx5_registered(void) { return registered; }
