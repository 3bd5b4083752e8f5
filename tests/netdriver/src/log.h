/* Words for people: the driver's own lines, and the logger handed to the plugin. */
#ifndef NETDRIVER_LOG_H
#define NETDRIVER_LOG_H

#include <stdint.h>
#include <stdio.h>

/* log_open names the rank in every line and sets where the plugin's lines and tables go. */
void log_open(int rank, FILE *out);
FILE *log_out(void);

/* say prints "netdriver: rank R: ..." on stderr. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* wrong says it and makes this rank fail in the end; past a few lines it only counts. */
void wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
long wrongs(void);

/* die says it and ends the process with status 1, without running anybody's exit handlers. */
_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* nccl_logger prints as NCCL's own does, by NCCL_DEBUG and NCCL_DEBUG_SUBSYS. */
void nccl_logger(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

uint64_t now_ns(void);

#endif
