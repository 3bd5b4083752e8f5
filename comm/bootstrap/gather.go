package bootstrap

import (
	"fmt"
	"time"
)

// calls is the state of the all-gathers and barriers of a job. All members make the same calls in the same order; each call has
// a number.
type calls struct {
	completed uint64   // number of the last call that has ended
	last      *failure // why it failed; nil: it did not
	ended     *failure // why no call can succeed any more; nil: calls can
	changed   bool     // ended was set, and the members that wait have not been notified
}

// over makes the present and all later calls fail, because a member is gone.
func (c *calls) over(f *failure) {
	if c.ended == nil {
		c.ended, c.changed = f, true
	}
}

// called handles a call of a member.
func (r *Root) called(s *seat, g *gather) {
	c := &r.calls
	switch {
	case c.ended != nil:
		s.out.put(c.ended.encode(g.number))
		return
	case g.number <= c.completed: // it comes too late for a call that has failed
		f := c.last
		if f == nil || g.number < c.completed {
			f = &failure{failedUnreachable, fmt.Sprintf("rank %d came too late for %s", s.join.rank, g.call())}
		}
		s.out.put(f.encode(g.number))
		return
	case g.number > c.completed+1: // it has given up the present one
		r.failCall(&failure{failedUnreachable, fmt.Sprintf("rank %d has given up the call before", s.join.rank)})
		c.completed = g.number - 1
	}
	s.pending, s.expires = g, time.Now().Add(g.timeout)
	if f := r.mismatch(s); f != nil {
		r.failCall(f)
		return
	}
	r.finishCall()
}

// mismatch returns an error if a member's call does not fit those of the others.
func (r *Root) mismatch(s *seat) *failure {
	for _, o := range r.members {
		if p := o.pending; p != nil && (p.barrier != s.pending.barrier || len(p.data) != len(s.pending.data)) {
			return &failure{failedUsage, fmt.Sprintf("rank %d calls %s, but rank %d %s: all ranks have to make the same calls in the same order",
				s.join.rank, s.pending.call(), o.join.rank, p.call())}
		}
	}
	return nil
}

// finishCall answers the call if all members have made it.
func (r *Root) finishCall() {
	size := 0
	for _, s := range r.members {
		if s.pending == nil {
			return
		}
		size += len(s.pending.data)
	}
	r.calls.completed++
	r.calls.last = nil
	answer := reply(kindGathered, r.calls.completed, size)
	for _, s := range r.members {
		answer = append(answer, s.pending.data...)
	}
	for _, s := range r.members {
		s.pending = nil
		s.out.put(answer)
	}
}

// failCall fails the present call for all that wait, and for those that come late.
func (r *Root) failCall(f *failure) {
	r.calls.completed++
	r.calls.last = f
	for _, s := range r.members {
		if s.pending != nil {
			s.out.put(f.encode(s.pending.number))
			s.pending = nil
		}
	}
}

// expireCall fails the present call if a member is gone or has waited too long.
func (r *Root) expireCall(now time.Time) {
	if c := &r.calls; c.changed {
		c.changed = false
		r.failCall(c.ended)
		return
	}
	for _, s := range r.members {
		if s.pending != nil && now.After(s.expires) {
			absent := r.absent()
			r.failCall(&failure{failedUnreachable, fmt.Sprintf("%s %s not made the call within %v", ranks(absent), have(absent), s.pending.timeout)})
			return
		}
	}
}

// absent returns the ranks that have not made the present call.
func (r *Root) absent() (list []int) {
	for rank, s := range r.members {
		if s.pending == nil {
			list = append(list, rank)
		}
	}
	return list
}
