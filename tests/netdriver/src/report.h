/* Results: a table as nccl-tests prints it, contract cases, and JSON on request; rank 0's job. */
#ifndef NETDRIVER_REPORT_H
#define NETDRIVER_REPORT_H

#include <stdbool.h>
#include <stddef.h>

struct job;
struct report;

struct result {
	size_t size, count;
	const char *type, *redop;
	double time_us, algbw, busbw; /* us and GB/s */
	long wrong;
};

struct report *report_open(struct job *job);

void report_table(struct job *job, const char *work);
void report_row(struct job *job, const struct result *result);
void report_table_end(struct job *job);

void report_latency(struct job *job, int peer, size_t size, double median_us, double p99_us, double most_us);
void report_soak(struct job *job, double elapsed, long messages, double bytes, long wrong);
void report_rma(struct job *job, int version, double elapsed, long messages, double bytes, long wrong);
void report_case(struct job *job, const char *name, const char *verdict, const char *detail);
void report_death(struct job *job, double slowest_ms);

/* report_close prints what the calls took and writes the JSON. ok: everything was right. */
void report_close(struct job *job, bool ok, long wrong);

#endif
