package ncclnet

import (
	"sync/atomic"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// A profiler emits events to the profiler of a context's NCCL. Each part of a message that a lane transfers becomes one
// of its network events. Events are emitted in test, on NCCL's own thread: an event starts in the first test that sees
// the part in progress, and stops in the first test that sees it completed, because NCCL's descriptors have no room for
// times. The receiver of a queue pair sees a part only after it has arrived, so that its event has no duration.
//
// NCCL sets the callback even if no profiler is loaded or the profiler does not want such events. That shows only when
// an event is not made, and a profiler may also refuse any single event. Therefore, after many consecutive refusals,
// only an occasional request is traced, until an event is made. All other requests are then handled as without a
// profiler.
//
// The callback accepts events in test from NCCL 2.28 on (interface 11). In 2.26 it finds the step of an event only
// while isend runs; in 2.27 it follows a pointer that is NULL if the profiler did not want the step.
type profiler struct {
	host     *Host
	callback uintptr
	watch    *conn.Watch
	refused  atomic.Int64 // consecutive refused events
}

// An Event is a part of a message, with the fields of NCCL's descriptors of network events.
type Event struct {
	Socket  bool // a socket, otherwise a queue pair
	Sending bool
	Lane    int    // index in the connection
	Number  int    // number of the queue pair, or descriptor of the socket
	Request Handle // the request that the part belongs to
	Bytes   int
}

const (
	profilerInterface = 11   // first interface with which events may be emitted in test
	manyRefusals      = 1024 // more than the number of steps of an operation that a profiler may have no room for
	maxEvents         = 8    // per message: as many as NCCL's own network emits, which profilers have room for
)

// newProfiler returns the caller's profiler, or nil.
func newProfiler(host *Host, caller Caller) *profiler {
	if caller.Profiler == 0 || caller.Interface < profilerInterface || host.StartEvent == nil {
		return nil
	}
	p := &profiler{host: host, callback: caller.Profiler}
	p.watch = conn.NewWatch(p.report)
	return p
}

// track stores the names by which NCCL knows a request, if the request is traced.
func (p *profiler) track(q request, h Handle, bufs ...Buffer) {
	t := q.Trace()
	if t == nil {
		return
	}
	t.Name = uint64(h)
	for i := range bufs {
		t.Steps[i] = bufs[i].Step
	}
}

// report emits the events for what a test has found.
func (p *profiler) report(t *conn.Trace, over bool) {
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

// start starts the event of a part.
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
