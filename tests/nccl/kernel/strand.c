// Strands: what all protocols and programs share.
#include "kernel.h"
#include "../gpu/gpu.h"

void strand_init(struct strand *s, const struct comm *comm, struct channel *channel, enum protocol protocol, int slices, int steps) {
	*s = (struct strand){
		.comm = comm,
		.channel = channel,
		.reduction = {.type = ncclInt8},
		.element = 1,
		.advance = protocol == SIMPLE ? simple_advance : ll_advance,
		.protocol = protocol,
		.slices = slices,
		.steps = steps,
		.step_bytes = (size_t)comm->buffer_sizes[protocol] / STEPS,
	};
}

static struct peer *peer_of(const struct strand *s, int rank) {
	struct peer **peers = gpu_reach(s->channel->peers);
	return gpu_reach(peers[rank]);
}

void strand_from(struct strand *s, int rank, int index) {
	s->in[s->ins++].connection = &peer_of(s, rank)->recv[index];
}

void strand_to(struct strand *s, int rank, int index) {
	s->out[s->outs++].connection = &peer_of(s, rank)->send[index];
}

// round_up is to whole moves, as the thread that drives the network counts too.
static uint64_t round_up(uint64_t step, int whole) {
	return (step + (uint64_t)whole - 1) / (uint64_t)whole * (uint64_t)whole;
}

static void open_ends(struct strand *s) {
	int whole = s->protocol == SIMPLE ? s->slices * s->steps : 1;
	for (int i = 0; i < s->ins; i++) s->in[i].step = round_up(s->in[i].connection->step, whole);
	for (int i = 0; i < s->outs; i++) s->out[i].step = round_up(s->out[i].connection->step, whole);
}

static void close_ends(struct strand *s) {
	for (int i = 0; i < s->ins; i++) s->in[i].connection->step = s->in[i].step;
	for (int i = 0; i < s->outs; i++) s->out[i].connection->step = s->out[i].step;
}

enum progress strand_advance(struct strand *s) {
	enum progress progress = IDLE;
	if (!s->opened) {
		open_ends(s);
		s->opened = true;
	}
	for (;;) {
		if (!s->moving) {
			if (!s->next(s, &s->move)) {
				close_ends(s);
				return FINISHED;
			}
			s->moving = true;
			s->offset = 0;
			s->slice = 0;
			s->announced = false;
			if (s->move.n < 0) s->move.n = 0;
		}
		enum progress p = s->advance(s);
		if (p == IDLE) return progress;
		progress = MOVED;
		if (p == FINISHED) s->moving = false;
	}
}
