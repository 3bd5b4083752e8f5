package conn

import (
	"sync/atomic"

	"ncclmesh/transport/lane"
)

// Watch receives traces of requests, which tell which lane carried which part. NCCL's profiler uses one.
// Connections may share a Watch. A new Watch receives traces of all requests.
type Watch struct {
	notify   func(t *Trace, over bool)
	skipMask atomic.Uint64 // a request is traced if its number has none of these bits
}

// NewWatch returns a Watch. Test calls notify on its caller's thread with what is known so far. The
// connection is then locked, so that notify must not call it. over says that Test is about to report the
// request done or failed, and that this is the last call for the trace.
func NewWatch(notify func(t *Trace, over bool)) *Watch { return &Watch{notify: notify} }

// Sample makes connections trace one request in 256. A watch that does not need traces at the
// moment calls it, and sees from the sample when it needs them again. All makes them trace all
// requests.
func (w *Watch) Sample() { w.skipMask.Store(1<<8 - 1) }
func (w *Watch) All() {
	if w.skipMask.Load() != 0 {
		w.skipMask.Store(0)
	}
}

// Wants reports whether a connection traces its request of number n.
func (w *Watch) Wants(n uint64) bool { return n&w.skipMask.Load() == 0 }

// Trace records the parts of one request. C never answers for a traced request: its Test always calls Go. The
// connection reuses the Trace after the last notification.
type Trace struct {
	Sending bool
	Name    uint64                // for use by the watch
	Steps   [lane.MaxSubs]uintptr // for use by the watch: one for each message
	Parts   []TracedPart          // in the order in which they were sent, or arrived
}

// TracedPart records the lane of one part of a message.
type TracedPart struct {
	Lane    *lane.Lane
	Bytes   int
	Message uint8 // index in the request
	Part    uint8 // index in the message
	Ended   bool  // delivered, or arrived

	Notified bool    // for use by the watch: it knows the part
	Event    uintptr // for use by the watch: its name for the part
}

// Watch sets the watch of all further requests. It must be called before the first request.
func (c *Conn) Watch(w *Watch) { c.watch = w }

// Trace returns the trace of the request, or nil. The owner may fill in the fields for the watch between
// posting the request and its first Test.
func (r *Request) Trace() *Trace { return r.trace }

// newTrace returns a trace for a request that begins, or nil if the request is not traced. Without a watch
// that costs a load and a branch.
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

// notifyWatch hands the trace of a request to the watch, from its Test. over says that the request is done or
// failed.
func (r *Request) notifyWatch(over bool) {
	t := r.trace
	r.c.watch.notify(t, over)
	if over {
		r.trace = nil
		r.c.freeTraces = append(r.c.freeTraces, t)
	}
}

// add records that a part is sent, or arrives, over a lane. The part may have been on another lane before,
// which has failed: that entry is marked as ended.
func (t *Trace) add(l *lane.Lane, message, part uint8, bytes int) {
	t.end(message, part)
	t.Parts = append(t.Parts, TracedPart{Lane: l, Message: message, Part: part, Bytes: bytes})
}

// end marks a part as delivered, or arrived.
func (t *Trace) end(message, part uint8) {
	for i := range t.Parts {
		if p := &t.Parts[i]; p.Message == message && p.Part == part {
			p.Ended = true
		}
	}
}
