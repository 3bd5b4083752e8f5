#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"
#include "rma_abi.h"

static const char help[] =
"netdriver - stands in for NCCL: loads a network plugin and drives it as NCCL does\n"
"\n"
"usage: netdriver --plugin FILE --rank R --nranks N --rendezvous HOST:PORT [option...]\n"
"       netdriver --plugin FILE --spawn N [option...]\n"
"\n"
"The plugin and the ranks\n"
"  --plugin FILE          the library, opened as NCCL opens it\n"
"  --api VERSION          newest (default), or one of v5 to v12\n"
"  --rank R, --nranks N   this process's rank, and how many there are\n"
"  --rendezvous HOST:PORT where rank 0 listens and the others dial\n"
"  --spawn N              start N ranks here, which meet on the loopback interface\n"
"  --nodeid-env           set NCCL_HOSTID to netdriver-R, so that every rank is a node\n"
"\n"
"Work\n"
"  --work LIST            of allreduce, allgather, alltoall, sendrecv, tree (an allreduce), doubling (an\n"
"                         allgather), latency, soak, contract, tuner, die, storm,\n"
"                         idle (nothing, with connections open), rma, rmadie, rmaorder\n"
"                         (default allreduce,allgather,alltoall,sendrecv)\n"
"  --min, --max BYTES     smallest and largest size (8, 16M); K, M and G are understood\n"
"  --factor F             from a size to the next (2)\n"
"  --iters N, --warmup N  repetitions of a size, timed (5) and before (1)\n"
"  --check all|once       all (default): every repetition is cleared, timed and checked by itself;\n"
"                         once: all are timed together, the last one's result is checked\n"
"  --memory KIND          of messages: host (default); cuda, a GPU's registered by regMr; dmabuf, a GPU's\n"
"                         registered by regMrDmaBuf (in v5, which has none, by regMr)\n"
"  --libcuda FILE         the library that gives a GPU's memory (libcuda.so.1)\n"
"  --profile              NCCL's profiler listens, and is to be told of every part of every message\n"
"  --comms K              communicators, each with a service and a progress thread (1)\n"
"  --channels C           of a communicator: sets of connections that a collective is cut over, and that\n"
"                         share its progress thread (1)\n"
"  --depth D              messages outstanding on a connection (8)\n"
"  --chunk BYTES          largest message of the collectives (1M)\n"
"  --seed S               of contents, and of what soak and die do (1)\n"
"  --duration SECONDS     soak: how long (10)\n"
"  --messages N           soak: how many messages a connection carries, instead of a duration\n"
"  --until FILE           soak, idle, collectives, rma: again and again until there is such a file\n"
"  --reopen ROUNDS        soak: after so many rounds of messages all communicators are closed and opened again (16)\n"
"  --progress ROUNDS      soak: how often it says how far it is (every 5 seconds)\n"
"\n"
"rma: one-sided communication as NCCL's host RMA and its GIN proxy call for it; rmadie: one rank kills itself meanwhile;\n"
"rmaorder: the calls in another order than NCCL's\n"
"  --rma VERSION          of ncclRmaPlugin: newest (default), or one of v13 to v15; none: it must have no devices\n"
"  --windows KIND         what lies in memory of --memory's kind: all (default), data, or nothing (host)\n"
"  --messages N           of each rank to each, in each context and phase (60)\n"
"\n"
"storm: connections come and go; a while later it says what memory and threads the process still holds\n"
"  --connections N        how many (1500)\n"
"  --duration SECONDS     how much later (10), from when it is idle\n"
"\n"
"die: one rank kills itself in mid-transfer; the others must be told ncclRemoteError\n"
"  --die-rank R           which (default the last)\n"
"  --die-limit-ms MS      how soon (1000)\n"
"  --orphans N            children that the rank has forked before and leaves behind (0)\n"
"  --early-orphans N      the same, forked when it listens and before it connects, for any work (0)\n"
"  --open-files N         how many the process has open before it loads the plugin, for any work (3)\n"
"\n"
"Report\n"
"  --json FILE|-          rank 0 writes its results there; with - all else goes to stderr\n"
"  --timeout SECONDS      without any progress, after which the run has failed (60)\n"
"  --max-call-ms MS       fail when listen, connect, accept, isend, irecv, iflush or test took longer\n"
"\n"
"Status 0 only if everything was right. NCCL_DEBUG and NCCL_DEBUG_SUBSYS work as in NCCL.\n";

_Noreturn static void refuse(const char *name, const char *value, const char *accepted)
{
	fprintf(stderr, "netdriver: --%s %s: %s (see --help)\n", name, value, accepted);
	exit(2);
}

static double number(const char *name, const char *value, double least, double most)
{
	char *end;
	double x = strtod(value, &end);
	char accepted[80];

	snprintf(accepted, sizeof accepted, "a number from %g to %g is wanted", least, most);
	if (end == value || *end || !(x >= least && x <= most))
		refuse(name, value, accepted);
	return x;
}

static int whole(const char *name, const char *value, int least, int most)
{
	double x = number(name, value, least, most);

	if (x != (int)x)
		refuse(name, value, "a whole number is wanted");
	return (int)x;
}

static size_t bytes(const char *name, const char *value)
{
	char *end;
	unsigned long long x;

	errno = 0;
	x = strtoull(value, &end, 10);
	switch (end == value || errno || *value == '-' ? '?' : *end) {
	case 'G': case 'g':
		x <<= 30, end++;
		break;
	case 'M': case 'm':
		x <<= 20, end++;
		break;
	case 'K': case 'k':
		x <<= 10, end++;
		break;
	case 0:
		break;
	default:
		refuse(name, value, "a size like 8, 64K or 16M is wanted");
	}
	if (*end || x > (1ull << 30))
		refuse(name, value, "a size up to 1G is wanted");
	return x;
}

static int api(const char *value)
{
	int version = 0;

	if (!strcmp(value, "newest"))
		return 0;
	if (sscanf(value, "v%d", &version) != 1 || version < API_OLDEST || version > API_NEWEST)
		refuse("api", value, "newest or v5 to v12 is wanted");
	return version;
}

static enum memory_kind memory(const char *name, const char *value)
{
	static const char *const kinds[] = {[MEMORY_HOST] = "host", [MEMORY_CUDA] = "cuda", [MEMORY_DMABUF] = "dmabuf"};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(value, kinds[i]))
			return (enum memory_kind)i;
	refuse(name, value, "host, cuda or dmabuf is wanted");
}

static int rma(const char *value)
{
	int version = 0;

	if (!strcmp(value, "newest"))
		return 0;
	if (!strcmp(value, "none"))
		return -1;
	if (sscanf(value, "v%d", &version) != 1 || version < RMA_OLDEST || version > RMA_NEWEST)
		refuse("rma", value, "newest, v13 to v15 or none is wanted");
	return version;
}

static enum windows windows(const char *value)
{
	static const char *const kinds[] = {[WINDOWS_ALL] = "all", [WINDOWS_DATA] = "data", [WINDOWS_HOST] = "host"};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(value, kinds[i]))
			return (enum windows)i;
	refuse("windows", value, "all, data or host is wanted");
}

static void check_work(const char *list)
{
	static const char *const known[] = {"allreduce", "allgather", "alltoall", "sendrecv",
	                                    "tree",      "doubling",  "latency",  "soak",     "contract",
	                                    "tuner",     "die",       "storm",    "idle",     "rma",
	                                    "rmadie",    "rmaorder"};
	char copy[256];

	snprintf(copy, sizeof copy, "%s", list);
	for (char *rest = copy, *name; (name = strtok_r(rest, ",", &rest));) {
		size_t i = 0, n = sizeof known / sizeof *known;

		while (i < n && strcmp(name, known[i]))
			i++;
		if (i == n)
			refuse("work", name, "no such work");
	}
}

enum {
	PLUGIN = 1, API, RMA, WINDOWS, RANK, NRANKS, RENDEZVOUS, RENDEZVOUS_FD, SPAWN, NODEID_ENV, WORK, MIN, MAX,
	FACTOR, ITERS, WARMUP, CHECK, MEMORY, LIBCUDA, PROFILE, COMMS, CHANNELS, DEPTH, CHUNK, SEED, DURATION, MESSAGES, UNTIL, REOPEN, PROGRESS, CONNECTIONS,
	DIE_RANK,
	DIE_LIMIT, ORPHANS, EARLY_ORPHANS, OPEN_FILES, JSON, TIMEOUT, MAX_CALL, HELP,
};

static const struct option names[] = {
	{"plugin", required_argument, NULL, PLUGIN},
	{"api", required_argument, NULL, API},
	{"rma", required_argument, NULL, RMA},
	{"windows", required_argument, NULL, WINDOWS},
	{"rank", required_argument, NULL, RANK},
	{"nranks", required_argument, NULL, NRANKS},
	{"rendezvous", required_argument, NULL, RENDEZVOUS},
	{"rendezvous-fd", required_argument, NULL, RENDEZVOUS_FD}, /* from --spawn to its rank 0 */
	{"spawn", required_argument, NULL, SPAWN},
	{"nodeid-env", no_argument, NULL, NODEID_ENV},
	{"work", required_argument, NULL, WORK},
	{"min", required_argument, NULL, MIN},
	{"max", required_argument, NULL, MAX},
	{"factor", required_argument, NULL, FACTOR},
	{"iters", required_argument, NULL, ITERS},
	{"warmup", required_argument, NULL, WARMUP},
	{"check", required_argument, NULL, CHECK},
	{"memory", required_argument, NULL, MEMORY},
	{"libcuda", required_argument, NULL, LIBCUDA},
	{"profile", no_argument, NULL, PROFILE},
	{"comms", required_argument, NULL, COMMS},
	{"channels", required_argument, NULL, CHANNELS},
	{"depth", required_argument, NULL, DEPTH},
	{"chunk", required_argument, NULL, CHUNK},
	{"seed", required_argument, NULL, SEED},
	{"duration", required_argument, NULL, DURATION},
	{"messages", required_argument, NULL, MESSAGES},
	{"until", required_argument, NULL, UNTIL},
	{"reopen", required_argument, NULL, REOPEN},
	{"progress", required_argument, NULL, PROGRESS},
	{"connections", required_argument, NULL, CONNECTIONS},
	{"die-rank", required_argument, NULL, DIE_RANK},
	{"die-limit-ms", required_argument, NULL, DIE_LIMIT},
	{"orphans", required_argument, NULL, ORPHANS},
	{"early-orphans", required_argument, NULL, EARLY_ORPHANS},
	{"open-files", required_argument, NULL, OPEN_FILES},
	{"json", required_argument, NULL, JSON},
	{"timeout", required_argument, NULL, TIMEOUT},
	{"max-call-ms", required_argument, NULL, MAX_CALL},
	{"help", no_argument, NULL, HELP},
	{0},
};

static const struct options defaults = {
	.rank = -1, .rendezvous_fd = -1, .work = "allreduce,allgather,alltoall,sendrecv", .min = 8,
	.max = 16u << 20, .factor = 2, .chunk = 1u << 20, .iters = 5, .warmup = 1, .comms = 1, .channels = 1, .depth = 8,
	.seed = 1, .duration = 10, .reopen = 16, .connections = 1500, .die_rank = -1, .die_limit_ms = 1000,
	.timeout = 60, .libcuda = "libcuda.so.1",
};

static void set(struct options *o, int option, const char *name, const char *value)
{
	switch (option) {
	case PLUGIN: o->plugin = value; break;
	case API: o->api = api(value); break;
	case RMA: o->rma = rma(value); break;
	case WINDOWS: o->windows = windows(value); break;
	case RANK: o->rank = whole(name, value, 0, 1023); break;
	case NRANKS: o->nranks = whole(name, value, 1, 1024); break;
	case RENDEZVOUS: o->rendezvous = value; break;
	case RENDEZVOUS_FD: o->rendezvous_fd = whole(name, value, 0, 1 << 20); break;
	case SPAWN: o->spawn = whole(name, value, 1, 64); break;
	case NODEID_ENV: o->nodeid_env = true; break;
	case WORK: check_work(o->work = value); break;
	case MIN: o->min = bytes(name, value); break;
	case MAX: o->max = bytes(name, value); break;
	case FACTOR: o->factor = (size_t)whole(name, value, 2, 1024); break;
	case ITERS: o->iters = whole(name, value, 1, 1000000); break;
	case WARMUP: o->warmup = whole(name, value, 0, 1000000); break;
	case CHECK:
		if (strcmp(value, "all") && strcmp(value, "once"))
			refuse(name, value, "all or once is wanted");
		o->check_once = !strcmp(value, "once");
		break;
	case MEMORY: o->memory = memory(name, value); break;
	case LIBCUDA: o->libcuda = value; break;
	case PROFILE: o->profile = true; break;
	case COMMS: o->comms = whole(name, value, 1, 64); break;
	case CHANNELS: o->channels = whole(name, value, 1, 64); break;
	case DEPTH: o->depth = whole(name, value, 1, NCCL_NET_MAX_REQUESTS); break;
	case CHUNK:
		o->chunk = bytes(name, value);
		if (o->chunk < 8 || o->chunk % 8)
			refuse(name, value, "a multiple of 8 is wanted");
		break;
	case SEED: o->seed = strtoull(value, NULL, 0); break;
	case DURATION: o->duration = number(name, value, 0, 1e7); break;
	case MESSAGES: o->messages = whole(name, value, 1, 1 << 30); break;
	case UNTIL: o->until = value; break;
	case REOPEN: o->reopen = whole(name, value, 1, 1 << 30); break;
	case PROGRESS: o->progress = whole(name, value, 1, 1 << 30); break;
	case CONNECTIONS: o->connections = whole(name, value, 1, 1 << 30); break;
	case DIE_RANK: o->die_rank = whole(name, value, 0, 1023); break;
	case DIE_LIMIT: o->die_limit_ms = number(name, value, 1, 1e6); break;
	case ORPHANS: o->orphans = whole(name, value, 0, 64); break;
	case EARLY_ORPHANS: o->early_orphans = whole(name, value, 0, 64); break;
	case OPEN_FILES: o->open_files = whole(name, value, 0, 1000000); break;
	case JSON: o->json = value; break;
	case TIMEOUT: o->timeout = number(name, value, 1, 1e6); break;
	case MAX_CALL: o->max_call_ms = number(name, value, 0.001, 1e6); break;
	}
}

void options_parse(struct options *o, int argc, char **argv)
{
	int option, index = 0;

	*o = defaults;
	while ((option = getopt_long(argc, argv, "h", names, &index)) != -1) {
		if (option == 'h' || option == HELP) {
			fputs(help, stdout);
			exit(0);
		}
		if (option == '?')
			exit(2);
		set(o, option, names[index].name, optarg);
	}
	if (optind < argc)
		refuse("", argv[optind], "only options are understood");
	if (!o->plugin)
		refuse("plugin", "", "the library to load is needed");
	if (o->min < 8)
		o->min = 8;
	if (o->max < o->min)
		refuse("max", "", "must not be less than --min");
	o->comms *= o->channels;
	if (o->spawn) {
		o->nranks = o->spawn;
	} else if (o->rank < 0 || o->nranks < 1 || o->rank >= o->nranks) {
		refuse("rank", "", "--rank below --nranks is needed, or --spawn");
	} else if (o->nranks > 1 && !o->rendezvous) {
		refuse("rendezvous", "", "HOST:PORT is needed for more than one rank");
	}
	if (o->die_rank < 0)
		o->die_rank = o->nranks - 1;
	if (o->die_rank >= o->nranks)
		refuse("die-rank", "", "must be below the number of ranks");
}
