// A group of broadcasts with several roots, which NCCL 2.29 does as one: a chunk of each in turn.
#include "kernel.h"

static bool next(struct strand *s, struct move *m) {
	int tried = 0;
	while (tried < s->bcasts.count && s->bcasts.works[s->bcasts.at].bytes == 0) {
		s->bcasts.at = (s->bcasts.at + 1) % s->bcasts.count;
		tried++;
	}
	if (tried == s->bcasts.count) return false;
	struct bcast_work *w = &s->bcasts.works[s->bcasts.at];
	size_t n = least(w->bytes, (size_t)w->chunk);
	bool begins = w->depth == 0, ends = w->depth == s->comm->ranks - 1;
	*m = (struct move){
		.from = begins ? w->send + w->done : NULL,
		.to = begins && w->send == w->recv ? NULL : w->recv + w->done,
		.n = (ssize_t)n,
		.recv = !begins,
		.send = !ends,
		.own = begins,
	};
	w->bytes -= n;
	w->done += n;
	s->bcasts.at = (s->bcasts.at + 1) % s->bcasts.count;
	return true;
}

int bcasts_strands(struct strand *s, const struct function *f, struct bcast_work *works, int count, const struct comm *comm, struct channel *channel) {
	strand_init(s, comm, channel, f->protocol, 1, 1);
	s->next = next;
	s->bcasts.works = works;
	s->bcasts.count = count;
	strand_from(s, channel->ring.prev, 0);
	strand_to(s, channel->ring.next, 0);
	return 1;
}
