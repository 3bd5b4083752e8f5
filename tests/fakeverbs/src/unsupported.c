/* Public verbs that this library does not carry out, each with the answer of a device without the ability; and the few that need
 * nothing done. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void *none(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

#define UNUSED __attribute__((unused))

struct ibv_context *ibv_import_device(UNUSED int fd) { return none(); }
struct ibv_pd *ibv_import_pd(UNUSED struct ibv_context *c, UNUSED uint32_t handle) { return none(); }
void ibv_unimport_pd(UNUSED struct ibv_pd *pd) {}
struct ibv_mr *ibv_import_mr(UNUSED struct ibv_pd *pd, UNUSED uint32_t handle) { return none(); }
void ibv_unimport_mr(UNUSED struct ibv_mr *mr) {}
struct ibv_dm *ibv_import_dm(UNUSED struct ibv_context *c, UNUSED uint32_t handle) { return none(); }
void ibv_unimport_dm(UNUSED struct ibv_dm *dm) {}

int ibv_rereg_mr(UNUSED struct ibv_mr *mr, UNUSED int flags, UNUSED struct ibv_pd *pd, UNUSED void *addr, UNUSED size_t length,
		 UNUSED int access)
{
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT;
}

struct ibv_srq *ibv_create_srq(UNUSED struct ibv_pd *pd, UNUSED struct ibv_srq_init_attr *a) { return none(); }
int ibv_modify_srq(UNUSED struct ibv_srq *srq, UNUSED struct ibv_srq_attr *a, UNUSED int mask) { return EOPNOTSUPP; }
int ibv_query_srq(UNUSED struct ibv_srq *srq, UNUSED struct ibv_srq_attr *a) { return EOPNOTSUPP; }
int ibv_destroy_srq(UNUSED struct ibv_srq *srq) { return EOPNOTSUPP; }

struct ibv_ah *ibv_create_ah(UNUSED struct ibv_pd *pd, UNUSED struct ibv_ah_attr *a) { return none(); }
int ibv_init_ah_from_wc(UNUSED struct ibv_context *c, UNUSED uint8_t port, UNUSED struct ibv_wc *wc, UNUSED struct ibv_grh *grh,
			UNUSED struct ibv_ah_attr *a)
{
	return EOPNOTSUPP;
}
struct ibv_ah *ibv_create_ah_from_wc(UNUSED struct ibv_pd *pd, UNUSED struct ibv_wc *wc, UNUSED struct ibv_grh *grh, UNUSED uint8_t port)
{
	return none();
}
int ibv_destroy_ah(UNUSED struct ibv_ah *ah) { return EOPNOTSUPP; }
int ibv_resolve_eth_l2_from_gid(UNUSED struct ibv_context *c, UNUSED struct ibv_ah_attr *a, UNUSED uint8_t mac[6], UNUSED uint16_t *vid)
{
	return EOPNOTSUPP;
}

int ibv_attach_mcast(UNUSED struct ibv_qp *qp, UNUSED const union ibv_gid *gid, UNUSED uint16_t lid) { return EOPNOTSUPP; }
int ibv_detach_mcast(UNUSED struct ibv_qp *qp, UNUSED const union ibv_gid *gid, UNUSED uint16_t lid) { return EOPNOTSUPP; }

/* Copies reach whatever is mapped at the time, so a fork takes nothing away. */
int ibv_fork_init(void) { return 0; }
enum ibv_fork_status ibv_is_fork_initialized(void) { return IBV_FORK_UNNEEDED; }
int ibv_dontfork_range(UNUSED void *base, UNUSED size_t size);
int ibv_dofork_range(UNUSED void *base, UNUSED size_t size);
int ibv_dontfork_range(UNUSED void *base, UNUSED size_t size) { return 0; }
int ibv_dofork_range(UNUSED void *base, UNUSED size_t size) { return 0; }

/* Of use to the kernel's connection manager only, which has no part in this. */
void ibv_copy_ah_attr_from_kern(UNUSED void *to, UNUSED void *from);
void ibv_copy_qp_attr_from_kern(UNUSED void *to, UNUSED void *from);
void ibv_copy_path_rec_from_kern(UNUSED void *to, UNUSED void *from);
void ibv_copy_path_rec_to_kern(UNUSED void *to, UNUSED void *from);
void ibv_copy_ah_attr_from_kern(UNUSED void *to, UNUSED void *from) {}
void ibv_copy_qp_attr_from_kern(UNUSED void *to, UNUSED void *from) {}
void ibv_copy_path_rec_from_kern(UNUSED void *to, UNUSED void *from) {}
void ibv_copy_path_rec_to_kern(UNUSED void *to, UNUSED void *from) {}

const char *ibv_get_sysfs_path(void);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

const char *ibv_get_sysfs_path(void)
{
	return fake_attach() || access("/sys/class/infiniband", F_OK) == 0 ? "/sys" : sysfs_root();
}

/* The file's bytes without the last newline, ended by a zero; -1 when it cannot be read. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[4096];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size);
	close(fd);
	if (n > 0 && buf[n - 1] == '\n')
		buf[--n] = 0;
	else if (n >= 0 && (size_t)n < size)
		buf[n] = 0;
	return (int)n;
}
