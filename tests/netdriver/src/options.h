#ifndef NETDRIVER_OPTIONS_H
#define NETDRIVER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "memory.h"

/* Which windows of rma lie in memory of --memory's kind; the others lie in the host's. */
enum windows { WINDOWS_ALL, WINDOWS_DATA, WINDOWS_HOST };

struct options {
	const char *plugin;
	int api; /* 0: the newest */
	int rma; /* the same, of the RMA interface; -1: there must be none */
	enum windows windows;
	int rank, nranks;
	const char *rendezvous;
	int rendezvous_fd;
	int spawn;
	bool nodeid_env;

	const char *work;
	size_t min, max, factor, chunk;
	int iters, warmup;
	bool check_once;
	bool profile;
	enum memory_kind memory;
	const char *libcuda;
	int comms, depth; /* comms counts every channel */
	int channels;
	uint64_t seed;
	double duration;
	long messages;
	const char *until; /* NULL: duration or messages */
	int reopen;
	int progress; /* 0: by the clock */
	int connections;

	int die_rank;
	double die_limit_ms;
	int orphans, early_orphans;
	int open_files;

	const char *json;
	double timeout;
	double max_call_ms;
};

/* options_parse ends the process on --help and on anything that it does not understand. */
void options_parse(struct options *options, int argc, char **argv);

#endif
