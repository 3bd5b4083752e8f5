#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

static const char usage[] =
	"usage: %s --meet HOST:PORT --rank 0|1 --work stream|pingpong|burst|vain|setup|outage|signal [option...]\n"
	"  --sizes LIST     bytes of a message, comma-separated (8); of burst: of all messages together\n"
	"  --depth N        messages outstanding (8)\n"
	"  --conns N        connections (1)\n"
	"  --seconds S      measured for about so long, each size (0.4)\n"
	"  --slices         all but setup and outage: measure once for each byte of rank 0's standard input\n"
	"  --turns          stream: run one at a time; for one processor that both are on\n"
	"  --both           stream: every second connection goes the other way\n"
	"  --pause US       pingpong: this long before each message nothing happens (0)\n"
	"  --sleep          verbs: who has waited a millisecond for a message sleeps until the device wakes it\n"
	"  --flag           writes: signal: a flag tells of the data, by a write of its own; without it the data's last word does\n"
	"  --plugin FILE    plugin, library: the library\n"
	"  --device NAME    verbs, writes: the RDMA device; tcp: the interface\n"
	"  --gid INDEX      verbs, writes: index of the GID (3)\n";

void die(const char *fmt, ...)
{
	va_list ap;

	fputs("bench: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static long number(const char *option, const char *text, long least, long most)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (end == text || *end || n < least || n > most)
		die("--%s %s: want %ld to %ld", option, text, least, most);
	return n;
}

static void sizes(struct options *o, char *list)
{
	for (char *s = strtok(list, ","); s; s = strtok(NULL, ",")) {
		if (o->nsizes == MAX_SIZES)
			die("--sizes: more than %d", MAX_SIZES);
		o->sizes[o->nsizes++] = (size_t)number("sizes", s, 8, 1l << 30);
	}
}

int main(int argc, char **argv)
{
	static const struct option known[] = {
		{"meet", 1, NULL, 'm'},  {"rank", 1, NULL, 'r'},    {"work", 1, NULL, 'w'},   {"sizes", 1, NULL, 's'},
		{"depth", 1, NULL, 'd'}, {"conns", 1, NULL, 'c'},   {"seconds", 1, NULL, 't'}, {"plugin", 1, NULL, 'p'},
		{"device", 1, NULL, 'v'}, {"gid", 1, NULL, 'g'},    {"turns", 0, NULL, 'T'},  {"slices", 0, NULL, 'S'},
		{"both", 0, NULL, 'B'},  {"pause", 1, NULL, 'P'},   {"sleep", 0, NULL, 'Z'},
		{"flag", 0, NULL, 'F'},
		{0},
	};
	struct options o = {.rank = -1, .depth = 8, .conns = 1, .seconds = 0.4, .gid_index = 3};
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
		switch (c) {
		case 'm': o.meet = optarg; break;
		case 'r': o.rank = (int)number("rank", optarg, 0, 1); break;
		case 'w': o.work = optarg; break;
		case 's': sizes(&o, optarg); break;
		case 'd': o.depth = (int)number("depth", optarg, 1, MAX_DEPTH); break;
		case 'c': o.conns = (int)number("conns", optarg, 1, 4096); break;
		case 'S': o.slices = true; break;
		case 'T': o.turns = true; break;
		case 'B': o.both = true; break;
		case 'P': o.pause = (int)number("pause", optarg, 0, 1000000); break;
		case 'Z': o.sleep = true; break;
		case 'F': o.flag = true; break;
		case 't': o.seconds = atof(optarg); break;
		case 'p': o.plugin = optarg; break;
		case 'v': o.device = optarg; break;
		case 'g': o.gid_index = (int)number("gid", optarg, 0, 255); break;
		default: fprintf(stderr, usage, argv[0]); return 2;
		}
	if (optind != argc || !o.meet || o.rank < 0 || !o.work || o.seconds <= 0) {
		fprintf(stderr, usage, argv[0]);
		return 2;
	}
	if (o.nsizes == 0)
		o.sizes[o.nsizes++] = 8;
	meet_open(o.meet, o.rank);
	net_init(&o);
	work_run(&o);
	return 0;
}
