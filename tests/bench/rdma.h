/* What the programs over libibverbs have in common: a device, and queue pairs between two processes. */
#ifndef BENCH_RDMA_H
#define BENCH_RDMA_H

#include <infiniband/verbs.h>

#include "bench.h"

/* Where a queue pair is, to its peer. */
struct rdma_end {
	union ibv_gid gid;
	uint32_t qpn;
};

void rdma_open(const struct options *o);
struct ibv_mr *rdma_register(void *data, size_t size);
struct ibv_cq *rdma_cq(int depth, bool waited); /* waited: it can be slept on */
void rdma_arm(struct ibv_cq *cq);               /* before the last look that finds nothing */
void rdma_sleep(struct ibv_cq *cq);             /* until something has come since it was armed */
struct ibv_qp *rdma_qp(struct ibv_cq *cq, struct ibv_qp_cap cap); /* in INIT */
struct rdma_end rdma_end(const struct ibv_qp *qp);
void rdma_join(struct ibv_qp *qp, const struct rdma_end *peer); /* takes it to RTS */
void rdma_check(const struct ibv_wc *wc);                       /* that it is of a success */

#endif
