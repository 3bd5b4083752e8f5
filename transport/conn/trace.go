package conn

import (
	"sync/atomic"

	"ncclmesh/transport/lane"
)

// Watch is whoever wants to know of the parts of requests, such as NCCL's profiler. One
// Watch may be that of many connections. A new one is told of all requests.
type Watch struct {
	notify   func(t *Trace, over bool)
	skipMask atomic.Uint64 // bits that are 0 in the number of a request that is told of
}

// NewWatch makes a Watch. tell is called by Test, in its caller's thread and with the
// connection locked, so that it may not call the connection, with what is
// known by now; over says that Test is to report the request done, or failed, and the
// trace is not told again.
func NewWatch(tell func(t *Trace, over bool)) *Watch { return &Watch{notify: tell} }

// Seldom is for a Watch that has no use for what it is told: it is told of one request
// in 256 of each connection, to see whether that is still so. All ends it.
func (w *Watch) Sample() { w.skipMask.Store(1<<8 - 1) }
func (w *Watch) All() {
	if w.skipMask.Load() != 0 {
		w.skipMask.Store(0)
	}
}

// Wants reports whether the watch is told of a connection's request of that number.
func (w *Watch) Wants(n uint64) bool { return n&w.skipMask.Load() == 0 }

// Trace is what is known of the parts of one request. C never has the answer of such a
// request: its Test is always Go's. It is its connection's, which uses it again.
type Trace struct {
	Sending bool
	Name    uint64                // the watch's, for the request
	Steps   [lane.MaxSubs]uintptr // and for each of its messages
	Parts   []TracedPart          // in the order they were sent, or arrived
}

// TracedPart is a part of a message that a lane carries, or has.
type TracedPart struct {
	Lane    *lane.Lane
	Bytes   int
	Message uint8 // of the request
	Part    uint8 // of the message
	Ended   bool

	Notified bool    // the watch's: it knows of the part,
	Event    uintptr // and what it calls it
}

// Watch sets who is told of requests from now on. It is called before the first.
func (c *Conn) Watch(w *Watch) { c.watch = w }

// Trace is the request's, or nil. Its owner may ask for it, and fill in what is the
// watch's, between posting a request and its first Test.
func (r *Request) Trace() *Trace { return r.trace }

// traced is a trace for a request that begins, or nil. Where nobody watches that costs
// a load and a branch.
func (c *Conn) newTrace() *Trace {
	if c.watch == nil {
		return nil
	}
	if c.requestsBegun++; !c.watch.Wants(c.requestsBegun) {
		return nil
	}
	if len(c.freeTraces) == 0 {
		return &Trace{Sending: c.Sending}
	}
	t := c.freeTraces[len(c.freeTraces)-1]
	c.freeTraces = c.freeTraces[:len(c.freeTraces)-1]
	*t = Trace{Sending: t.Sending, Parts: t.Parts[:0]}
	return t
}

// told tells of a request in its Test.
func (r *Request) notifyWatch(over bool) {
	t := r.trace
	r.c.watch.notify(t, over)
	if over {
		r.trace = nil
		r.c.freeTraces = append(r.c.freeTraces, t)
	}
}

// add notes a part that goes, or comes, over a lane. One that goes again has ended on
// the lane it was on.
func (t *Trace) add(l *lane.Lane, message, part uint8, bytes int) {
	t.end(message, part)
	t.Parts = append(t.Parts, TracedPart{Lane: l, Message: message, Part: part, Bytes: bytes})
}

// end notes that a part is through.
func (t *Trace) end(message, part uint8) {
	for i := range t.Parts {
		if p := &t.Parts[i]; p.Message == message && p.Part == part {
			p.Ended = true
		}
	}
}
