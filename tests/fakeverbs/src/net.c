/* Namespaces: every node has a network of its own, with one veth for each cable and one that leads to all other nodes.
 *
 * A process that does nothing holds each node's network; interfaces are made with ip(8). The management network is a hub that routes
 * between the nodes' mgmt0, with neighbour entries set by hand, since a kernel need not have bridges. */
#include "fakenet.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t holder[MAX_NODES];
static bool is_up[MAX_PORTS];

static void put(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(const char *path, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	int fd, n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, text, (size_t)n) != n)
		die("%s: cannot write '%s': %s", path, text, strerror(errno));
	close(fd);
}

/* Becomes able to make networks: as root directly, else as root of a user namespace that all nodes share - processes in different user
 * namespaces could not copy to one another. */
void net_enter(void)
{
	uid_t uid = getuid();
	gid_t gid = getgid();

	if (unshare(CLONE_NEWNS | CLONE_NEWNET) == 0)
		return;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET))
		die("neither root nor allowed to make a user namespace (%s): use -p, which needs neither but shares this machine's network",
		    strerror(errno));
	put("/proc/self/setgroups", "deny");
	put("/proc/self/uid_map", "0 %d 1", (int)uid);
	put("/proc/self/gid_map", "0 %d 1", (int)gid);
}

static void enter(pid_t pid, const char *ns, int type)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, ns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, type))
		die("%s: %s", path, strerror(errno));
	close(fd);
}

static pid_t hold(void)
{
	int ready[2];
	char c;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) || (pid = fork()) < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNET))
			die("new network namespace: %s", strerror(errno));
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		exit(1);
	close(ready[0]);
	return pid;
}

/* A list of commands for ip(8). */
struct script {
	FILE *f;
	char *text;
	size_t n;
};

static struct script *script(struct script *s)
{
	s->f = open_memstream(&s->text, &s->n);
	if (!s->f)
		die("out of memory");
	return s;
}

/* Runs ip(8) on a script, in the network of process `in` (0: this one's), and frees it. */
static void ip(pid_t in, struct script *s)
{
	int feed[2], status;
	pid_t pid;

	fclose(s->f);
	if (pipe2(feed, O_CLOEXEC) || (pid = fork()) < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		if (in)
			enter(in, "net", CLONE_NEWNET);
		dup2(feed[0], 0);
		execlp("ip", "ip", "-batch", "-", (char *)NULL);
		die("ip: %s (install iproute2)", strerror(errno));
	}
	close(feed[0]);
	if (write(feed[1], s->text, s->n) != (ssize_t)s->n)
		die("ip: %s", strerror(errno));
	close(feed[1]);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die("ip: %s", strerror(errno));
	if (status)
		die("ip failed on:\n%s", s->text);
	free(s->text);
}

static void mac_text(const uint8_t *m, char out[18])
{
	snprintf(out, 18, "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
}

static uint32_t mgmt_base(int *len)
{
	char ip4[32];
	struct in_addr a;

	sscanf(shm->mgmt, "%31[0-9.]/%d", ip4, len);
	inet_pton(AF_INET, ip4, &a);
	return ntohl(a.s_addr) & ~(0xffffffffu >> *len);
}

const char *mgmt_address(int node)
{
	static char text[16];
	struct in_addr a;
	int len;

	if (!shm->mgmt[0])
		return "";
	a.s_addr = htonl(mgmt_base(&len) + 1 + (uint32_t)node);
	snprintf(text, sizeof(text), "%s", inet_ntoa(a));
	return text;
}

static void hub_mac(int node, bool hub_side, char out[18])
{
	snprintf(out, 18, "02:fb:ff:%02x:%02x:01", (unsigned)hub_side, (unsigned)node & 0xff);
}

static void make_hub(void)
{
	char mac[18], peer[18];
	struct script s;
	FILE *f = script(&s)->f;

	fprintf(f, "link set lo up\n");
	for (int i = 0; i < (int)shm->nodes; i++) {
		hub_mac(i, true, mac);
		hub_mac(i, false, peer);
		fprintf(f, "link add m%d address %s type veth peer name mgmt0 address %s netns %d\n", i, mac, peer, (int)holder[i]);
		fprintf(f, "link set m%d up\nroute add %s/32 dev m%d\n", i, mgmt_address(i), i);
		fprintf(f, "neigh add %s lladdr %s dev m%d nud permanent\n", mgmt_address(i), peer, i);
	}
	ip(0, &s);
	put("/proc/sys/net/ipv4/ip_forward", "1");
}

static void make_cables(void)
{
	char mac[2][18];

	for (uint32_t i = 0; i < shm->links; i++) {
		const struct shm_port *p[2] = {&shm->port[shm->link[i].port[0]], &shm->port[shm->link[i].port[1]]};
		struct script s;
		FILE *f;

		if (p[0]->infiniband)
			continue;
		f = script(&s)->f;
		mac_text(p[0]->mac, mac[0]);
		mac_text(p[1]->mac, mac[1]);
		fprintf(f, "link add %s mtu %u address %s type veth peer name %s mtu %u address %s netns %d\n", p[0]->netdev, p[0]->netdev_mtu,
			mac[0], p[1]->netdev, p[1]->netdev_mtu, mac[1], (int)holder[shm->device[p[1]->device].node]);
		ip(holder[shm->device[p[0]->device].node], &s);
	}
}

/* A port whose cable is a pair of interfaces. */
static bool wired(const struct shm_port *p) { return p->link >= 0 && !p->infiniband; }

/* The commands that bring a port's interface up with its addresses; IPv6 ones are lost whenever it goes down. */
static void port_up(FILE *f, const struct shm_port *p)
{
	char addr[INET6_ADDRSTRLEN];

	fprintf(f, "link set %s up\n", p->netdev);
	for (uint32_t i = 0; i < p->gids; i++) {
		const uint8_t *g = p->gid[i].gid.raw;
		bool v4 = memcmp(g, (uint8_t[12]){[10] = 0xff, 0xff}, 12) == 0;

		if (p->gid[i].type != IBV_GID_TYPE_ROCE_V2 || (g[0] == 0xfe && g[1] == 0x80))
			continue;
		inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? g + 12 : g, addr, sizeof(addr));
		fprintf(f, "addr replace %s/%u dev %s %s\n", addr, p->prefix[i], p->netdev, v4 ? "" : "nodad");
	}
}

static void make_node(int node)
{
	char mac[18];
	struct script s;
	FILE *f = script(&s)->f;
	int len;

	fprintf(f, "link set lo up\n");
	if (shm->mgmt[0]) {
		mgmt_base(&len);
		fprintf(f, "addr add %s/%d dev mgmt0\nlink set mgmt0 up\n", mgmt_address(node), len);
		hub_mac(node, true, mac);
		for (int i = 0; i < (int)shm->nodes; i++)
			if (i != node)
				fprintf(f, "neigh add %s lladdr %s dev mgmt0 nud permanent\n", mgmt_address(i), mac);
	}
	for (uint32_t i = 0; i < shm->ports; i++)
		if (shm->device[shm->port[i].device].node == node && wired(&shm->port[i]))
			port_up(f, &shm->port[i]);
	ip(holder[node], &s);
}

static void await_running(const char *netdev, const char *node)
{
	struct ifreq r = {0};
	int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		die("socket: %s", strerror(errno));
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", netdev);
	for (int ms = 0; ioctl(s, SIOCGIFFLAGS, &r) || !(r.ifr_flags & IFF_RUNNING); ms++) {
		if (ms == 60000)
			die("interface %s of node %s does not come up", netdev, node);
		usleep(1000);
	}
	close(s);
}

/* An interface is up some time after it was set up, when the kernel has looked at its carrier. Programs that choose among those that
 * are up would otherwise choose another one. */
static void settle(void)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		for (int n = 0; n < (int)shm->nodes; n++) {
			enter(holder[n], "net", CLONE_NEWNET);
			if (shm->mgmt[0])
				await_running("mgmt0", shm->node[n].name);
			for (uint32_t i = 0; i < shm->ports; i++)
				if (shm->device[shm->port[i].device].node == n && wired(&shm->port[i]))
					await_running(shm->port[i].netdev, shm->node[n].name);
		}
		_exit(0);
	}
	if (waitpid(pid, &status, 0) < 0 || status)
		exit(125); /* it has said why */
}

void net_make(const char *dir)
{
	char path[4096];

	for (int i = 0; i < (int)shm->nodes; i++) {
		holder[i] = hold();
		snprintf(path, sizeof(path), "%s/nodes/%s/pid", dir, shm->node[i].name);
		put(path, "%d\n", (int)holder[i]);
	}
	if (shm->mgmt[0])
		make_hub();
	make_cables();
	for (int i = 0; i < (int)shm->nodes; i++)
		make_node(i);
	for (uint32_t i = 0; i < shm->ports; i++)
		is_up[i] = true;
	settle();
}

/* A veth shows no carrier when its other end is down, so both ends of a pulled cable go down. */
void net_follow(void)
{
	for (uint32_t i = 0; i < shm->ports; i++) {
		bool up = port_state((int)i) == IBV_PORT_ACTIVE;
		struct script s;
		FILE *f;

		if (!wired(&shm->port[i]) || up == is_up[i])
			continue;
		is_up[i] = up;
		f = script(&s)->f;
		if (up)
			port_up(f, &shm->port[i]);
		else
			fprintf(f, "link set %s down\n", shm->port[i].netdev);
		ip(holder[shm->device[shm->port[i].device].node], &s);
	}
}

/* The classes of the machine's own /sys that stay visible: their entries are links to ../../devices, which stays in place. */
static void copy_classes(const char *from, const char *to)
{
	char a[4800], b[4800], target[512];
	DIR *classes = opendir(from), *d;
	struct dirent *c, *e;

	while (classes && (c = readdir(classes))) {
		if (c->d_name[0] == '.' || strncmp(c->d_name, "infiniband", 10) == 0 || strcmp(c->d_name, "net") == 0)
			continue;
		snprintf(b, sizeof(b), "%s/%s", to, c->d_name);
		mkdir(b, 0755);
		snprintf(a, sizeof(a), "%s/%s", from, c->d_name);
		for (d = opendir(a); d && (e = readdir(d));) {
			ssize_t n;

			snprintf(a, sizeof(a), "%s/%s/%s", from, c->d_name, e->d_name);
			n = readlink(a, target, sizeof(target) - 1);
			if (n < 0)
				continue;
			target[n] = 0;
			snprintf(b, sizeof(b), "%s/%s/%s", to, c->d_name, e->d_name);
			if (symlink(target, b))
				continue;
		}
		if (d)
			closedir(d);
	}
	if (classes)
		closedir(classes);
}

static void see(const char *what, const char *target)
{
	if (symlink(target, what))
		die("%s: %s", what, strerror(errno));
}

/* /sys/class with this node's devices and interfaces in it. */
static void mount_class(int node, const char *dir)
{
	char stage[4000], tree[4096], path[4200], target[4200];

	snprintf(stage, sizeof(stage), "%s/nodes/%s/class", dir, shm->node[node].name);
	mkdir(stage, 0755);
	if (mount("fakeverbs", stage, "tmpfs", 0, "size=4m,mode=755"))
		die("%s: %s", stage, strerror(errno));
	copy_classes("/sys/class", stage);
	snprintf(tree, sizeof(tree), "%s/nodes/%s/sys/class", dir, shm->node[node].name);
	for (const char *const *c = (const char *const[]){"infiniband", "infiniband_verbs", NULL}; *c; c++) {
		snprintf(path, sizeof(path), "%s/%s", stage, *c);
		snprintf(target, sizeof(target), "%s/%s", tree, *c);
		if (access(target, F_OK) == 0)
			see(path, target);
	}
	snprintf(path, sizeof(path), "%s/net", stage);
	mkdir(path, 0755);
	for (const char *const *c = (const char *const[]){"lo", "mgmt0", NULL}; *c; c++) {
		snprintf(path, sizeof(path), "%s/net/%s", stage, *c);
		snprintf(target, sizeof(target), "../../devices/virtual/net/%s", *c);
		see(path, target);
	}
	for (uint32_t i = 0; i < shm->ports; i++) {
		if (shm->device[shm->port[i].device].node != node || !shm->port[i].netdev[0])
			continue;
		snprintf(path, sizeof(path), "%s/net/%s", stage, shm->port[i].netdev);
		snprintf(target, sizeof(target), "%s/net/%s", tree, shm->port[i].netdev);
		see(path, target);
	}
	if (mount(stage, "/sys/class", NULL, MS_MOVE, NULL) && mount(stage, "/sys/class", NULL, MS_BIND | MS_REC, NULL))
		die("/sys/class: %s", strerror(errno));
}

/* The calling process becomes one of the node's. */
void net_join(int node, const char *dir)
{
	char path[4096], text[32] = "";
	pid_t pid = holder[node];
	FILE *f;

	if (!pid) { /* made by another fakenet */
		snprintf(path, sizeof(path), "%s/nodes/%s/pid", dir, shm->node[node].name);
		f = fopen(path, "re");
		if (!f || !fgets(text, sizeof(text), f) || (pid = atoi(text)) <= 0)
			die("%s: the network is not up; start it with 'fakenet up -d %s'", path, dir);
		fclose(f);
		if (geteuid() != 0)
			enter(pid, "user", CLONE_NEWUSER);
	}
	enter(pid, "net", CLONE_NEWNET);
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		die("new mount namespace: %s", strerror(errno));
	if (mount("sysfs", "/sys", "sysfs", 0, NULL))
		die("/sys: %s", strerror(errno));
	mount_class(node, dir);
	snprintf(path, sizeof(path), "%s/hosts", dir);
	if (access(path, F_OK) == 0 && mount(path, "/etc/hosts", NULL, MS_BIND, NULL))
		die("/etc/hosts: %s", strerror(errno));
}
