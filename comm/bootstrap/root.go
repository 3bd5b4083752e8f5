package bootstrap

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport"
	"ncclmesh/transport/fault"
)

// A Root serves the bootstrap of one job: see the package comment. It ends when all members have left, when nobody has come
// for its last word after the set-up has failed, or when it is closed.
type Root struct {
	host     *Host
	listener *transport.Listener
	id       ID
	seal     *seal
	release  func()        // nil: nothing to release
	done     chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	closing bool
	local   []*seat // members in this process that the goroutine has not seen yet

	// The fields below belong to the goroutine.
	size      int     // of the job; 0: no member has joined
	seats     []*seat // all that are open, joined or not, in the order in which they came
	members   []*seat // by rank; nil: has not joined
	complete  bool    // all have joined
	failed    *failure
	failedAt  time.Time
	lastError error // the last set-up of a connection that failed
	calls     calls
}

// NewRoot makes the root of a job, and starts to serve it. size is the number of ranks, or 0 if the first member decides.
func (h *Host) NewRoot(size int) (*Root, error) {
	l, err := h.Transport.Listen()
	if err != nil {
		return nil, err
	}
	r := &Root{host: h, listener: l, id: l.Handle(), done: make(chan struct{})}
	handle, err := r.id.check()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r.seal = newSeal(handle.Secret, h.Random)
	if size > 0 {
		r.setSize(size)
	}
	if h.Retain != nil {
		r.release = h.Retain()
	}
	h.mu.Lock()
	if h.roots == nil {
		h.roots = map[ID]*Root{}
	}
	h.roots[r.id] = r
	h.mu.Unlock()
	go guard.Run(r.run, func(p *guard.Panic) { fault.Panicked(h.Log, "bootstrap", p) })
	return r, nil
}

// ID returns what the ranks need to join.
func (r *Root) ID() ID { return r.id }

// Close ends the root. Members that wait for it get an error. It returns when the root has ended.
func (r *Root) Close() {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	<-r.done
}

// join adds a member in this process, and returns its ends of the two queues. It returns nil if the root has ended.
func (r *Root) join() (outbox, inbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return nil, nil
	}
	to, from := &pipe{}, &pipe{}
	r.local = append(r.local, &seat{name: "the root's process", in: pipeIn{to}, out: pipeOut{from}})
	return pipeOut{to}, pipeIn{from}
}

// longestIdle is how long the root pauses between two polls of its members, at most.
const longestIdle = 5 * time.Millisecond

// run serves the job until it ends.
func (r *Root) run() {
	defer r.end()
	pace := r.host.newPace()
	pace.Spins, pace.Max = 0, longestIdle // the members' calls are rare
	for r.step(pace.Reset) {
		pace.Wait()
	}
}

// step does all there is to do at present. It calls found if there was something, and reports whether the root goes on.
func (r *Root) step(found func()) bool {
	local, closing := r.takeLocal()
	if closing {
		return false
	}
	r.seats = append(r.seats, local...)
	if len(local) > 0 || r.accept() {
		found()
	}
	for _, s := range slices.Clone(r.seats) {
		if r.serve(s) {
			found()
		}
	}
	r.seats = slices.DeleteFunc(r.seats, func(s *seat) bool { return s.state.At() == seatClosed })
	r.expire(time.Now())
	return !r.over()
}

func (r *Root) takeLocal() (local []*seat, closing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	local, r.local = r.local, nil
	return local, r.closing
}

// accept takes a connection that a member has dialled, and reports whether there was one.
func (r *Root) accept() bool {
	c, err := r.listener.Accept()
	if err != nil {
		r.lastError = err
		r.host.Log.Warn("bootstrap: a rank could not connect", "err", err)
	}
	if c == nil {
		return err != nil
	}
	in, err := newConnInbox(c, r.seal)
	if err != nil {
		r.lastError = err
		r.host.Log.Warn("bootstrap: a rank could not be served", "err", err)
		return true
	}
	r.seats = append(r.seats, &seat{name: "node " + c.Session.Name(), in: in})
	return true
}

// over reports whether nobody needs the root any more.
func (r *Root) over() bool {
	switch {
	case len(r.seats) > 0:
		return false
	case r.complete:
		return true
	}
	return r.failed != nil && time.Since(r.failedAt) > DefaultTimeout
}

// end closes everything.
func (r *Root) end() {
	h := r.host
	h.mu.Lock()
	delete(h.roots, r.id)
	h.mu.Unlock()
	r.mu.Lock()
	r.closing = true
	r.seats = append(r.seats, r.local...)
	r.mu.Unlock()
	errs := []error{r.listener.Close()}
	for _, s := range r.seats {
		errs = append(errs, s.close())
	}
	if err := errors.Join(errs...); err != nil {
		h.Log.Warn("bootstrap: the root has ended", "err", err)
	}
	close(r.done)
	if r.release != nil {
		r.release()
	}
}

func (r *Root) setSize(n int) { r.size, r.members = n, make([]*seat, n) }

// reserve gives a member its rank, or returns the reason why it is refused.
func (r *Root) reserve(s *seat, j *join) *failure {
	switch {
	case r.failed != nil:
		return r.failed
	case j.size < 1 || j.size > MaxRanks || j.rank < 0 || j.rank >= j.size:
		return &failure{failedUsage, fmt.Sprintf("rank %d of %d is not possible: 1 to %d ranks, counted from 0, are", j.rank, j.size, MaxRanks)}
	}
	if r.size == 0 {
		r.setSize(j.size)
	}
	if j.size != r.size {
		f := &failure{failedUsage, fmt.Sprintf("rank %d (%s) was started for a job of %d ranks, but the ranks that came before for %d: start all with the same number", j.rank, s.name, j.size, r.size)}
		r.fail(f)
		return f
	}
	if other := r.members[j.rank]; other != nil {
		r.host.Log.Warn("bootstrap: a rank came twice", "rank", j.rank, "first", other.name, "second", s.name)
		return &failure{failedUsage, fmt.Sprintf("rank %d has already joined, from %s: give every process a rank of its own", j.rank, other.name)}
	}
	r.members[j.rank] = s
	return nil
}

// joined is called when a member can be reached. When all can be, they get the table.
func (r *Root) joined() {
	if slices.ContainsFunc(r.members, func(s *seat) bool { return s == nil || s.state.At() < seatJoined }) {
		return
	}
	r.complete = true
	table := []byte{kindTable}
	for _, s := range r.members {
		table = append(table, s.join.handle[:]...)
	}
	for _, s := range r.members {
		s.out.put(table)
	}
}

// fail ends the set-up of the job with the reason that all members get, those who have joined and those who come later.
func (r *Root) fail(f *failure) {
	if r.failed != nil || r.complete {
		return
	}
	r.failed, r.failedAt = f, time.Now()
	for _, s := range r.seats {
		if s.state.At() == seatJoined {
			s.refuse(f)
		} else {
			s.refusal = f
		}
	}
}

// expire fails the set-up, or the present call, if a member has waited for it too long.
func (r *Root) expire(now time.Time) {
	if r.complete {
		r.expireCall(now)
		return
	}
	for _, s := range r.members {
		if s != nil && r.failed == nil && now.After(s.deadline) {
			r.fail(&failure{failedUnreachable, r.missing(s.join.timeout)})
		}
	}
}

// missing names the ranks that have not joined.
func (r *Root) missing(waited time.Duration) string {
	var none, halfway []int
	for rank, s := range r.members {
		switch {
		case s == nil:
			none = append(none, rank)
		case s.state.At() < seatJoined:
			halfway = append(halfway, rank)
		}
	}
	var text []string
	if len(none) > 0 {
		text = append(text, fmt.Sprintf("%s of %d %s not joined within %v", ranks(none), r.size, have(none), waited))
	}
	if len(halfway) > 0 {
		text = append(text, fmt.Sprintf("the root cannot connect to %s", ranks(halfway)))
	}
	if r.lastError != nil {
		text = append(text, fmt.Sprintf("the last error of a connection: %v", r.lastError))
	}
	return strings.Join(text, "; ")
}

// have returns the verb for a list of ranks.
func have(list []int) string {
	if len(list) == 1 {
		return "has"
	}
	return "have"
}

// ranks lists ranks, at most some of them.
func ranks(list []int) string {
	const most = 16
	var b strings.Builder
	b.WriteString("rank ")
	if len(list) > 1 {
		b.Reset()
		b.WriteString("ranks ")
	}
	for i, n := range list {
		switch {
		case i == most:
			fmt.Fprintf(&b, " and %d more", len(list)-most)
			return b.String()
		case i > 0 && i == len(list)-1:
			b.WriteString(" and ")
		case i > 0:
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	return b.String()
}

// lost handles the end of a member that has not left.
func (r *Root) lost(s *seat, err error) {
	who := s.name
	if s.join != nil && r.members != nil && s.join.rank < len(r.members) && r.members[s.join.rank] == s {
		who = fmt.Sprintf("rank %d (%s)", s.join.rank, s.name)
		f := &failure{failedGone, fmt.Sprintf("%s is gone: %v", who, err)}
		if r.complete {
			r.calls.over(f)
		} else {
			r.fail(f)
		}
	}
	r.host.Log.Info("bootstrap: a rank is gone", "rank", who, "err", err)
	if errors.Is(err, fault.ErrProtocol) {
		r.host.Log.Warn("bootstrap: a rank broke the protocol", "rank", who, "err", err)
	}
	s.closeLogged(r.host.Log)
}
