/* fakenet: makes a fabric from a topology file and runs programs on its nodes. */
#include "fakenet.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
	"usage: fakenet init -d DIR TOPOLOGY             make the fabric: shared state and a tree in the shape of /sys for each node\n"
	"       fakenet up   -d DIR [TOPOLOGY]           hold the nodes' networks until killed\n"
	"       fakenet exec -d DIR NODE COMMAND...      run a command on a node of a fabric that is up\n"
	"       fakenet run  [-p] [-d DIR] [-n NODE]... TOPOLOGY COMMAND...\n"
	"                                                make it, run the command on every node (or those named), take it down\n"
	"  -d  directory of the fabric; run makes a temporary one without it\n"
	"  -n  node to run on\n"
	"  -p  plain: no namespaces, nodes share this machine's network\n"
	"A command finds FAKEVERBS_DIR, FAKEVERBS_NODE, NCCL_MESH_SYSFS and LD_LIBRARY_PATH set. Output has the node's name before each\n"
	"line when it runs on several. The exit status is the first that is not 0.\n";

static char dir[2048];
static bool temporary, plain;
static pid_t self;

/* What run made for itself goes with it, also when it fails; not when one of its children does. */
static void remove_all(void)
{
	pid_t pid;

	if (!temporary || getpid() != self)
		return;
	pid = fork();
	if (pid == 0) {
		execlp("rm", "rm", "-rf", "--one-file-system", dir, (char *)NULL);
		_exit(127);
	}
	waitpid(pid, NULL, 0);
}

void die(const char *fmt, ...)
{
	va_list ap;

	fputs("fakenet: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	remove_all();
	exit(125);
}

/* The state is memory, so it lies best in a file system that is: one with room for it. */
static void make_temporary(void)
{
	struct statvfs v;
	const char *base = getenv("TMPDIR");

	if (!base)
		base = statvfs("/dev/shm", &v) == 0 && (uint64_t)v.f_bavail * v.f_frsize > 1u << 30 && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(dir, sizeof(dir), "%s/fakeverbs.XXXXXX", base);
	if (!mkdtemp(dir))
		die("%s: %s", dir, strerror(errno));
	temporary = true;
	self = getpid();
}

static void init(const char *topology)
{
	char err[1024], path[PATH_MAX];
	struct shm *s;
	FILE *f;

	if (mkdir(dir, 0755) && errno != EEXIST)
		die("%s: %s", dir, strerror(errno));
	if (!realpath(dir, path) || strlen(path) >= sizeof(dir))
		die("%s: %s", dir, strerror(errno));
	strcpy(dir, path);
	s = shm_create(dir);
	if (!s)
		die("%s/state.new: %s", dir, strerror(errno));
	if (!topology_read(s, topology, err, sizeof(err))) {
		snprintf(path, sizeof(path), "%s/state.new", dir);
		unlink(path);
		die("%s", err);
	}
	shm = s;
	tree_make(dir);
	snprintf(path, sizeof(path), "%s/hosts", dir);
	f = fopen(path, "we");
	if (!f)
		die("%s: %s", path, strerror(errno));
	fputs("127.0.0.1 localhost\n::1 localhost\n", f);
	for (uint32_t i = 0; i < s->nodes; i++)
		fprintf(f, "%s %s\n", s->mgmt[0] && !plain ? mgmt_address((int)i) : "127.0.0.1", s->node[i].name);
	fclose(f);
	if (shm_publish(s, dir))
		die("%s/state: %s", dir, strerror(errno));
}

static void attach(void)
{
	char path[PATH_MAX];

	if (!realpath(dir, path) || strlen(path) >= sizeof(dir))
		die("%s: %s", dir, strerror(errno));
	strcpy(dir, path);
	if (shm_attach(dir))
		die("%s: %s; make the fabric first with 'fakenet init -d %s TOPOLOGY'", dir, strerror(errno), dir);
}

/* Where this program lies, the library lies. */
static void library_path(char *out, size_t n)
{
	char self[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *old = getenv("LD_LIBRARY_PATH");

	if (len < 0)
		die("/proc/self/exe: %s", strerror(errno));
	self[len] = 0;
	*strrchr(self, '/') = 0;
	snprintf(out, n, "%s%s%s", self, old && *old ? ":" : "", old ? old : "");
}

static void become(int node, char **command)
{
	char text[2 * PATH_MAX];

	if (!plain)
		net_join(node, dir);
	setenv("FAKEVERBS_DIR", dir, 1);
	setenv("FAKEVERBS_NODE", shm->node[node].name, 1);
	snprintf(text, sizeof(text), "%s/nodes/%s/sys", dir, shm->node[node].name);
	setenv("NCCL_MESH_SYSFS", text, 1);
	library_path(text, sizeof(text));
	setenv("LD_LIBRARY_PATH", text, 1);
	execvp(command[0], command);
	die("%s: %s", command[0], strerror(errno));
}

struct job {
	pid_t pid;
	int node, out, status;
	char line[8192];
	size_t have;
};

static void start(struct job *j, int node, char **command, bool prefixed)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) || (j->pid = fork()) < 0)
		die("fork: %s", strerror(errno));
	if (j->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGINT, SIG_DFL);
		signal(SIGTERM, SIG_DFL);
		if (prefixed) {
			dup2(p[1], 1);
			dup2(p[1], 2);
		}
		become(node, command);
	}
	j->node = node;
	close(p[1]);
	if (!prefixed) {
		close(p[0]);
		p[0] = -1;
	}
	j->out = p[0];
}

static void print(struct job *j, size_t n)
{
	printf("%s: %.*s\n", shm->node[j->node].name, (int)n, j->line);
	fflush(stdout);
}

/* Reads what there is; whole lines go out, so that those of two nodes do not mix. */
static void drain(struct job *j)
{
	ssize_t n = read(j->out, j->line + j->have, sizeof(j->line) - j->have);
	char *nl;

	if (n <= 0) {
		if (j->have)
			print(j, j->have);
		close(j->out);
		j->out = -1;
		return;
	}
	j->have += (size_t)n;
	while ((nl = memchr(j->line, '\n', j->have))) {
		size_t len = (size_t)(nl - j->line);

		print(j, len);
		j->have -= len + 1;
		memmove(j->line, nl + 1, j->have);
	}
	if (j->have == sizeof(j->line)) {
		print(j, j->have);
		j->have = 0;
	}
}

static volatile sig_atomic_t stop;
static void on_signal(int sig) { stop = sig; }

static void watch_signals(void)
{
	struct sigaction a = {.sa_handler = on_signal};

	sigaction(SIGINT, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
	sigaction(SIGHUP, &a, NULL);
}

/* One turn of waiting: output, and cables. */
static void turn(struct job *jobs, int n)
{
	struct pollfd f[MAX_NODES];
	int open = 0;

	for (int i = 0; i < n; i++)
		f[i] = (struct pollfd){.fd = jobs[i].out, .events = POLLIN};
	if (poll(f, (nfds_t)n, 20) > 0)
		for (int i = 0; i < n; i++)
			if (jobs[i].out >= 0 && f[i].revents)
				drain(&jobs[i]), open++;
	if (!plain)
		net_follow();
}

static int finish(struct job *jobs, int n)
{
	int left = n, status = 0;

	while (left) {
		turn(jobs, n);
		for (int i = 0; i < n; i++) {
			int s;

			if (stop && jobs[i].pid)
				kill(jobs[i].pid, stop);
			if (!jobs[i].pid || waitpid(jobs[i].pid, &s, WNOHANG) != jobs[i].pid)
				continue;
			jobs[i].pid = 0;
			left--;
			s = WIFEXITED(s) ? WEXITSTATUS(s) : 128 + WTERMSIG(s);
			if (s && n > 1)
				fprintf(stderr, "fakenet: node %s: exit status %d\n", shm->node[jobs[i].node].name, s);
			if (!status)
				status = s;
		}
	}
	for (int i = 0; i < n; i++)
		while (jobs[i].out >= 0) {
			struct pollfd f = {.fd = jobs[i].out, .events = POLLIN};

			if (poll(&f, 1, 100) <= 0)
				break; /* held open by something the command left behind */
			drain(&jobs[i]);
		}
	return status;
}

static int run(char **argv, const char *const *wanted, int nwanted)
{
	static struct job jobs[MAX_NODES];
	int nodes[MAX_NODES], n = 0, status;

	if (!argv[0] || !argv[1])
		die("run: want TOPOLOGY COMMAND...");
	if (!dir[0])
		make_temporary();
	init(argv[0]);
	for (int i = 0; i < nwanted; i++) {
		nodes[n] = node_find(wanted[i]);
		if (nodes[n++] < 0)
			die("-n %s: there is no such node in %s", wanted[i], argv[0]);
	}
	for (uint32_t i = 0; !nwanted && i < shm->nodes; i++)
		nodes[n++] = (int)i;
	if (!plain) {
		net_enter();
		net_make(dir);
	}
	watch_signals();
	for (int i = 0; i < n; i++)
		start(&jobs[i], nodes[i], argv + 1, n > 1);
	status = finish(jobs, n);
	remove_all();
	return status;
}

static int up(const char *topology)
{
	if (topology)
		init(topology);
	else
		attach();
	net_enter();
	net_make(dir);
	watch_signals();
	puts("up");
	fflush(stdout);
	while (!stop)
		turn(NULL, 0);
	return 0;
}

static int exec_on(char **argv)
{
	int node;

	if (!argv[0] || !argv[1])
		die("exec: want NODE COMMAND...");
	attach();
	node = node_find(argv[0]);
	if (node < 0)
		die("exec: %s has no node '%s'", dir, argv[0]);
	become(node, argv + 1);
	return 125;
}

int main(int argc, char **argv)
{
	const char *wanted[MAX_NODES], *verb = argc > 1 ? argv[1] : "";
	int nwanted = 0, c;

	if (argc < 2 || strcmp(verb, "-h") == 0 || strcmp(verb, "--help") == 0) {
		fputs(usage, argc < 2 ? stderr : stdout);
		return argc < 2 ? 125 : 0;
	}
	argc--;
	argv++;
	while ((c = getopt(argc, argv, "+d:n:p")) != -1)
		switch (c) {
		case 'd':
			snprintf(dir, sizeof(dir), "%s", optarg);
			break;
		case 'n':
			if (nwanted == MAX_NODES)
				die("-n: more than %d nodes", MAX_NODES);
			wanted[nwanted++] = optarg;
			break;
		case 'p':
			plain = true;
			break;
		default:
			fputs(usage, stderr);
			return 125;
		}
	argv += optind;
	if (strcmp(verb, "run") == 0)
		return run(argv, wanted, nwanted);
	if (!dir[0])
		die("%s: want -d DIR", verb);
	if (strcmp(verb, "init") == 0) {
		if (!argv[0] || argv[1])
			die("init: want one topology file");
		init(argv[0]);
		return 0;
	}
	if (strcmp(verb, "up") == 0)
		return up(argv[0]);
	if (strcmp(verb, "exec") == 0)
		return exec_on(argv);
	die("unknown command '%s'; there are init, up, exec and run", verb);
}
