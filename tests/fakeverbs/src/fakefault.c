/* fakefault: breaks things in a fabric while programs run on it, and mends them. */
#include "fakenet.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: fakefault [-d DIR] COMMAND...             DIR defaults to $FAKEVERBS_DIR\n"
	"at once:\n"
	"  unplug PORT | plug PORT                        the cable out, and in again\n"
	"  down PORT | up PORT                            the port off, and on again\n"
	"  rate PORT BYTES                                the cable carries so many a second, of one that has a rate\n"
	"  qp-error QPN                                   a queue pair breaks down\n"
	"  event TYPE PORT|QPN                            an asynchronous event, like GID_CHANGE\n"
	"  kill NODE                                      every process on the node that uses RDMA\n"
	"until cleared, or so many times; each prints the number of its rule:\n"
	"  wr status=S [times=1]                          a work request fails with this status\n"
	"  stall                                          packets are lost, the port stays up\n"
	"  ack [times=N]                                  data arrives, its acknowledgement does not\n"
	"  reg bytes=N                                    registering more than N bytes in all fails with ENOMEM\n"
	"  verb name=V errno=E [times=N]                  a verb fails\n"
	"  die name=V [times=1]                           a process is killed as it calls a verb\n"
	"  halt name=V [times=1]                          a process is stopped as it calls a verb, until SIGCONT\n"
	"  slow time=T                                    completions show late\n"
	"  late [time=2ms]                                what a device writes to a GPU's memory shows so late, or when it reads there\n"
	"  which may be narrowed by node=N, port=PORT, qpn=Q, and delayed by skip=K occasions\n"
	"  clear [RULE]                                   one rule, or all\n"
	"  show                                           ports, cables with a rate and what each end has sent, queue pairs, rules\n"
	"PORT is node:device, node:device/port or node:interface; numbers may be decimal or 0x..; S, E and TYPE may be names.\n";

static char dir[2048];

void die(const char *fmt, ...)
{
	va_list ap;

	fputs("fakefault: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

struct name {
	const char *text;
	int value;
};

#define WC(n) {#n, IBV_WC_##n}
static const struct name statuses[] = {
	WC(LOC_LEN_ERR),   WC(LOC_QP_OP_ERR),   WC(LOC_PROT_ERR),      WC(WR_FLUSH_ERR), WC(BAD_RESP_ERR), WC(LOC_ACCESS_ERR), WC(REM_INV_REQ_ERR),
	WC(REM_ACCESS_ERR), WC(REM_OP_ERR),     WC(RETRY_EXC_ERR),     WC(RNR_RETRY_EXC_ERR), WC(REM_ABORT_ERR), WC(FATAL_ERR), WC(GENERAL_ERR),
	WC(RESP_TIMEOUT_ERR), {NULL, 0},
};
#define EV(n) {#n, IBV_EVENT_##n}
static const struct name events[] = {
	EV(CQ_ERR),       EV(QP_FATAL),        EV(QP_REQ_ERR),  EV(QP_ACCESS_ERR), EV(COMM_EST),    EV(SQ_DRAINED),        EV(PATH_MIG),
	EV(PATH_MIG_ERR), EV(DEVICE_FATAL),    EV(PORT_ACTIVE), EV(PORT_ERR),      EV(LID_CHANGE),  EV(PKEY_CHANGE),       EV(SM_CHANGE),
	EV(GID_CHANGE),   EV(CLIENT_REREGISTER), EV(QP_LAST_WQE_REACHED), {NULL, 0},
};
#define ER(n) {#n, n}
static const struct name errnos[] = {
	ER(EPERM), ER(EINTR), ER(EIO), ER(EAGAIN), ER(ENOMEM), ER(EACCES), ER(EFAULT), ER(EBUSY), ER(ENODEV), ER(EINVAL),
	ER(ENOSYS), ER(EOPNOTSUPP), ER(EPROTONOSUPPORT), ER(EBADF), ER(ETIMEDOUT), ER(EHOSTUNREACH), ER(ENETUNREACH), {NULL, 0},
};

static uint64_t number(const char *what, const char *s)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(s, &end, 0);
	if (!isdigit((unsigned char)*s) || errno || (*end && !(end[1] == 0 && strchr("kMG", *end))))
		die("%s '%s': want a number", what, s);
	return v * (*end == 'k' ? 1ull << 10 : *end == 'M' ? 1ull << 20 : *end == 'G' ? 1ull << 30 : 1);
}

static uint32_t named(const char *what, const char *s, const struct name *n, const char *prefix)
{
	const char *bare = prefix && strncmp(s, prefix, strlen(prefix)) == 0 ? s + strlen(prefix) : s;

	for (; n->text; n++)
		if (strcmp(n->text, bare) == 0)
			return (uint32_t)n->value;
	return (uint32_t)number(what, s);
}

static uint64_t duration(const char *s)
{
	static const struct { const char *unit; double ns; } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
	char *end;
	double v = strtod(s, &end);

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strcmp(end, units[i].unit) == 0 && v >= 0 && v * units[i].ns < 1e13)
			return (uint64_t)(v * units[i].ns);
	die("time '%s': want a time like 500ns, 10us, 2ms or 1s", s);
}

static int a_port(const char *s)
{
	char why[512];
	int at = port_find(s, why, sizeof(why));

	if (at < 0)
		die("%s", why);
	return at;
}

static int a_node(const char *s)
{
	int at = node_find(s);

	if (at < 0)
		die("there is no node '%s'", s);
	return at;
}

/* Changes one switch of a port or its cable, and tells everybody whom it concerns. */
static void flip(int port, _Atomic uint32_t *sw, uint32_t to)
{
	int peer = port_peer(port);
	enum ibv_port_state was = port_state(port), peer_was = peer < 0 ? IBV_PORT_NOP : port_state(peer);

	atomic_store(sw, to);
	atomic_fetch_add(&shm->changes, 1);
	tree_port(dir, port);
	port_changed(port, was);
	if (peer >= 0) {
		tree_port(dir, peer);
		port_changed(peer, peer_was);
	}
}

static void cable(const char *spec, uint32_t out)
{
	int port = a_port(spec);

	if (shm->port[port].link < 0)
		die("port '%s' has no cable", spec);
	flip(port, &shm->link[shm->port[port].link].unplugged, out);
}

static void set_rate(const char *spec, const char *bytes)
{
	int link = shm->port[a_port(spec)].link;
	uint64_t rate = number("rate", bytes);

	if (link < 0 || !atomic_load(&shm->link[link].rate) || !rate)
		die("port '%s': want a cable with a rate, and more than 0", spec);
	atomic_store(&shm->link[link].rate, rate);
}

static struct shm_qp *a_qp(const char *s, uint32_t *index)
{
	uint32_t qpn = (uint32_t)number("queue pair", s);

	for (*index = 0; *index < MAX_QPS; ++*index)
		if (live(shm->qp[*index].generation) && shm->qp[*index].qpn == qpn)
			return &shm->qp[*index];
	die("there is no queue pair 0x%06x", qpn);
}

static void tell_qp(const char *s, uint32_t type, bool broken)
{
	uint32_t index;
	struct shm_qp *q = a_qp(s, &index);
	struct shm_event e = {.type = type, .device = q->device, .object = index, .generation = atomic_load(&q->generation)};

	qp_lock(q);
	if (broken)
		shm_qp_error(q);
	proc_event(q->proc, &e);
	qp_unlock(q);
}

static void event(const char *type, const char *at)
{
	uint32_t t = named("event", type, events, "IBV_EVENT_");

	if (strchr(at, ':')) {
		int port = a_port(at);
		struct shm_event e = {.type = t, .device = shm->port[port].device, .port = shm->port[port].num};

		proc_event_all(&e);
	} else {
		tell_qp(at, t, false);
	}
}

static void kill_node(const char *name)
{
	int node = a_node(name), n = 0;

	for (int i = 0; i < MAX_PROCS; i++) {
		uint32_t g = atomic_load(&shm->proc[i].generation);

		if (shm->proc[i].node == node && proc_alive(i, g)) {
			if (kill(shm->proc[i].pid, SIGKILL))
				die("process %d: %s", shm->proc[i].pid, strerror(errno));
			n++;
		}
	}
	printf("%d\n", n);
}

static const struct { const char *name; enum rule_kind kind; int64_t times; } kinds[] = {
	{"wr", RULE_WR, 1}, {"stall", RULE_STALL, -1}, {"ack", RULE_ACK, -1}, {"reg", RULE_REG, -1}, {"verb", RULE_VERB, -1}, {"slow", RULE_SLOW, -1},
	{"die", RULE_DIE, 1},
	{"halt", RULE_HALT, 1},
	{"late", RULE_LATE, -1},
};

static void option(struct shm_rule *r, const char *key, const char *value)
{
	if (strcmp(key, "node") == 0)
		r->node = a_node(value);
	else if (strcmp(key, "port") == 0)
		r->port = a_port(value);
	else if (strcmp(key, "qpn") == 0)
		r->qpn = (int32_t)number(key, value);
	else if (strcmp(key, "skip") == 0)
		r->skip = (int64_t)number(key, value);
	else if (strcmp(key, "times") == 0)
		r->times = (int64_t)number(key, value);
	else if (strcmp(key, "bytes") == 0)
		r->amount = number(key, value);
	else if (strcmp(key, "time") == 0)
		r->amount = duration(value);
	else if (strcmp(key, "status") == 0)
		r->value = named(key, value, statuses, "IBV_WC_");
	else if (strcmp(key, "errno") == 0)
		r->value = named(key, value, errnos, NULL);
	else if (strcmp(key, "name") == 0) {
		for (r->verb = 0; r->verb < VERBS; r->verb++)
			if (strcmp(verb_names[r->verb], value) == 0)
				return;
		die("name '%s': there is no fault for this verb", value);
	} else
		die("unknown word '%s'", key);
}

static void add_rule(enum rule_kind kind, int64_t times, char **words)
{
	struct shm_rule new = {.node = NONE, .port = NONE, .qpn = NONE, .verb = VERBS, .times = times};

	for (; *words; words++) {
		char *eq = strchr(*words, '=');

		if (!eq)
			die("'%s': want word=value", *words);
		*eq = 0;
		option(&new, *words, eq + 1);
	}
	if (kind == RULE_WR && (new.value == 0 || new.value > IBV_WC_GENERAL_ERR))
		die("wr: want status=S, from 1 to %d", IBV_WC_GENERAL_ERR);
	if (kind == RULE_VERB && (new.verb == VERBS || new.value == 0))
		die("verb: want name=V and errno=E");
	if (kind == RULE_LATE && new.amount == 0)
		new.amount = 2000000;
	if ((kind == RULE_DIE || kind == RULE_HALT) && new.verb == VERBS)
		die("die, halt: want name=V");
	for (int i = 0; i < MAX_RULES; i++) {
		struct shm_rule *r = &shm->rule[i];

		if (atomic_load(&r->kind) != RULE_NONE)
			continue;
		*r = new;
		atomic_store(&r->kind, kind);
		atomic_fetch_add(&shm->rules, 1);
		printf("%d\n", i);
		return;
	}
	die("all %d rules are in use: clear some", MAX_RULES);
}

static void clear(const char *which)
{
	uint64_t only = which ? number("rule", which) : MAX_RULES;

	for (uint64_t i = 0; i < MAX_RULES; i++)
		if ((!which || i == only) && atomic_exchange(&shm->rule[i].kind, RULE_NONE) != RULE_NONE)
			atomic_fetch_sub(&shm->rules, 1);
}

static void show_link(const struct shm_link *l)
{
	printf("link");
	for (int end = 0; end < 2; end++) {
		const struct shm_port *p = &shm->port[l->port[end]];
		const struct shm_device *d = &shm->device[p->device];

		printf(" %s:%s/%d %llu", shm->node[d->node].name, d->name, p->num, (unsigned long long)l->carried[end]);
	}
	printf(" rate %llu\n", (unsigned long long)l->rate);
}

static void show(void)
{
	static const char *const states[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

	for (uint32_t i = 0; i < shm->ports; i++) {
		const struct shm_port *p = &shm->port[i];
		const struct shm_device *d = &shm->device[p->device];

		printf("port %s:%s/%d %s %s\n", shm->node[d->node].name, d->name, p->num, p->netdev,
		       port_state((int)i) == IBV_PORT_ACTIVE ? "up" : "down");
	}
	for (uint32_t i = 0; i < shm->links; i++)
		if (shm->link[i].rate)
			show_link(&shm->link[i]);
	for (int i = 0; i < MAX_QPS; i++) {
		const struct shm_qp *q = &shm->qp[i];

		if (live(q->generation))
			printf("qp 0x%06x %s:%s pid %d %s peer 0x%06x receives %u\n", q->qpn, shm->node[shm->device[q->device].node].name,
			       shm->device[q->device].name, shm->proc[q->proc].pid, states[q->state], q->dest_qpn, q->rq_tail - q->rq_head);
	}
	for (int i = 0; i < MAX_RULES; i++) {
		const struct shm_rule *r = &shm->rule[i];

		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
			if (r->kind == kinds[k].kind)
				printf("rule %d %s value %u amount %llu skip %lld times %lld\n", i, kinds[k].name, r->value,
				       (unsigned long long)r->amount, (long long)r->skip, (long long)r->times);
	}
}

int main(int argc, char **argv)
{
	const char *d = getenv("FAKEVERBS_DIR"), *verb;
	int n;

	if (argc > 2 && strcmp(argv[1], "-d") == 0) {
		d = argv[2];
		argv += 2;
		argc -= 2;
	}
	if (argc < 2) {
		fputs(usage, stderr);
		return 1;
	}
	verb = argv[1];
	argv += 2;
	n = argc - 2;
	if (!d || strlen(d) >= sizeof(dir))
		die("set FAKEVERBS_DIR or use -d DIR");
	strcpy(dir, d);
	if (shm_attach(dir))
		die("%s: %s", dir, errno == EPROTO ? "state of another version" : strerror(errno));
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		if (strcmp(verb, kinds[k].name) == 0)
			return add_rule(kinds[k].kind, kinds[k].times, argv), 0;
	if (n == 1 && strcmp(verb, "unplug") == 0)
		cable(argv[0], 1);
	else if (n == 1 && strcmp(verb, "plug") == 0)
		cable(argv[0], 0);
	else if (n == 1 && strcmp(verb, "down") == 0)
		flip(a_port(argv[0]), &shm->port[a_port(argv[0])].down, 1);
	else if (n == 1 && strcmp(verb, "up") == 0)
		flip(a_port(argv[0]), &shm->port[a_port(argv[0])].down, 0);
	else if (n == 2 && strcmp(verb, "rate") == 0)
		set_rate(argv[0], argv[1]);
	else if (n == 1 && strcmp(verb, "qp-error") == 0)
		tell_qp(argv[0], IBV_EVENT_QP_FATAL, true);
	else if (n == 2 && strcmp(verb, "event") == 0)
		event(argv[0], argv[1]);
	else if (n == 1 && strcmp(verb, "kill") == 0)
		kill_node(argv[0]);
	else if (n <= 1 && strcmp(verb, "clear") == 0)
		clear(argv[0]);
	else if (n == 0 && strcmp(verb, "show") == 0)
		show();
	else
		die("'%s': no such command, or not its arguments\n%s", verb, usage);
	return 0;
}
