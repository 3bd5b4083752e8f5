package ncclnet

import (
	"sync/atomic"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// A profiler is the one of a context's NCCL. Each part that a lane carries of a message
// becomes one of its network events, emitted in test, on NCCL's own thread: it starts
// in the first test that sees the part under way and stops in the first that finds it
// through. NCCL's descriptors have no room for times. A queue pair's receiver sees a
// part only once it is there: such an event has no length in time.
//
// NCCL calls back whether or not a profiler is loaded and wants such events, which only
// an event that is not made tells, and a profiler may refuse any one of them. So after
// many refusals in a row parts are only followed for a request now and then, until one
// is taken. All other requests go as they do without a profiler.
//
// The callback takes events in test from 2.28 on (interface 11). In 2.26 it finds the
// step that they belong to only while isend runs; in 2.27 it follows a pointer that is
// NULL where the profiler did not want the step.
type profiler struct {
	host     *Host
	callback uintptr
	watch    *conn.Watch
	refused  atomic.Int64 // events, since one was made
}

// An Event is a part of a message, as NCCL's descriptors of network events have it.
type Event struct {
	Socket  bool // else a queue pair
	Sending bool
	Lane    int    // in the connection
	Number  int    // the queue pair's, or the descriptor
	Request Handle // that it is a part of
	Bytes   int
}

const (
	profilerInterface = 11   // from which on events may be emitted in test
	manyRefusals      = 1024 // more than steps of an operation that a profiler has no room for
	maxEvents         = 8    // of a message: as many as NCCL's own network has, and profilers have room for
)

// newProfiler returns the caller's, or nil.
func newProfiler(host *Host, caller Caller) *profiler {
	if caller.Profiler == 0 || caller.Interface < profilerInterface || host.StartEvent == nil {
		return nil
	}
	p := &profiler{host: host, callback: caller.Profiler}
	p.watch = conn.NewWatch(p.tell)
	return p
}

// posted notes by what names NCCL knows a request that may be watched.
func (p *profiler) posted(q request, h Handle, bufs ...Buffer) {
	t := q.Trace()
	if t == nil {
		return
	}
	t.Name = uint64(h)
	for i := range bufs {
		t.Steps[i] = bufs[i].Step
	}
}

// tell emits what a test has found.
func (p *profiler) tell(t *conn.Trace, over bool) {
	var events [MaxRecvs]int
	for i := range t.Parts {
		part := &t.Parts[i]
		events[part.Message]++
		if !part.Notified {
			part.Notified = true
			if step := t.Steps[part.Message]; step != 0 && events[part.Message] <= maxEvents {
				part.Event = p.start(t, part, step)
			}
		}
		if part.Event != 0 && (part.Ended || over) {
			p.host.StopEvent(p.callback, part.Event)
			part.Event = 0
		}
	}
}

// start emits that a part moves.
func (p *profiler) start(t *conn.Trace, part *conn.TracedPart, step uintptr) (event uintptr) {
	event = p.host.StartEvent(p.callback, step, Event{
		Socket:  part.Lane.Port.Kind() == lane.TCP,
		Sending: t.Sending,
		Lane:    int(part.Lane.Index),
		Number:  part.Lane.Carrier.Number(),
		Request: Handle(t.Name),
		Bytes:   part.Bytes,
	})
	if event != 0 {
		p.refused.Store(0)
		p.watch.All()
	} else if p.refused.Add(1) == manyRefusals {
		p.watch.Sample()
	}
	return event
}
