package rma

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/onesided"
)

// A link is what this rank knows of a rank: the connection, and the operations.
type link struct {
	g      *Group
	rank   int
	peer   *onesided.Peer
	failed atomic.Pointer[error] // of the first operation that failed because the rank was lost

	mu          sync.Mutex // guards all below
	requests    []request
	free        int32 // first free request, or none
	first, last int32 // of the queue of operations that have not begun, or none
	begun       onesided.Op
	under       [onesided.MaxOps]int32 // requests that have begun and whose end was not noted, by the number of their operation; none
	gets        int                    // gets whose end was not noted
}

func (l *link) init(g *Group, rank int) {
	l.g, l.rank, l.free, l.first, l.last = g, rank, none, none, none
	for i := range l.under {
		l.under[i] = none
	}
}

// reserve makes room for n more requests than are in use.
func (l *link) reserve(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range l.under {
		if i != none {
			l.noteLocked(i)
		}
	}
	for i := l.free; i != none; i = l.requests[i].next {
		n--
	}
	l.growLocked(n)
}

// growLocked adds up to n free requests.
//
// Preconditions: l.mu is locked, as for all methods of link with Locked in their name.
func (l *link) growLocked(n int) {
	n = min(n, maxRequests-len(l.requests))
	for range n {
		l.requests = append(l.requests, request{next: l.free})
		l.free = int32(len(l.requests) - 1)
	}
}

// post begins an operation, or queues it.
func (l *link) post(c *Context, o *operation) (Request, error) {
	if err := l.peer.Err(); err != nil {
		return 0, l.lost(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free == none {
		l.growLocked(max(len(l.requests), requestsPerContext)) // NCCL has more outstanding than it has said
	}
	i := l.free
	if i == none {
		return 0, fmt.Errorf("%w: %d requests to rank %d are outstanding, and no more can be", fault.ErrUsage, len(l.requests), l.rank)
	}
	r := &l.requests[i]
	l.free = r.next
	number := r.number + 1
	if number == 0 {
		number = 1
	}
	*r = request{state: requestQueued, number: number, next: none, context: c, operation: *o}
	if o.verb == doGet {
		l.gets++
	}
	if l.last == none {
		l.first = i
	} else {
		l.requests[l.last].next = i
	}
	l.last = i
	l.pumpLocked()
	if r.state == requestDone && r.err != nil {
		err := r.err
		l.releaseLocked(i)
		return 0, err
	}
	return newRequest(r.number, l.rank, int(i)), nil
}

// releaseLocked frees a request.
func (l *link) releaseLocked(i int32) {
	r := &l.requests[i]
	*r = request{number: r.number, next: l.free}
	l.free = i
}

// progress begins what can begin. It reports whether something has.
func (l *link) progress() bool {
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	before := l.first
	l.pumpLocked()
	return l.first != before
}

// pumpLocked begins operations in their order, until one cannot begin yet.
func (l *link) pumpLocked() {
	for l.first != none {
		i := l.first
		r := &l.requests[i]
		if !l.beginLocked(i, r) {
			return
		}
		l.first, r.next = r.next, none
		if l.first == none {
			l.last = none
		}
		if r.state == requestDone && r.ignored {
			l.releaseLocked(i)
		}
	}
}

// beginLocked begins an operation. It returns false if that is not possible yet. An operation that fails is done.
func (l *link) beginLocked(i int32, r *request) bool {
	switch {
	case r.verb == doNothing:
		l.endLocked(r, nil)
		return true
	case l.waitsForLocked(r, r.target) || l.waitsForLocked(r, r.word):
		if r.err == nil {
			return false
		}
		l.endLocked(r, r.err)
		return true
	}
	slot := &l.under[(l.begun+1)%onesided.MaxOps]
	if *slot != none && !l.noteLocked(*slot) {
		return false
	}
	op, err := l.call(r)
	switch {
	case err != nil:
		l.endLocked(r, err)
		return true
	case op == 0:
		return false
	}
	l.begun, r.op, r.state = op, op, requestBegun
	*slot = i
	return true
}

// waitsForLocked reports whether an operation cannot begin because the rank has not told of its window yet, or has ended it; then
// it sets the error of the request.
func (l *link) waitsForLocked(r *request, w *Window) bool {
	if w == nil || w.known[l.rank] {
		return false
	}
	if err := l.peer.Err(); err != nil {
		r.err = err
		return true
	}
	if _, ok := l.peer.Window(w.w.ID()); ok {
		w.known[l.rank] = true
		return false
	}
	if l.peer.Gone(w.w.ID()) {
		r.err = fmt.Errorf("%w: window %d of rank %d", conn.ErrWindowGone, w.w.ID(), l.rank)
	}
	return true
}

// call begins an operation of the peer.
func (l *link) call(r *request) (onesided.Op, error) {
	switch r.verb {
	case doGet:
		return l.peer.Get(r.target.w.ID(), r.targetOff, r.source.w, r.sourceOff, r.size)
	case doFlush:
		return l.peer.Flush()
	}
	switch {
	case r.word == nil:
		return l.peer.Put(r.target.w.ID(), r.targetOff, r.source.w, r.sourceOff, r.size)
	case r.source == nil:
		return l.peer.Signal(r.signal)
	}
	return l.peer.PutSignal(r.target.w.ID(), r.targetOff, r.source.w, r.sourceOff, r.size, r.signal)
}

// noteLocked notes the end of a request that has begun, if it has come. It reports whether it has.
func (l *link) noteLocked(i int32) bool {
	r := &l.requests[i]
	done, err := l.peer.Done(r.op)
	if !done {
		return false
	}
	l.under[r.op%onesided.MaxOps] = none
	l.endLocked(r, err)
	if r.ignored {
		l.releaseLocked(i)
	}
	return true
}

// endLocked marks a request as done.
func (l *link) endLocked(r *request, err error) {
	r.state, r.err = requestDone, err
	if r.verb == doGet {
		l.gets--
	}
	if err != nil {
		r.err = l.lost(err)
	}
}

// lost notes the error of an operation, and returns it.
func (l *link) lost(err error) error {
	if errors.Is(err, fault.ErrPeer) {
		l.failed.CompareAndSwap(nil, &err)
	}
	return err
}

// broken returns the error of the first operation that the rank's loss has made fail, or why the rank is lost; nil if it is not lost, or
// has closed its group in peace.
func (l *link) broken() error {
	if e := l.failed.Load(); e != nil {
		return *e
	}
	if err := l.peer.Err(); err != nil && !errors.Is(err, fault.ErrPeerClosed) {
		return err
	}
	return nil
}

// test is Group.Test of a request of this link, without progress.
func (l *link) test(q Request) (done bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := int32(q.index())
	if int(i) >= len(l.requests) || q.number() == 0 {
		return false, errNoRequest(q)
	}
	r := &l.requests[i]
	if r.state == requestFree || r.number != q.number() || r.ignored {
		return false, errNoRequest(q)
	}
	if r.state == requestQueued {
		l.pumpLocked()
	}
	if r.state == requestBegun {
		l.noteLocked(i)
	}
	if r.state != requestDone {
		return false, nil
	}
	err = r.err
	l.releaseLocked(i)
	return err == nil, err
}

// abandon makes operations fail that have not begun and use a window of this rank.
func (l *link) abandon(w *Window) {
	l.dropIf(func(r *request) bool { return r.source == w }, fmt.Errorf("%w: window %d was deregistered before the operation began", fault.ErrUsage, w.w.ID()))
}

// forget drops the operations of a context that have not begun, and frees the rest when they end.
func (l *link) forget(c *Context) {
	l.mu.Lock()
	for i := range l.requests {
		if r := &l.requests[i]; r.context == c && r.state != requestFree {
			r.ignored = true
			if r.state == requestDone {
				l.releaseLocked(int32(i))
			}
		}
	}
	l.mu.Unlock()
	l.dropIf(func(r *request) bool { return r.context == c }, fmt.Errorf("%w: the context was destroyed before the operation began", fault.ErrUsage))
}

// dropIf takes requests out of the queue, whose operations then fail with an error.
func (l *link) dropIf(match func(*request) bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := int32(none)
	for i := l.first; i != none; {
		r := &l.requests[i]
		next := r.next
		if !match(r) {
			before, i = i, next
			continue
		}
		if before == none {
			l.first = next
		} else {
			l.requests[before].next = next
		}
		if l.last == i {
			l.last = before
		}
		r.next = none
		l.endLocked(r, err)
		if r.ignored {
			l.releaseLocked(i)
		}
		i = next
	}
}
