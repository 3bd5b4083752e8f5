// Send and receive.
#include <string.h>
#include "kernel.h"

// chunk_bytes reads a size that is stored in 8 bits, as a small float.
static size_t chunk_bytes(uint8_t x) {
	size_t exponent = x >> 3, mantissa = x & 7;
	return exponent ? (mantissa | 8) << (exponent - 1) : mantissa;
}

static bool next(struct strand *s, struct move *m) {
	if (s->p2p.begun && s->p2p.at >= s->p2p.bytes) return false;
	s->p2p.begun = true; // nothing is a move too
	size_t n = least(s->p2p.chunk, s->p2p.bytes - s->p2p.at);
	char *at = s->p2p.buffer + s->p2p.at;
	*m = (struct move){
		.from = s->p2p.send ? at : NULL,
		.to = s->p2p.send ? NULL : at,
		.n = (ssize_t)n,
		.recv = !s->p2p.send,
		.send = s->p2p.send,
	};
	s->p2p.at += n;
	return true;
}

// open_strand makes the strand of this channel's part, if it has one.
static int open_strand(struct strand *s, const struct comm *comm, struct channel *channel, int part, int parts, char *buffer, size_t bytes,
	uint8_t chunk, bool ll, bool send) {
	if (part >= parts) return 0;
	size_t each = ((bytes + (size_t)parts - 1) / (size_t)parts + 4095) & ~(size_t)4095;
	size_t first = least((size_t)part * each, bytes);
	strand_init(s, comm, channel, ll ? LL : SIMPLE, 1, 1);
	s->next = next;
	if (!ll) s->step_bytes = (size_t)comm->p2p_chunk;
	s->p2p.buffer = buffer + first;
	s->p2p.bytes = least(first + each, bytes) - first;
	s->p2p.chunk = chunk_bytes(chunk);
	s->p2p.send = send;
	return 1;
}

int p2p_strands(struct strand *s, const struct p2p_work *w, const struct comm *comm, struct channel *channel, int number) {
	int part = p2p_part(w, number);
	struct strand to, from;
	int sends = open_strand(&to, comm, channel, part, w->send_channels, w->send, w->send_bytes, w->send_chunk, w->send_ll, true);
	int recvs = open_strand(&from, comm, channel, part, w->recv_channels, w->recv, w->recv_bytes, w->recv_chunk, w->recv_ll, false);
	if (w->send_rank == comm->rank) { // to itself
		if (sends) memmove(gpu_reach(from.p2p.buffer), gpu_reach(to.p2p.buffer), to.p2p.bytes);
		return 0;
	}
	int n = 0;
	if (sends) {
		s[n] = to;
		strand_to(&s[n++], w->send_rank, 1);
	}
	if (recvs) {
		s[n] = from;
		strand_from(&s[n++], w->recv_rank, 1);
	}
	return n;
}
