/*
 * A stand-in for libmlx5, for the tests of package ibv: the two calls of Data Direct. With -DOLD it is one that came before them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <infiniband/verbs.h>

typedef struct ibv_mr *register_fn(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);

static const char *path;
static int path_errno, last_access = -1;
static register_fn *registers;

void mlx5_standin(const char *p, int err, register_fn *r);
int mlx5_standin_access(void);

/* Sets the path of the device's function, or the errno that tells that there is none, and the function that registers memory. */
void mlx5_standin(const char *p, int err, register_fn *r)
{
	static char kept[256];

	strncpy(kept, p, sizeof kept - 1);
	path = kept;
	path_errno = err;
	registers = r;
}

/* The access flags of mlx5 of the last registration. */
int mlx5_standin_access(void) { return last_access; }

#ifndef OLD
int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *context, char *buf, size_t buf_len);
int mlx5dv_get_data_direct_sysfs_path(struct ibv_context *context, char *buf, size_t buf_len)
{
	(void)context;
	if (path_errno)
		return errno = path_errno;
	if (strlen(path) >= buf_len)
		return errno = ENOSPC;
	strcpy(buf, path);
	return 0;
}

struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, int mlx5_access);
struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, int mlx5_access)
{
	last_access = mlx5_access;
	return registers(pd, offset, length, iova, fd, access);
}
#endif
