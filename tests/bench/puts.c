/* What is measured of one-sided transfers. Times of both processes are comparable: they run on one machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "put.h"

/* Two words of each transfer, its first and its last one, tell whether it has come as a whole. */
static void stamp(unsigned char *data, size_t size, uint64_t number)
{
	memcpy(data, &number, 8);
	memcpy(data + size - 8, &number, 8);
}

static void check(const unsigned char *data, size_t size, uint64_t number)
{
	uint64_t first, last;

	memcpy(&first, data, 8);
	memcpy(&last, data + size - 8, 8);
	if (first != number || last != number)
		die("a put of %zu bytes has %llu in front and %llu at its end, want %llu", size, (unsigned long long)first,
		    (unsigned long long)last, (unsigned long long)number);
}

static size_t largest(const struct options *o)
{
	size_t most = 8;

	for (int i = 0; i < o->nsizes; i++)
		most = o->sizes[i] > most ? o->sizes[i] : most;
	return (most + 4095) / 4096 * 4096;
}

/*
 * Rank 0 puts count times into depth slots, and the other sleeps. Returns the seconds from the first put until all of them were there. Each pass has
 * a number of its own.
 */
static double run_pass(const struct options *o, unsigned char *data, size_t stride, size_t size, uint64_t count)
{
	static uint64_t pass;
	uint64_t began, slots = count < (uint64_t)o->depth ? count : (uint64_t)o->depth;
	double seconds = 0, peer;

	pass++;
	if (o->rank == 0)
		for (uint64_t i = 0; i < slots; i++)
			stamp(data + i * stride, size, pass);
	meet_barrier();
	if (o->rank == 0) {
		began = now_ns();
		for (uint64_t i = 0; i < count; i++)
			put_write(i % slots * stride, size);
		put_flush();
		seconds = (double)(now_ns() - began) / 1e9;
	}
	meet_exchange(&seconds, &peer, sizeof seconds);
	if (o->rank == 1)
		for (uint64_t i = 0; i < slots; i++)
			check(data + i * stride, size, pass);
	return o->rank == 0 ? seconds : peer;
}

/* How many puts take the time for which is measured, but no fewer than there are slots twice. */
static uint64_t passes(const struct options *o, unsigned char *data, size_t stride, size_t size, double seconds)
{
	uint64_t count = 2 * (uint64_t)o->depth;
	double took;

	while (took = run_pass(o, data, stride, size, count), took < 0.02)
		count *= 4;
	took = (double)count / took * seconds;
	return took < 2.0 * o->depth ? 2 * (uint64_t)o->depth : (uint64_t)took;
}

/* stream: as many puts as go, as ib_write_bw does. */
static void work_stream(const struct options *o)
{
	size_t stride = largest(o);
	unsigned char *data = map_memory(stride * (size_t)o->depth);

	put_open(o, data, stride * (size_t)o->depth);
	for (int i = 0; i < o->nsizes; i++) {
		size_t size = o->sizes[i];
		uint64_t count = passes(o, data, stride, size, o->seconds);

		for (int measured = 0; wanted(o, measured); measured++) {
			double seconds = run_pass(o, data, stride, size, count);

			if (o->rank == 0)
				printf("{\"size\": %zu, \"rate\": %.6g, \"messages\": %llu}\n", size, (double)count * (double)size / seconds,
				       (unsigned long long)count);
			fflush(stdout);
		}
	}
	put_close();
}

/*
 * A transfer at a time, back and forth, as ib_write_lat does. The first and the last word are the time before the put, so each transfer tells how long it
 * took until the other process saw it. Each process writes a part of the memory of its own. What it has put is complete before it changes it, which takes
 * none of the time that is measured. seen is the last word that came last.
 */
static void rounds(const struct options *o, unsigned char *data, size_t stride, size_t size, bool signals, uint64_t *seen, uint64_t n,
                   double *us)
{
	unsigned char *out = data + (size_t)o->rank * stride, *in = data + (size_t)(1 - o->rank) * stride;
	const uint64_t *last = (const uint64_t *)(void *)(in + size - 8);
	uint64_t now;

	for (uint64_t i = 0; i < n; i++)
		for (int turn = 0; turn < 2; turn++) {
			if (turn == o->rank) {
				put_flush();
				now = now_ns();
				stamp(out, size, now);
				(signals ? put_signal : put_write)((size_t)(out - data), size);
				continue;
			}
			(signals ? put_wait : await_word)(last, *seen);
			now = now_ns();
			*seen = *last;
			us[i] = (double)(now - *seen) / 1e3;
			check(in, size, *seen);
		}
}

static void back_and_forth(const struct options *o, bool signals)
{
	enum { MOST = 100000, TRIAL = 50 };
	size_t stride = largest(o);
	unsigned char *data = map_memory(2 * stride);
	double *us = malloc(2 * MOST * sizeof *us);

	put_open(o, data, 2 * stride);
	for (int i = 0; i < o->nsizes; i++) {
		size_t size = o->sizes[i];
		uint64_t n, began, seen = 0;

		meet_barrier();
		memset(data, 0, 2 * stride); /* the last word of another size */
		meet_barrier();
		rounds(o, data, stride, size, signals, &seen, TRIAL, us);
		began = now_ns();
		rounds(o, data, stride, size, signals, &seen, TRIAL, us);
		n = (uint64_t)agree(o->rank, o->seconds * 1e9 * TRIAL / (double)(now_ns() - began + 1));
		n = n < TRIAL ? TRIAL : n > MOST ? MOST : n;
		for (int measured = 0; wanted(o, measured); measured++) {
			rounds(o, data, stride, size, signals, &seen, n, us);
			meet_exchange(us, us + n, n * sizeof *us);
			qsort(us, 2 * n, sizeof *us, by_value);
			if (o->rank == 0)
				printf("{\"size\": %zu, \"us\": %.6g, \"us_99\": %.6g, \"messages\": %llu}\n", size, us[n],
				       us[2 * n * 99 / 100], (unsigned long long)(2 * n));
			fflush(stdout);
		}
		put_flush();
	}
	free(us);
	put_close();
}

/* pingpong: the other process sees a put in its memory. */
static void work_pingpong(const struct options *o) { back_and_forth(o, false); }

/* signal: the other process waits for the put's signal. */
static void work_signal(const struct options *o) { back_and_forth(o, true); }

/*
 * outage: puts with signals, during which somebody else does something to the cables. Says when it begins, and at its end when the other process got
 * each signal, in ns of the monotonic clock. Answers keep depth puts outstanding: a pause would else be as long as a lane takes for all that waits for it.
 */
static void work_outage(const struct options *o)
{
	size_t size = o->sizes[0], stride = largest(o);
	size_t slots = stride * (size_t)o->depth; /* and a word for answers behind them */
	unsigned char *data = map_memory(slots + 8);
	uint64_t count, *at, *peer;

	put_open(o, data, slots + 8);
	count = passes(o, data, stride, size, o->seconds);
	at = calloc(count, sizeof *at);
	peer = calloc(count, sizeof *peer);
	meet_barrier();
	if (o->rank == 0)
		printf("{\"began\": %llu}\n", (unsigned long long)now_ns());
	fflush(stdout);
	for (uint64_t i = 0; i < count; i++)
		if (o->rank == 0) {
			if (i >= (uint64_t)o->depth)
				put_wait(NULL, 0);
			put_signal(i % (uint64_t)o->depth * stride, size);
		} else {
			put_wait(NULL, 0);
			at[i] = now_ns();
			put_signal(slots, 8);
		}
	put_flush();
	meet_exchange(at, peer, count * sizeof *at);
	print_times(o, size, peer, count);
	free(at);
	free(peer);
	put_close();
}

void work_run(const struct options *o)
{
	static const struct {
		const char *name;
		void (*run)(const struct options *);
	} works[] = {{"stream", work_stream}, {"pingpong", work_pingpong}, {"signal", work_signal}, {"outage", work_outage}};

	for (size_t i = 0; i < sizeof works / sizeof *works; i++)
		if (strcmp(works[i].name, o->work) == 0) {
			works[i].run(o);
			fflush(stdout);
			return;
		}
	die("--work %s: want stream, pingpong, signal or outage", o->work);
}
