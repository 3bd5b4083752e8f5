/* Cases about the process: settings, fork, unloading. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"
#include "log.h"
#include "work.h"

enum { ROOM = 1 << 20 };

/* Settings that init has to refuse. */
static const char *const bad_settings[] = {"NCCL_IB_TIMEOUT=garbage", "NCCL_MESH_DEBUG=garbage"};
enum { BAD_SETTINGS = sizeof bad_settings / sizeof *bad_settings };

/* What children found out before the plugin was loaded here: why a setting was not refused, or NULL. */
static const char *accepted[BAD_SETTINGS];
static bool exported[API_NEWEST + 1];

enum { REFUSED = 0, NOT_LOADED = 10, ACCEPTED = 11, BAD_FINALIZE = 12 };

/* try_setting runs in a child: the setting is made just before the library is opened. */
_Noreturn static void try_setting(struct job *job, const char *setting)
{
	char error[256], *name = strdup(setting), *value = strchr(name, '=');
	struct net net;
	void *ctx;

	alarm(60);
	*value++ = 0;
	setenv(name, value, 1);
	if (!net_load(&net, job->opt.plugin, job->opt.api, error, sizeof error))
		_exit(NOT_LOADED);
	if (net_init(&net, &ctx, 1, -1) == ncclSuccess)
		_exit(ACCEPTED);
	if (net.version >= 11 && net_finalize(&net, NULL) != ncclSuccess)
		_exit(BAD_FINALIZE);
	fflush(NULL);
	_exit(REFUSED);
}

static const char *verdict(int status)
{
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGALRM ? "init hung" : "init crashed";
	switch (WEXITSTATUS(status)) {
	case REFUSED: return NULL;
	case NOT_LOADED: return "the plugin could not be loaded";
	case ACCEPTED: return "init accepted it; either it is not read through C getenv, or not checked";
	case BAD_FINALIZE: return "after a failed init, finalize(NULL) failed; NCCL 2.28 calls it";
	}
	return "the child failed";
}

static void probe_versions(struct job *job)
{
	for (int version = API_OLDEST; version <= API_NEWEST; version++) {
		char error[256];
		struct net net;

		exported[version] = net_load(&net, job->opt.plugin, version, error, sizeof error) && !net_missing(&net);
		net_unload(&net);
	}
}

void contract_before(struct job *job)
{
	int status, pipes[2];
	pid_t child;

	fflush(NULL);
	for (int i = 0; i < BAD_SETTINGS; i++) {
		if ((child = fork()) == 0)
			try_setting(job, bad_settings[i]);
		if (child < 0 || waitpid(child, &status, 0) != child)
			die("cannot fork");
		accepted[i] = verdict(status);
	}
	if (pipe(pipes) || (child = fork()) < 0)
		die("cannot fork");
	if (child == 0) {
		probe_versions(job);
		_exit(write(pipes[1], exported, sizeof exported) != sizeof exported);
	}
	close(pipes[1]);
	if (read(pipes[0], exported, sizeof exported) != sizeof exported)
		memset(exported, 0, sizeof exported);
	close(pipes[0]);
	waitpid(child, &status, 0);
}

static void versions(struct trial *t)
{
	for (int version = API_OLDEST; version <= API_NEWEST; version++)
		if (!expect(t, exported[version], "ncclNetPlugin_v%d is missing or lacks a member before init", version))
			return;
}

static void refuses(struct trial *t)
{
	char list[128] = "";

	for (int i = 0; i < BAD_SETTINGS; i++) {
		expect(t, !accepted[i], "%s: %s", bad_settings[i], accepted[i]);
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", bad_settings[i]);
	}
	trial_tell(t, "%s", list);
}

/* try_calls runs in a forked child: every call has to return ncclSystemError, and at once. It
 * returns the number of the first that does not, counted from 1. */
static int try_calls(struct trial *t, struct pair *p)
{
	struct net *net = &t->job->net;
	unsigned char handle[CONNECT_HANDLE];
	void *data = p->recv_region.base, *out, *ctx;
	size_t size = 64;
	int ndev, done, tag = 0, sizes = 64, call = 0;
	struct net_props props;

#define WANT(expression) \
	call++; \
	if ((expression) != ncclSystemError) \
	return call
	handle_prepare(handle);
	WANT(net_devices(net, &ndev));
	WANT(net_properties(net, 0, 0, &props));
	WANT(net_listen(net, t->comm.ctx, 0, handle, &out));
	WANT(net_connect(net, t->comm.ctx, 0, NULL, p->send.handle, &out));
	WANT(net_reg(net, p->send.net_comm, data, size, NCCL_PTR_HOST, &out));
	WANT(net_isend(net, p->send.net_comm, p->send_region.base, size, tag, p->send_mhandle, NULL, &out));
	WANT(net_irecv(net, p->recv.net_comm, 1, &data, &size, &tag, &p->recv_mhandle, NULL, false, &out));
	WANT(net_iflush(net, p->recv.net_comm, 1, &data, &sizes, &p->recv_mhandle, &out));
	WANT(net_test(net, p->recv.net_comm, &done, 1, &sizes)); /* no request is looked at in a child */
	WANT(net_dereg(net, p->send.net_comm, p->send_mhandle));
	WANT(net_close_send(net, p->send.net_comm));
	WANT(net_close_recv(net, p->recv.net_comm));
	WANT(net_init(net, &ctx, 1, -1));
	if (net->finalize) {
		WANT(net_finalize(net, t->comm.ctx));
	}
#undef WANT
	return 0;
}

static void forked(struct trial *t)
{
	static const char *const calls[] = {
		"", "devices", "getProperties", "listen", "connect", "regMr", "isend", "irecv", "iflush", "test",
		"deregMr", "closeSend", "closeRecv", "init", "finalize",
	};
	struct pair p, later;
	int status = 0, pipes[2];
	unsigned char bad = 255;
	pid_t child = -1;
	bool open = pair_open(t, &p, 0, 0, ROOM) && exchange_some(t, &p) && !pipe(pipes);

	if (open && (child = fork()) == 0) {
		alarm(20);
		rendezvous_forget(&t->job->rv);
		bad = (unsigned char)try_calls(t, &p);
		if (write(pipes[1], &bad, 1) != 1)
			_exit(1);
		for (;;) /* and stays, as a data loader's worker does */
			pause();
	}
	if (open) {
		close(pipes[1]);
		if (read(pipes[0], &bad, 1) != 1 || bad >= sizeof calls / sizeof *calls) {
			waitpid(child, &status, 0);
			child = -1;
			trial_fail(t, "the child %s", WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "hung" : "crashed");
		} else {
			expect(t, !bad, "in a forked child %s does not return ncclSystemError (2)", calls[bad]);
		}
		close(pipes[0]);
		if (!t->failed)
			exchange_some(t, &p); /* here all goes on */
	}
	if (pair_open(t, &later, 0, 0, ROOM) && !t->failed)
		exchange_some(t, &later);
	pair_close(t, &later);
	if (open)
		pair_close(t, &p);
	if (child > 0) {
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
	}
}

/* The last communicator is gone, NCCL closes the library, and a new communicator opens it again. */
static void reload(struct trial *t)
{
	struct job *job = t->job;
	char error[256];
	struct pair p;

	for (int round = 0; round < 2; round++) {
		plugin_fini(job, t->comm.ctx);
		net_unload(&job->net);
		if (!net_load(&job->net, job->opt.plugin, job->opt.api, error, sizeof error))
			die("cannot load the plugin again: %s", error);
		job->inits = 0;
		plugin_init(job, &t->comm.ctx, t->comm.id + (uint64_t)round);
		if (pair_open(t, &p, 0, 0, ROOM))
			exchange_some(t, &p);
		pair_close(t, &p);
	}
}

const struct contract_case process_cases[] = {
	{"all of v5 to v12 are there before init", versions, 0, 0},
	{"init refuses bad settings, made just before dlopen", refuses, 0, 0},
	{"a forked child gets ncclSystemError, its parent goes on", forked, 2, 0},
	{"init again after dlclose and dlopen", reload, 2, 0},
	{0},
};
