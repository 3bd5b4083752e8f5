/* Limits, and peers that die or are stopped. What requests do that a peer refuses is in tests/sim/conformance. */
#include "selftest.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int state_of(struct end *e)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr i;

	EQUAL(ibv_query_qp(e->qp, &a, IBV_QP_STATE, &i), 0);
	return a.qp_state;
}

/* The queue pair is in the error state: everything that is posted comes back flushed. */
static void want_flushes(struct end *e)
{
	EQUAL(state_of(e), IBV_QPS_ERR);
	EQUAL(post(e, IBV_WR_RDMA_WRITE, 901, 0, 8, 0, 0), 0);
	want_wc(e, 901, IBV_WC_WR_FLUSH_ERR);
	EQUAL(post_recv(e, 902, 0, 8), 0);
	want_wc(e, 902, IBV_WC_WR_FLUSH_ERR);
	no_wc(e, 1);
}

/* A window of another address: what the peer names is not where it lies. */
static void iova(void)
{
	struct end e;
	struct ibv_mr *shifted;
	uint32_t key;

	connect_end(&e, &(struct wish){0});
	shifted = ibv_reg_mr_iova2(e.pd, e.buf + 4096, 4096, 0x1000000, ALL);
	CHECK(shifted);
	key = shifted->rkey;
	tell(&key, sizeof(key));
	hear(&key, sizeof(key));
	if (is_a) {
		memset(e.buf, 'i', 16);
		e.peer.rkey = key;
		e.peer.addr = 0x1000000;
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 16, 4080, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 1, IBV_WC_SUCCESS);
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 2, 0, 16, 4081, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 2, IBV_WC_REM_ACCESS_ERR);
		meet();
	} else {
		meet();
		EQUAL(e.buf[8191], 'i');
		EQUAL(e.buf[8192], 0);
	}
	EQUAL(ibv_dereg_mr(shifted), 0);
	meet();
	close_end(&e);
}

/* Two receives reach the sender that has gone to sleep: somebody moves its request on all the same. */
static void asleep(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		EQUAL(post(&e, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
		meet();
		meet(); /* no verb is called until b has the message */
	} else {
		meet();
		EQUAL(post_recv(&e, 9, 0, 8), 0);
		want_wc(&e, 9, IBV_WC_SUCCESS);
		meet();
	}
	close_end(&e);
}

/* Nobody answers: the error comes after all attempts, (retry_cnt + 1) times the time-out, and not before. */
static void want_timeout(struct end *e, uint64_t id, int timeout, int retry)
{
	uint64_t start = now_ns(), want = (uint64_t)(retry + 1) * (4096ull << timeout);

	EQUAL(post(e, IBV_WR_RDMA_WRITE, id, 0, 8, 0, 0), 0);
	want_wc(e, id, IBV_WC_RETRY_EXC_ERR);
	CHECK(now_ns() - start >= want, "after %llu ns, want %llu", (unsigned long long)(now_ns() - start), (unsigned long long)want);
	want_flushes(e);
}

static void peer_killed(void)
{
	struct end e;

	connect_end(&e, &(struct wish){.timeout = 10, .retry = 3});
	if (is_a) {
		EQUAL(kill(other_pid, SIGKILL), 0);
		gone();
		want_timeout(&e, 1, 10, 3);
		close_end(&e);
	} else {
		pause();
	}
}

/* Dead is dead, also for a request that waits until the peer posts a receive; and so is a process that became another program. */
static void peer_gone(bool exec)
{
	struct end e;

	connect_end(&e, &(struct wish){.timeout = 8, .retry = 1});
	if (is_a) {
		EQUAL(post(&e, IBV_WR_SEND, 1, 0, 8, 0, 0), 0);
		no_wc(&e, 3);
		tell("", 1);
		if (!exec)
			EQUAL(kill(other_pid, SIGKILL), 0);
		want_wc(&e, 1, IBV_WC_RETRY_EXC_ERR);
		want_flushes(&e);
		if (exec)
			EQUAL(kill(other_pid, SIGKILL), 0);
		close_end(&e);
	} else {
		hear(&(char){0}, 1);
		if (exec)
			execlp("sleep", "sleep", "100", (char *)NULL);
		pause();
	}
}

static void peer_killed_waiting(void) { peer_gone(false); }
static void peer_became_another(void) { peer_gone(true); }

/* The peer dies with locks held and requests half done, again and again: what is left works. */
static void peer_killed_busy(void)
{
	struct end e;

	connect_end(&e, &(struct wish){.timeout = 8, .retry = 1});
	if (is_a) {
		struct ibv_wc wc = {0};
		int n = 0;

		usleep(2000 + getpid() % 5000);
		EQUAL(kill(other_pid, SIGKILL), 0);
		do {
			if (post(&e, IBV_WR_RDMA_WRITE, 5, 0, 65536, 0, IBV_SEND_SIGNALED) == 0)
				n++;
			while (ibv_poll_cq(e.cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS)
				;
		} while (wc.status == IBV_WC_SUCCESS);
		EQUAL(wc.status, IBV_WC_RETRY_EXC_ERR);
		while (ibv_poll_cq(e.cq, 1, &wc) == 1)
			EQUAL(wc.status, IBV_WC_WR_FLUSH_ERR);
		close_end(&e);
	} else {
		struct ibv_wc wc[8];

		for (;;) {
			post(&e, IBV_WR_RDMA_WRITE, 1, 0, 1000, 0, IBV_SEND_SIGNALED);
			ibv_poll_cq(e.cq, 8, wc);
		}
	}
}

/* A message longer than the port takes. */
static void too_long(void)
{
	struct end e;
	struct ibv_port_attr p;

	make_end(&e, &(struct wish){0});
	close_end(&e);
	connect_end(&e, &(struct wish){0});
	EQUAL(ibv_query_port(e.ctx, 1, &p), 0);
	EQUAL(p.max_msg_sz, 3 << 20);
	if (is_a) {
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, p.max_msg_sz, 0, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 1, IBV_WC_SUCCESS);
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 2, 0, p.max_msg_sz + 1, 0, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 2, IBV_WC_LOC_LEN_ERR);
	}
	meet();
	close_end(&e);
}

/* A forked child has none of its parent's objects; the parent keeps them. */
static void forked(void)
{
	struct end e;

	connect_end(&e, &(struct wish){0});
	if (is_a) {
		int status;
		pid_t child = fork();

		if (child == 0) {
			struct ibv_wc wc;
			struct ibv_context *own;
			struct ibv_pd *pd;

			EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, 0), EIO);
			EQUAL(ibv_poll_cq(e.cq, 1, &wc), -1);
			EQUAL(ibv_destroy_qp(e.qp), EIO);
			CHECK(!ibv_alloc_pd(e.ctx) && errno == EIO);
			own = open_device("rdma0"); /* but may begin anew */
			pd = ibv_alloc_pd(own);
			CHECK(pd);
			EQUAL(ibv_dealloc_pd(pd), 0);
			EQUAL(ibv_close_device(own), 0);
			exit(0);
		}
		EQUAL(waitpid(child, &status, 0), child);
		EQUAL(status, 0);
		EQUAL(post(&e, IBV_WR_RDMA_WRITE, 1, 0, 8, 0, IBV_SEND_SIGNALED), 0);
		want_wc(&e, 1, IBV_WC_SUCCESS);
	}
	meet();
	close_end(&e);
}

static char state_of_process(pid_t pid)
{
	char path[64], text[512] = "", *end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	CHECK(f && fgets(text, sizeof(text), f));
	fclose(f);
	end = strrchr(text, ')');
	return end ? end[2] : 0;
}

/* The peer is stopped in the middle of its writes, whatever it holds: this side breaks off and begins anew without waiting for it, and
 * what the peer was about to write lands nowhere when it goes on. */
static void stopped(void)
{
	struct end e, next;

	for (int round = 0; round < 40; round++) {
		const struct wish w = {.timeout = 8, .retry = 1};

		connect_end(&e, &w);
		if (is_a) {
			struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

			usleep((unsigned)(random() % 3000));
			EQUAL(kill(other_pid, SIGSTOP), 0);
			while (state_of_process(other_pid) != 'T')
				usleep(100);
			EQUAL(ibv_modify_qp(e.qp, &a, IBV_QP_STATE), 0);
			EQUAL(ibv_destroy_qp(e.qp), 0);
			EQUAL(ibv_dereg_mr(e.mr), 0);
			EQUAL(ibv_destroy_cq(e.cq), 0);
			memset(e.buf, 'a', BUF);
			make_end(&next, &w);
			close_end(&next);
			EQUAL(kill(other_pid, SIGCONT), 0);
			meet();
			for (int i = 0; i < BUF; i++)
				EQUAL(e.buf[i], 'a');
			EQUAL(ibv_destroy_comp_channel(e.channel), 0);
			EQUAL(ibv_dealloc_pd(e.pd), 0);
			EQUAL(ibv_close_device(e.ctx), 0);
			free(e.buf);
		} else {
			struct ibv_wc wc = {0};

			memset(e.buf, 'b', BUF);
			do
				post(&e, IBV_WR_RDMA_WRITE, 1, 0, BUF / 2, 0, IBV_SEND_SIGNALED);
			while (ibv_poll_cq(e.cq, 1, &wc) == 0 || wc.status == IBV_WC_SUCCESS);
			EQUAL(wc.status, IBV_WC_RETRY_EXC_ERR);
			meet();
			close_end(&e);
		}
	}
}

/* Queue pairs, queues and keys that come and go leave no more of the shared state in use than the first few did. */
static void cycles(void)
{
	struct stat st;
	char path[4096];
	blkcnt_t first = 0;
	struct end e;

	make_end(&e, &(struct wish){0});
	snprintf(path, sizeof(path), "%s/state", getenv("FAKEVERBS_DIR"));
	for (int i = 0; i < 3000; i++) {
		struct ibv_cq *cq = ibv_create_cq(e.ctx, 100, NULL, NULL, 0);
		struct ibv_qp_init_attr a = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = {.max_send_wr = 1, .max_recv_wr = 100, .max_recv_sge = 1}};
		struct ibv_qp *qp = ibv_create_qp(e.pd, &a);
		struct ibv_mr *mr = ibv_reg_mr(e.pd, e.buf, 100, ALL);

		CHECK(cq && qp && mr);
		EQUAL(ibv_dereg_mr(mr), 0);
		EQUAL(ibv_destroy_qp(qp), 0);
		EQUAL(ibv_destroy_cq(cq), 0);
		if (i == 200 || i == 2999) {
			meet();
			EQUAL(stat(path, &st), 0);
			meet();
		}
		if (i == 200)
			first = st.st_blocks;
	}
	CHECK(st.st_blocks <= first + 64, "%lld blocks after 3000 cycles, %lld after 200", (long long)st.st_blocks, (long long)first);
	close_end(&e);
}

const struct test error_tests[] = {
	{"iova", iova},
	{"asleep", asleep},
	{"peer_killed", peer_killed},
	{"peer_killed_waiting", peer_killed_waiting},
	{"peer_became_another", peer_became_another},
	{"peer_killed_busy", peer_killed_busy},
	{"too_long", too_long},
	{"forked", forked},
	{"stopped", stopped}, {"cycles", cycles}, {NULL, NULL},
};
