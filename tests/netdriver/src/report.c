#include "report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "log.h"

struct report {
	char *json; /* the list of results so far */
	size_t json_size;
	FILE *json_stream;
	bool any;
	const char *work;
	double busbw;
	long rows, wrong;
};

struct report *report_open(struct job *job)
{
	struct report *report = calloc(1, sizeof *report);

	if (job->opt.rank == 0)
		report->json_stream = open_memstream(&report->json, &report->json_size);
	return report;
}

static void put_string(FILE *f, const char *s)
{
	fputc('"', f);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			fprintf(f, "\\u%04x", *s);
		else
			fputc(*s, f);
	}
	fputc('"', f);
}

/* item starts an object in the list of results. */
static FILE *item(struct report *report, const char *work)
{
	fprintf(report->json_stream, "%s\n    {\"work\": \"%s\"", report->any ? "," : "", work);
	report->any = true;
	return report->json_stream;
}

static const char *device_name(struct job *job)
{
	struct net_props props;

	return net_properties(&job->net, 0, 0, &props) == ncclSuccess && props.name ? props.name : "?";
}

void report_table(struct job *job, const char *work)
{
	struct report *report = job->report;
	int comms = job->opt.comms / job->opt.channels;

	report->work = work;
	report->busbw = 0;
	report->rows = report->wrong = 0;
	if (job->opt.rank)
		return;
	fprintf(log_out(),
	        "#\n# %s: %d ranks, %d communicator%s, network %s (v%d), device %s, %s\n"
	        "#\n"
	        "#       size         count      type   redop        time    algbw    busbw  #wrong\n"
	        "#        (B)    (elements)                          (us)   (GB/s)   (GB/s)\n",
	        work, job->opt.nranks, comms, comms == 1 ? "" : "s", job->net.name,
	        job->net.version, device_name(job), job->opt.check_once ? "last checked" : "each checked");
}

void report_row(struct job *job, const struct result *r)
{
	struct report *report = job->report;

	report->busbw += r->busbw;
	report->rows++;
	report->wrong += r->wrong;
	if (job->opt.rank)
		return;
	fprintf(log_out(), "%12zu  %12zu  %8s  %6s  %10.2f  %7.3f  %7.3f  %6ld\n", r->size, r->count, r->type,
	        r->redop, r->time_us, r->algbw, r->busbw, r->wrong);
	fflush(log_out());
	fprintf(item(report, report->work),
	        ", \"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": \"%s\", \"time_us\": %.3f, "
	        "\"algbw\": %.6f, \"busbw\": %.6f, \"wrong\": %ld}",
	        r->size, r->count, r->type, r->redop, r->time_us, r->algbw, r->busbw, r->wrong);
}

void report_table_end(struct job *job)
{
	struct report *report = job->report;

	if (job->opt.rank)
		return;
	fprintf(log_out(), "# Out of bounds values : %ld %s\n# Avg bus bandwidth    : %.3f\n#\n", report->wrong,
	        report->wrong ? "FAILED" : "OK", report->rows ? report->busbw / (double)report->rows : 0);
	fflush(log_out());
}

void report_latency(struct job *job, int peer, size_t size, double median_us, double p99_us, double most_us)
{
	if (job->opt.rank)
		return;
	fprintf(log_out(), "%12zu  0 <-> %-3d  %10.2f  %10.2f  %10.2f\n", size, peer, median_us, p99_us, most_us);
	fprintf(item(job->report, "latency"),
	        ", \"peer\": %d, \"size\": %zu, \"median_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f}", peer,
	        size, median_us, p99_us, most_us);
}

void report_soak(struct job *job, double elapsed, long messages, double bytes, long wrong_count)
{
	if (job->opt.rank)
		return;
	fprintf(log_out(), "# soak: %.1f s, %ld messages, %.1f MB, %.1f MB/s, #wrong %ld\n", elapsed, messages,
	        bytes / 1e6, elapsed > 0 ? bytes / elapsed / 1e6 : 0, wrong_count);
	fprintf(item(job->report, "soak"),
	        ", \"seconds\": %.3f, \"messages\": %ld, \"bytes\": %.0f, \"seed\": %llu, \"wrong\": %ld}", elapsed,
	        messages, bytes, (unsigned long long)job->opt.seed, wrong_count);
}

void report_rma(struct job *job, int version, double elapsed, long messages, double bytes, long wrong_count)
{
	if (job->opt.rank)
		return;
	fprintf(log_out(), "# rma v%d: %.1f s, %ld messages, %.1f MB, #wrong %ld\n", version, elapsed, messages, bytes / 1e6, wrong_count);
	fprintf(item(job->report, "rma"), ", \"version\": %d, \"seconds\": %.3f, \"messages\": %ld, \"bytes\": %.0f, \"wrong\": %ld}",
	        version, elapsed, messages, bytes, wrong_count);
}

void report_case(struct job *job, const char *name, const char *verdict, const char *detail)
{
	FILE *f;

	if (job->opt.rank)
		return;
	fprintf(log_out(), "%s  %s%s%s\n", verdict, name, *detail ? ": " : "", detail);
	fflush(log_out());
	f = item(job->report, "contract");
	fputs(", \"case\": ", f);
	put_string(f, name);
	fprintf(f, ", \"verdict\": \"%s\", \"detail\": ", verdict);
	put_string(f, detail);
	fputc('}', f);
}

void report_death(struct job *job, double slowest_ms)
{
	if (job->opt.rank == 0)
		fprintf(item(job->report, "die"), ", \"rank\": %d, \"slowest_ms\": %.3f}", job->opt.die_rank,
		        slowest_ms);
}

static void print_calls(struct job *job)
{
	fprintf(log_out(), "# Longest calls of rank %d (us):", job->opt.rank);
	for (enum net_call call = 0; call < NET_CALLS; call++)
		if (call_time(call).calls)
			fprintf(log_out(), " %s %.1f", call_name(call), (double)call_time(call).longest_ns / 1e3);
	fputc('\n', log_out());
	fflush(log_out());
}

static void write_json(struct job *job, bool ok, long wrong_count)
{
	struct report *report = job->report;
	bool own = strcmp(job->opt.json, "-") != 0, first = true;
	FILE *f = own ? fopen(job->opt.json, "w") : stdout;

	if (!f)
		die("--json %s: %s", job->opt.json, strerror(errno));
	fflush(report->json_stream);
	fputs("{\n  \"plugin\": ", f);
	put_string(f, job->opt.plugin);
	fputs(",\n  \"network\": ", f);
	put_string(f, job->net.name);
	fprintf(f, ",\n  \"api\": %d,\n  \"ranks\": %d,\n  \"communicators\": %d,\n  \"results\": [%s\n  ],\n",
	        job->net.version, job->opt.nranks, job->opt.comms / job->opt.channels, report->json);
	fputs("  \"calls\": {", f);
	for (enum net_call call = 0; call < NET_CALLS; call++) {
		struct call_time t = call_time(call);

		if (!t.calls)
			continue;
		fprintf(f, "%s\n    \"%s\": {\"calls\": %llu, \"longest_us\": %.3f}", first ? "" : ",",
		        call_name(call), (unsigned long long)t.calls, (double)t.longest_ns / 1e3);
		first = false;
	}
	fprintf(f, "\n  },\n  \"wrong\": %ld,\n  \"ok\": %s\n}\n", wrong_count, ok ? "true" : "false");
	if (own ? fclose(f) : fflush(f))
		die("--json %s: %s", job->opt.json, strerror(errno));
}

void report_close(struct job *job, bool ok, long wrong_count)
{
	if (job->opt.rank == 0) {
		print_calls(job);
		if (job->opt.json)
			write_json(job, ok, wrong_count);
		fclose(job->report->json_stream);
		free(job->report->json);
	}
	free(job->report);
}
