// The arguments: who this rank is, then the steps, each one argument. `rank --help` lists them.
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "rank.h"

static struct job job;

_Noreturn void fail(const char *format, ...) {
	va_list args;
	va_start(args, format);
	printf("wrong rank %d: ", job.rank);
	vprintf(format, args);
	putchar('\n');
	fflush(stdout);
	_exit(3);
}

void say(const char *format, ...) {
	va_list args;
	va_start(args, format);
	vprintf(format, args);
	putchar('\n');
	fflush(stdout);
}

double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char help[] =
	"usage: rank RANK RANKS ID-FILE STEP...\n"
	"  env NAME=VALUE       set it for what follows\n"
	"  init                 make the communicator of all ranks\n"
	"  destroy              end it\n"
	"  check ORDER          do it once and compare: COLLECTIVE TYPE OP COUNT [root=N] [inplace]\n"
	"  time N ORDER         do it N times and say how long one takes\n"
	"  patience SECONDS     how long a collective may take; 0 is for ever\n"
	"  split [share]        even and odd ranks by themselves, with resources of their own or shared\n"
	"  abort SECONDS        end the communicator so long after collectives have begun\n"
	"  cycles N [SECONDS]   make and end a communicator N times, with so long a rest between; nothing may be left behind\n"
	"  until-error [SECONDS | FILE]  all-reduces until NCCL reports an error, or for so long, or until rank 0 finds the file\n"
	"  killed RANK SECONDS  that rank is killed so long after this step\n";

static struct group group;
static int checked;

static void step(char *text) {
	char *rest = strchr(text, ' ');
	if (rest) *rest++ = 0;
	else rest = text + strlen(text);
	struct order o;
	double start = now();
	if (strcmp(text, "env") == 0) {
		char *value = strchr(rest, '=');
		if (!value) fail("env takes NAME=VALUE, not %s", rest);
		*value++ = 0;
		if (*value ? setenv(rest, value, 1) : unsetenv(rest)) fail("setenv %s", rest);
	} else if (strcmp(text, "init") == 0) {
		group_open(&job, &group);
		if (job.rank == 0) say("init ms=%.1f", (now() - start) * 1e3);
	} else if (strcmp(text, "destroy") == 0) {
		group_close(&job, &group);
	} else if (strcmp(text, "check") == 0) {
		order_parse(&o, rest);
		o.seed = checked++;
		order_check(&job, &group, &o);
	} else if (strcmp(text, "time") == 0) {
		char *order = NULL;
		int n = (int)strtol(rest, &order, 10);
		order_parse(&o, order);
		order_time(&job, &group, &o, n);
	} else if (strcmp(text, "patience") == 0) {
		job.patience = atof(rest);
	} else if (strcmp(text, "split") == 0) {
		case_split(&job, &group, strcmp(rest, "share") == 0);
	} else if (strcmp(text, "abort") == 0) {
		case_abort(&job, &group, atof(rest));
	} else if (strcmp(text, "cycles") == 0) {
		char *pause = NULL;
		int cycles = (int)strtol(rest, &pause, 10);
		case_cycles(&job, cycles, atof(pause));
	} else if (strcmp(text, "killed") == 0) {
		char *seconds = NULL;
		int rank = (int)strtol(rest, &seconds, 10);
		case_killed(&job, rank, atof(seconds));
	} else if (strcmp(text, "until-error") == 0) {
		case_until_error(&job, &group, rest);
	} else {
		fail("unknown step %s\n%s", text, help);
	}
}

int main(int argc, char **argv) {
	if (argc < 4) {
		fputs(help, stderr);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0); // NCCL's log too: tests wait for lines of it
	job = (struct job){.rank = atoi(argv[1]), .ranks = atoi(argv[2]), .id = argv[3]};
	for (int i = 4; i < argc; i++) step(argv[i]);
	int version;
	NCCL(ncclGetVersion(&version));
	say("done rank %d: %d checked, NCCL %d", job.rank, checked, version);
	return 0;
}
