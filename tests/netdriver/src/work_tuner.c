/* tuner: what NCCL expects of one, and what it chooses. Its cases run like those of contract. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"
#include "log.h"
#include "tuner.h"
#include "work.h"

enum { ERROR = 200, QUESTIONS = 1000 };

static const int meshes[] = {2, 3, 4, 5, 8, 16};

/* random_question is the same for every rank. */
static struct question random_question(struct random *random, int nranks)
{
	struct question q = {.coll = (int)random_below(random, NCCL_FUNCS), .reg = (int)random_below(random, 2)};
	uint64_t impossible = random_below(random, 3) ? 0 : random_below(random, 1 << 21);
	unsigned exponent = (unsigned)random_below(random, 42);

	q.ops = random_below(random, 4) ? 1 : 1 + (int)random_below(random, 32);
	q.algos = random_below(random, 4) ? NCCL_ALGOS : NCCL_ALGOS_BEFORE_PAT;
	q.bytes = exponent ? random_below(random, 1ull << exponent) : 0; /* 0 comes too */
	tuner_price(&q, nranks);
	for (int i = 0; i < NCCL_ALGOS * NCCL_PROTOS; i++)
		if (impossible >> i & 1)
			q.cells[i / NCCL_PROTOS][i % NCCL_PROTOS] = -1;
	return q;
}

static bool find(struct trial *t, struct tuner *tuner, int version)
{
	return expect(t, tuner_find(tuner, t->job->net.library, version), "ncclTunerPlugin_v%d is missing or lacks a member",
	              version);
}

static bool start(struct trial *t, const struct tuner *tuner, void **ctx, int nranks, int nnodes)
{
	return expect_ok(t, tuner_init(tuner, ctx, (size_t)nranks, (size_t)nnodes), "tuner init") &&
	       expect(t, *ctx != net_garbage(), "tuner init left its context as it was");
}

/* try_versions runs what a version has to do in all of them. */
static void try_versions(struct trial *t, void (*run)(struct trial *, const struct tuner *))
{
	for (int version = TUNER_OLDEST; version <= TUNER_NEWEST; version++) {
		struct tuner tuner;

		if (!find(t, &tuner, version))
			return;
		run(t, &tuner);
		if (t->failed) {
			char why[200];

			snprintf(why, sizeof why, "%.190s", t->why);
			snprintf(t->why, sizeof t->why, "v%d: %s", version, why);
			return;
		}
	}
}

static uint64_t digest(uint64_t all, const struct answer *a)
{
	uint64_t word = (uint64_t)(a->algo + 1) << 32 | (uint64_t)(a->proto + 1) << 16 | (uint64_t)a->channels;

	return mix(all ^ word);
}

/* ask_random asks many questions and sums the answers up. */
static uint64_t ask_random(struct trial *t, const struct tuner *tuner, void *ctx, int nranks, uint64_t seed)
{
	struct random random = {seed};
	uint64_t all = 0;
	char error[ERROR];

	for (int i = 0; i < QUESTIONS && !t->failed; i++) {
		struct question q = random_question(&random, nranks);
		struct answer a;

		if (tuner->version == 2) /* asks without a table: nothing is excluded there */
			q.algos = NCCL_ALGOS_BEFORE_PAT, tuner_price(&q, nranks);
		expect(t, tuner_ask(tuner, ctx, &q, &a, error, sizeof error), "%d ranks, operation %d of %zu bytes (%d): %s",
		       nranks, q.coll, q.bytes, q.ops, error);
		all = digest(all, &a);
		if (tuner->chunk_v6) {
			size_t chunk = 512 << random_below(&random, 12), own = chunk;

			expect_ok(t, tuner->chunk_v6(ctx, q.coll, q.bytes, a.algo, a.proto, 1 + i % 16, &chunk), "getChunkSize");
			expect(t, chunk >= 512 && chunk <= own, "the chunk of %zu became %zu", own, chunk);
			all = mix(all ^ chunk);
		}
	}
	return all;
}

static void rules_of(struct trial *t, const struct tuner *tuner)
{
	for (size_t i = 0; i < sizeof meshes / sizeof *meshes && !t->failed; i++) {
		void *ctx;

		if (start(t, tuner, &ctx, meshes[i], meshes[i])) {
			ask_random(t, tuner, ctx, meshes[i], 1);
			expect_ok(t, tuner->destroy(ctx), "destroy");
		}
	}
}

static void rules(struct trial *t)
{
	try_versions(t, rules_of);
}

/* Ranks that differ hang NCCL. */
static void agreement(struct trial *t)
{
	unsigned char own[SYNC_BYTES] = {0}, previous[SYNC_BYTES];

	for (int version = TUNER_OLDEST; version <= TUNER_NEWEST; version++) {
		struct tuner tuner;
		uint64_t all = 0;
		void *ctx;

		if (!find(t, &tuner, version))
			break;
		for (size_t i = 0; i < sizeof meshes / sizeof *meshes && !t->failed; i++)
			if (start(t, &tuner, &ctx, meshes[i], meshes[i])) {
				all ^= ask_random(t, &tuner, ctx, meshes[i], 2);
				expect_ok(t, tuner.destroy(ctx), "destroy");
			}
		memcpy(own + 8 * version, &all, 8);
	}
	trial_sync(t, own, previous, NULL);
	expect(t, !memcmp(own, previous, sizeof own), "another rank has other answers");
}

/* NCCL ranks rings of 8-bit floats behind everything else; so does a tuner that would take a tree at all. */
static void precision_of(struct trial *t, const struct tuner *tuner)
{
	char error[ERROR];
	void *ctx;

	if (tuner->version < 3 || !start(t, tuner, &ctx, 16, 16))
		return;
	for (size_t bytes = 1; bytes < 1u << 30; bytes *= 3) {
		struct question q = {.coll = NCCL_ALLREDUCE, .ops = 1 + (int)(bytes % 2), .algos = NCCL_ALGOS, .bytes = bytes};
		struct question trees;
		struct answer a, only;

		tuner_price(&q, 16);
		trees = q;
		for (int p = 0; p < NCCL_PROTOS; p++)
			if (q.cells[NCCL_RING][p] >= 0) {
				q.cells[NCCL_RING][p] *= 1024;
				trees.cells[NCCL_RING][p] = -1;
			}
		if (!expect(t, tuner_ask(tuner, ctx, &q, &a, error, sizeof error), "%s", error) ||
		    !expect(t, tuner_ask(tuner, ctx, &trees, &only, error, sizeof error), "%s", error) ||
		    !expect(t, a.algo != NCCL_RING || !only.channels,
		            "%zu bytes of 8-bit floats: a ring is chosen where a tree is possible", bytes))
			break;
	}
	expect_ok(t, tuner->destroy(ctx), "destroy");
}

static void precision(struct trial *t)
{
	try_versions(t, precision_of);
}

/* unchanged asks a tuner that has to keep out. */
static bool unchanged(const struct tuner *tuner, void *ctx, char *error, size_t size)
{
	struct random random = {3};

	for (int i = 0; i < 200; i++) {
		struct question q = random_question(&random, 4);
		struct answer a;

		if (!tuner_ask(tuner, ctx, &q, &a, error, size))
			return false;
		if (a.channels || memcmp(a.cells, q.cells, sizeof a.cells)) {
			snprintf(error, size, "it interferes");
			return false;
		}
	}
	return true;
}

static void foreign_of(struct trial *t, const struct tuner *tuner)
{
	static const int others[][2] = {{8, 2}, {4, 3}, {1, 1}, {8, 1}};

	for (size_t i = 0; i < sizeof others / sizeof *others && !t->failed; i++) {
		char error[ERROR];
		void *ctx;

		if (start(t, tuner, &ctx, others[i][0], others[i][1])) {
			expect(t, unchanged(tuner, ctx, error, sizeof error), "%d ranks on %d nodes: %s", others[i][0], others[i][1],
			       error);
			expect_ok(t, tuner->destroy(ctx), "destroy");
		}
	}
}

static void foreign(struct trial *t)
{
	try_versions(t, foreign_of);
}

/* Communicators begin, ask and end on threads of their own. */
struct asker {
	pthread_t thread;
	struct trial trial; /* its own verdict */
	const struct tuner *tuner;
	int nranks;
	uint64_t alone; /* the answers where there is no other communicator */
	pthread_barrier_t *all;
};

/* Asks once every asker has its communicator, however late those start. */
static void *run_asker(void *arg)
{
	struct asker *k = arg;

	for (int round = 0; round < 5; round++) {
		void *ctx;
		bool started = start(&k->trial, k->tuner, &ctx, k->nranks, k->nranks);

		pthread_barrier_wait(k->all);
		if (!started)
			continue;
		expect(&k->trial, ask_random(&k->trial, k->tuner, ctx, k->nranks, 4) == k->alone,
		       "a communicator beside others has other answers");
		expect_ok(&k->trial, k->tuner->destroy(ctx), "destroy");
	}
	return NULL;
}

static void threads_of(struct trial *t, const struct tuner *tuner)
{
	struct asker askers[4];
	pthread_barrier_t all;

	for (int i = 0; i < 4; i++) {
		void *ctx;

		askers[i] = (struct asker){.trial = {.job = t->job}, .tuner = tuner, .nranks = 2 + i % 2, .all = &all};
		if (!start(t, tuner, &ctx, askers[i].nranks, askers[i].nranks))
			return;
		askers[i].alone = ask_random(t, tuner, ctx, askers[i].nranks, 4);
		expect_ok(t, tuner->destroy(ctx), "destroy");
	}
	pthread_barrier_init(&all, NULL, 4);
	for (int i = 0; i < 4; i++)
		if (pthread_create(&askers[i].thread, NULL, run_asker, &askers[i]))
			die("no thread");
	for (int i = 0; i < 4; i++) {
		pthread_join(askers[i].thread, NULL);
		expect(t, !askers[i].trial.failed, "%.200s", askers[i].trial.why);
	}
	pthread_barrier_destroy(&all);
}

static void threads(struct trial *t)
{
	try_versions(t, threads_of);
}

/* In a forked child: the number of the first call that does not return ncclSystemError, from 1. */
static int try_in_child(const struct tuner *tuner, void *ctx)
{
	struct flat_table { float cells[NCCL_ALGOS][NCCL_PROTOS]; } flat = {{{1}}};
	int channels = 0, algo, proto, reg = 0;
	size_t chunk = 4096;
	ncclResult_t result;
	void *other;

	if (tuner_init(tuner, &other, 2, 2) != ncclSystemError)
		return 1;
	if (tuner->info_v2)
		result = tuner->info_v2(ctx, NCCL_ALLREDUCE, 64, 0, 0, 1, &algo, &proto, &channels);
	else if (tuner->info_v3)
		result = tuner->info_v3(ctx, NCCL_ALLREDUCE, 64, 1, (float **)&flat, NCCL_ALGOS, NCCL_PROTOS, &channels);
	else
		result = tuner->info_v4(ctx, NCCL_ALLREDUCE, 64, 1, (float **)&flat, NCCL_ALGOS, NCCL_PROTOS, reg, &channels);
	if (result != ncclSystemError)
		return 2;
	if (tuner->chunk_v6 && tuner->chunk_v6(ctx, 0, 64, NCCL_RING, NCCL_SIMPLE, 1, &chunk) != ncclSystemError)
		return 3;
	return tuner->destroy(ctx) == ncclSystemError ? 0 : 4;
}

static void forked_of(struct trial *t, const struct tuner *tuner)
{
	static const char *const calls[] = {"", "init", "getCollInfo", "getChunkSize", "destroy"};
	int status = 0;
	pid_t child;
	void *ctx;

	if (!start(t, tuner, &ctx, 2, 2))
		return;
	if ((child = fork()) == 0) {
		alarm(20);
		_exit(try_in_child(tuner, ctx));
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		die("cannot fork");
	expect(t, WIFEXITED(status), "the child crashed or hung");
	expect(t, !WIFEXITED(status) || WEXITSTATUS(status) == 0, "in a forked child %s does not return ncclSystemError (2)",
	       calls[WEXITSTATUS(status) < 5 ? WEXITSTATUS(status) : 0]);
	expect_ok(t, tuner->destroy(ctx), "destroy");
}

static void forked(struct trial *t)
{
	try_versions(t, forked_of);
}

/*
 * What a look-up in a table takes at the least: a call through a pointer that knows its arguments
 * for good, finds the size's power of two, and writes the two results.
 */
__attribute__((noinline)) static ncclResult_t look_up(void *ctx, int coll, size_t bytes, int ops, float **table,
                                                      int algos, int protos, int reg, int *channels)
{
	const unsigned char (*known)[64][4] = ctx;
	const unsigned char *row;

	(void)reg;
	*channels = 0;
	if (!ctx || coll < 0 || coll >= NCCL_FUNCS || ops != 1 || algos > NCCL_ALGOS)
		return ncclSuccess;
	row = known[coll][bytes ? 63 - __builtin_clzl(bytes) : 0];
	if (((float *)table)[row[0] * protos + row[1]] >= 0) {
		((float *)table)[row[0] * protos + row[1]] = 0;
		*channels = row[2];
	}
	return ncclSuccess;
}

static double batch(tunerInfo_v4 *info, void *ctx, const struct question *q, float first)
{
	enum { CALLS = 2000 };
	struct question scratch = *q;
	uint64_t began = now_ns();
	int channels;

	for (int i = 0; i < CALLS; i++) {
		scratch.cells[NCCL_RING][NCCL_LL] = first;
		if (info(ctx, q->coll, (size_t)(i & 63) << 10, 1, (float **)scratch.cells, q->algos, NCCL_PROTOS, 0, &channels))
			return 1e9;
		__asm__ volatile("" ::: "memory");
	}
	return (double)(now_ns() - began) / CALLS;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* ratio of two calls that are timed in turn: the median, so that what disturbs one does not count. */
static double ratio(tunerInfo_v4 *a, void *ctx_a, tunerInfo_v4 *b, void *ctx_b, const struct question *q)
{
	enum { PAIRS = 101 };
	double all[PAIRS];

	for (int i = 0; i < PAIRS; i++) {
		double base = batch(b, ctx_b, q, 1);

		all[i] = batch(a, ctx_a, q, 1) / base;
	}
	qsort(all, PAIRS, sizeof *all, by_value);
	return all[PAIRS / 2];
}

/*
 * A call on NCCL's hot path: a few look-ups, once in a while at least. It takes about two of them, more
 * on one processor than on another, where one that went through Go would take many times that.
 */
static void cost(struct trial *t)
{
	static unsigned char known[NCCL_FUNCS][64][4];
	struct question q = {.coll = NCCL_ALLREDUCE, .ops = 1, .algos = NCCL_ALGOS, .bytes = 1 << 20};
	tunerInfo_v4 *volatile empty = look_up;
	const double most = 4;
	double least = 1e9;
	struct tuner tuner;
	void *ctx;

	if (!find(t, &tuner, TUNER_NEWEST) || !start(t, &tuner, &ctx, 4, 4))
		return;
	memset(known, 1, sizeof known);
	tuner_price(&q, 4);
	for (int i = 0; i < 50 && (i < 5 || least > most) && !trial_late(t); i++) {
		double r = ratio(tuner.info_v4, ctx, empty, known, &q);

		least = r < least ? r : least;
	}
	expect_ok(t, tuner.destroy(ctx), "destroy");
	expect(t, least <= most, "getCollInfo takes %.1f times a look-up in a table, at most %g are right", least, most);
	trial_tell(t, "%.1f times a look-up in a table", least);
}

/* The library without a network: loaded in a child, before this process has it. */
static const char *alone_why;

static int try_alone(struct job *job)
{
	void *library = dlopen(job->opt.plugin, RTLD_NOW | RTLD_LOCAL);
	char error[ERROR];

	for (int version = TUNER_OLDEST; version <= TUNER_NEWEST && library; version++) {
		struct tuner tuner;
		void *ctx, *second;

		if (!tuner_find(&tuner, library, version))
			return 0; /* another case says so */
		if (tuner_init(&tuner, &ctx, 2, 2) != ncclSuccess || tuner_init(&tuner, &second, 3, 3) != ncclSuccess)
			return 1;
		if (!unchanged(&tuner, ctx, error, sizeof error) || !unchanged(&tuner, second, error, sizeof error))
			return 2;
		if (tuner.destroy(second) != ncclSuccess || tuner.destroy(ctx) != ncclSuccess)
			return 3;
	}
	return 0;
}

void tuner_before(struct job *job)
{
	static const char *const whys[] = {NULL, "init failed", "it interferes", "destroy failed"};
	int status;
	pid_t child;

	fflush(NULL);
	if ((child = fork()) == 0) {
		alarm(60);
		_exit(try_alone(job));
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		die("cannot fork");
	alone_why = !WIFEXITED(status) || WEXITSTATUS(status) > 3 ? "the process died" : whys[WEXITSTATUS(status)];
}

static void alone(struct trial *t)
{
	expect(t, !alone_why, "%s", alone_why);
}

/* What is chosen for a communicator of these ranks, of which the run's settings may be the reason. */
static void choices(struct trial *t)
{
	static const char *const colls[] = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
	static const char *const algos[] = {"tree", "ring", "", "", "", "", "pat"}, *const protos[] = {"ll", "ll128", "simple"};
	int n = t->job->opt.nranks;
	struct tuner tuner;
	char error[ERROR];
	void *ctx;

	if (!find(t, &tuner, TUNER_NEWEST) || !start(t, &tuner, &ctx, n, n))
		return;
	for (int coll = 0; coll < NCCL_FUNCS; coll++)
		for (size_t bytes = 1 << 10; bytes <= 1u << 30; bytes *= 32) {
			struct question q = {.coll = coll, .ops = 1, .algos = NCCL_ALGOS, .bytes = bytes};
			struct answer a;

			tuner_price(&q, n);
			if (!expect(t, tuner_ask(&tuner, ctx, &q, &a, error, sizeof error), "%s", error))
				return;
			if (t->job->opt.rank == 0)
				fprintf(log_out(), "# %d nodes, %s, %zu bytes: %s %s, %d channels\n", n, colls[coll], bytes,
				        algos[a.algo], protos[a.proto], a.channels);
		}
	expect_ok(t, tuner.destroy(ctx), "destroy");
}

const struct contract_case tuner_cases[] = {
	{"tuner: its table of costs is flat, what is impossible stays so, and something is left", rules, 0, 0},
	{"tuner: all ranks have the same answers", agreement, 1, 0},
	{"tuner: 8-bit floats keep off rings of more than 8", precision, 0, 0},
	{"tuner: keeps out where nodes have several ranks", foreign, 0, 0},
	{"tuner: four communicators on four threads", threads, 0, 0},
	{"tuner: a forked child gets ncclSystemError", forked, 0, 0},
	{"tuner: keeps out without the network", alone, 0, 0},
	{"tuner: a call takes a few look-ups", cost, 0, 0},
	{"tuner: choices", choices, 0, 0},
	{0},
};
