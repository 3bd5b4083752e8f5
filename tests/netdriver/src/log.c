#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"

enum { LINE_MAX_BYTES = 2048, WRONG_LINES = 20 };

static int own_rank = -1;
static FILE *out;
static atomic_long wrong_count;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void log_open(int rank, FILE *to)
{
	own_rank = rank;
	out = to;
}

FILE *log_out(void)
{
	return out ? out : stdout;
}

static void vsay(const char *fmt, va_list args)
{
	char text[LINE_MAX_BYTES];

	vsnprintf(text, sizeof text, fmt, args);
	if (own_rank >= 0)
		fprintf(stderr, "netdriver: rank %d: %s\n", own_rank, text);
	else
		fprintf(stderr, "netdriver: %s\n", text);
}

void say(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsay(fmt, args);
	va_end(args);
}

void wrong(const char *fmt, ...)
{
	long seen = atomic_fetch_add(&wrong_count, 1);
	va_list args;

	if (seen > WRONG_LINES)
		return;
	if (seen == WRONG_LINES) {
		say("more went wrong; only counted from here on");
		return;
	}
	va_start(args, fmt);
	vsay(fmt, args);
	va_end(args);
}

long wrongs(void)
{
	return atomic_load(&wrong_count);
}

_Noreturn void die(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsay(fmt, args);
	va_end(args);
	fflush(NULL);
	_exit(1);
}

/* NCCL's logger. */

static const struct {
	const char *name;
	unsigned long bit;
} subsystems[] = {
	{"INIT", 1},          {"COLL", 2},       {"P2P", 4},        {"SHM", 8},      {"NET", 16},
	{"GRAPH", 32},        {"TUNING", 64},    {"ENV", 128},      {"ALLOC", 256},  {"CALL", 512},
	{"PROXY", 1024},      {"NVLS", 2048},    {"BOOTSTRAP", 4096}, {"REG", 8192}, {"PROFILE", 16384},
	{"RAS", 32768},       {"DESTROY", 65536}, {"ALLOC_HOST", 131072}, {"ALL", ~0ul},
};

static int debug_level(void)
{
	static const char *const names[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
	const char *value = getenv("NCCL_DEBUG");

	for (int level = 0; value && level < (int)(sizeof names / sizeof *names); level++)
		if (strcasecmp(value, names[level]) == 0)
			return level;
	return NCCL_LOG_NONE;
}

/* debug_mask follows NCCL: a comma list, "^" in front for all but; INIT, BOOTSTRAP, ENV unless told. */
static unsigned long debug_mask(void)
{
	const char *value = getenv("NCCL_DEBUG_SUBSYS");
	char list[512];
	bool invert;
	unsigned long mask = 0;

	if (!value || !*value)
		return 1 | 128 | 4096;
	invert = *value == '^';
	snprintf(list, sizeof list, "%s", value + invert);
	for (char *rest = list, *name; (name = strtok_r(rest, ",", &rest));)
		for (size_t i = 0; i < sizeof subsystems / sizeof *subsystems; i++)
			if (strcasecmp(name, subsystems[i].name) == 0)
				mask |= subsystems[i].bit;
	return invert ? ~mask : mask;
}

void nccl_logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
{
	char host[64] = "?", text[LINE_MAX_BYTES];
	int pid = (int)getpid(), tid = (int)syscall(SYS_gettid);
	va_list args;

	if (level > debug_level() || (level >= NCCL_LOG_INFO && !(flags & debug_mask())))
		return;
	gethostname(host, sizeof host - 1);
	host[strcspn(host, ".")] = 0;
	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	if (level == NCCL_LOG_WARN)
		fprintf(log_out(), "\n%s:%d:%d [%d] %s:%d NCCL WARN %s\n", host, pid, tid, own_rank,
		        file ? file : "?", line, text);
	else
		fprintf(log_out(), "%s:%d:%d [%d] NCCL %s %s\n", host, pid, tid, own_rank,
		        level == NCCL_LOG_INFO ? "INFO" : level == NCCL_LOG_TRACE ? "TRACE" : "VERSION", text);
	fflush(log_out());
}
