/*
 * rmaorder: another order of calls than NCCL's, that of the functional tests of aws-ofi-nccl (tests/functional/rma_duplicate_mr.cpp): the listener stays open to the end,
 * the same memory is registered again and again, one rank deregisters alone before all register again, windows go before the context,
 * and the RMA interface before the network.
 */
#include <string.h>

#include "log.h"
#include "progress.h"
#include "rma_side.h"
#include "watchdog.h"
#include "work.h"

enum { SIZE = 4096 };

static void put(struct side *s, void *mhandle, size_t size, int rank)
{
	struct rma_call call = {.source = mhandle, .target = mhandle, .size = size, .rank = (uint32_t)rank, .words = s->words.mhandle,
	                        .op = NCCL_NET_SIGNAL_OP_INC, .value = 1, .strong = true};
	unsigned idle = 0;
	void *request;

	side_need(s, rma_put(s->rma, s->ctx, &call, &request), "iputSignal");
	for (int done = 0; !done; progress_idle(&idle)) {
		side_need(s, rma_test(s->rma, s->coll, request, &done), "test");
		if (!done && s->rma->table->rmaProgress)
			side_need(s, s->rma->table->rmaProgress(s->ctx), "rmaProgress");
	}
}

/* check waits for the signals of a round, which make bytes in GPU memory visible, and then looks at them. */
static void check(struct side *s, const struct region *r, uint64_t signals, uint64_t key, const char *what)
{
	unsigned idle = 0;
	size_t first;

	while (side_word(s, 0) < signals) {
		if (s->rma->table->rmaProgress)
			side_need(s, s->rma->table->rmaProgress(s->ctx), "rmaProgress");
		progress_idle(&idle);
	}
	if (pattern_check(r->base, SIZE, key, 0, &first))
		wrong("another order of calls: %s: byte %zu of %d is wrong", what, first, SIZE);
	rendezvous_barrier(&s->job->rv);
}

void work_rmaorder(struct job *job)
{
	struct rma loaded, *rma = &loaded;
	struct side s = {.job = job, .rma = rma, .gin = true, .contexts = 1};
	int n = job->opt.nranks, rank = job->opt.rank;
	void *net, *listen, *mhandles[5];
	struct region r;

	if (!rma_load(rma, &job->net, job->opt.rma))
		die("the library exports no ncclRmaPlugin of that version");
	plugin_init(job, &net, mix(job->opt.seed ^ 0x53));
	check_call(rma_init(rma, &s.init, mix(job->opt.seed ^ 0x53)), "RMA init");
	listen = side_connect(&s, NULL, true);
	side_need(&s, rma_create_context(rma, s.coll, 1, &s.ctx), "createContext");
	window_open(&s, &s.words, 8, job->opt.windows != WINDOWS_ALL, NCCL_NET_MR_FLAG_FORCE_SO);
	region_open(&r, SIZE);
	for (int i = 0; i < 3; i++)
		side_need(&s, rma_reg(rma, s.coll, r.base, i == 2 ? SIZE / 2 : SIZE, 0, &mhandles[i]), "regMrSym");
	if (rank == 0)
		pattern_fill(r.base, SIZE, 55, 0);
	rendezvous_barrier(&job->rv);
	for (int to = 1; rank == 0 && to < n; to++)
		put(&s, mhandles[to % 2], SIZE, to);
	check(&s, &r, rank != 0, 55, "a put by a second registration of the same memory");
	for (int i = 0; i < 3; i++)
		side_need(&s, rma->table->deregMrSym(s.coll, mhandles[i]), "deregMrSym");

	side_need(&s, rma_reg(rma, s.coll, r.base, SIZE, 0, &mhandles[3]), "regMrSym");
	if (rank == 0)
		side_need(&s, rma->table->deregMrSym(s.coll, mhandles[3]), "deregMrSym");
	rendezvous_barrier(&job->rv);
	side_need(&s, rma_reg(rma, s.coll, r.base, SIZE, 0, &mhandles[4]), "regMrSym");
	pattern_fill(r.base, SIZE, rank == n - 1 ? 77 : 1, 0);
	rendezvous_barrier(&job->rv);
	for (int to = 0; rank == n - 1 && to < n; to++)
		put(&s, mhandles[4], SIZE, to);
	check(&s, &r, (rank != 0) + 1, 77, "a put to a rank that had deregistered alone");
	side_need(&s, rma->table->deregMrSym(s.coll, mhandles[4]), "deregMrSym");
	if (rank != 0)
		side_need(&s, rma->table->deregMrSym(s.coll, mhandles[3]), "deregMrSym");
	window_close(&s, &s.words);
	side_need(&s, rma->table->destroyContext(s.ctx), "destroyContext");
	side_need(&s, rma->table->closeColl(s.coll), "closeColl");
	side_need(&s, rma->table->closeListen(listen), "closeListen");
	side_need(&s, rma->table->finalize(s.init), "finalize");
	plugin_fini(job, net);
	region_close(&r);
	rendezvous_barrier(&job->rv);
}
