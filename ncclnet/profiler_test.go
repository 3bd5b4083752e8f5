package ncclnet

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
)

// Events are emitted only if NCCL can accept them.
func TestProfilerOf(t *testing.T) {
	emits := &Host{StartEvent: func(uintptr, uintptr, Event) uintptr { return 0 }, StopEvent: func(uintptr, uintptr) {}}
	tests := []struct {
		name   string
		host   *Host
		caller Caller
		want   bool
	}{
		{"2.28", emits, Caller{Interface: 11, Profiler: 1}, true},
		{"2.30", emits, Caller{Interface: 12, Version: 23007, Profiler: 1}, true},
		{"2.27", emits, Caller{Interface: 10, Version: 22707, Profiler: 1}, false},
		{"no callback", emits, Caller{Interface: 12}, false},
		{"a host that cannot", &Host{}, Caller{Interface: 12, Profiler: 1}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := newProfiler(tt.host, tt.caller) != nil; got != tt.want {
				t.Errorf("got a profiler: %v, want %v", got, tt.want)
			}
		})
	}
}

// port is a lane's port of a kind.
type port struct {
	lane.Port
	kind lane.Kind
}

func (p port) Kind() lane.Kind { return p.kind }

// numbered is a lane's carrier with a number.
type numbered struct{ lane.Carrier }

func (numbered) Number() int { return 17 }

// recorder is a host that records events, and refuses them while a test requires it.
type recorder struct {
	refuse bool
	log    []string
}

func (r *recorder) host() *Host {
	return &Host{
		StartEvent: func(callback, step uintptr, e Event) uintptr {
			r.log = append(r.log, fmt.Sprintf("start %d %d %+v", callback, step, e))
			if r.refuse {
				return 0
			}
			return uintptr(len(r.log))
		},
		StopEvent: func(callback, event uintptr) { r.log = append(r.log, fmt.Sprintf("stop %d %d", callback, event)) },
	}
}

// The events that are emitted in the tests of one request.
func TestTell(t *testing.T) {
	on := func(k lane.Kind, index uint8) *lane.Lane {
		return &lane.Lane{Carrier: numbered{}, Port: port{kind: k}, Index: index}
	}
	a, b := on(lane.Verbs, 0), on(lane.TCP, 3)
	var many conn.Trace
	for range 12 {
		many.Parts = append(many.Parts, conn.TracedPart{Lane: a, Ended: true})
	}
	many.Steps[0] = 5
	event := func(step int, socket, sending bool, lane, bytes int) string {
		return fmt.Sprintf("start 1 %d {Socket:%v Sending:%v Lane:%d Number:17 Request:0x63 Bytes:%d}", step, socket, sending, lane, bytes)
	}
	var eight []string
	for i := range 8 {
		eight = append(eight, "start 1 5 {Socket:false Sending:false Lane:0 Number:17 Request:0x0 Bytes:0}", fmt.Sprintf("stop 1 %d", 2*i+1))
	}
	tests := []struct {
		name   string
		refuse bool
		trace  conn.Trace
		then   func(*conn.Trace)
		want   []string
	}{
		{"two parts, of which one is through",
			false, conn.Trace{Sending: true, Name: 0x63, Steps: [8]uintptr{5}, Parts: []conn.TracedPart{
				{Lane: a, Bytes: 10}, {Lane: b, Bytes: 20, Ended: true}}},
			func(tr *conn.Trace) { tr.Parts[0].Ended = true },
			[]string{event(5, false, true, 0, 10), event(5, true, true, 3, 20), "stop 1 2", "", "stop 1 1", ""}},
		{"a failure ends what is under way",
			false, conn.Trace{Name: 0x63, Steps: [8]uintptr{5}, Parts: []conn.TracedPart{{Lane: a, Bytes: 10}}},
			func(*conn.Trace) {},
			[]string{event(5, false, false, 0, 10), "", "", "stop 1 1"}},
		{"a group's messages, one of which NCCL has no step for",
			false, conn.Trace{Name: 0x63, Steps: [8]uintptr{5, 0, 7}, Parts: []conn.TracedPart{
				{Lane: a, Message: 2, Ended: true}, {Lane: a, Message: 1, Ended: true}}},
			func(tr *conn.Trace) {
				tr.Parts = append(tr.Parts, conn.TracedPart{Lane: b, Bytes: 1, Ended: true})
			},
			[]string{event(7, false, false, 0, 0), "stop 1 1", "", event(5, true, false, 3, 1), "stop 1 4", ""}},
		{"what is refused does not stop",
			true, conn.Trace{Name: 0x63, Steps: [8]uintptr{5}, Parts: []conn.TracedPart{{Lane: a, Bytes: 10}}},
			func(tr *conn.Trace) { tr.Parts[0].Ended = true },
			[]string{event(5, false, false, 0, 10), "", ""}},
		{"no more than there is room for", false, many, func(*conn.Trace) {}, append(eight, "", "")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := &recorder{refuse: tt.refuse}
			p := newProfiler(r.host(), Caller{Interface: 12, Profiler: 1})
			p.report(&tt.trace, false)
			r.log = append(r.log, "")
			tt.then(&tt.trace)
			p.report(&tt.trace, false)
			r.log = append(r.log, "")
			p.report(&tt.trace, true)
			if diff := cmp.Diff(tt.want, r.log); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// After many consecutive refusals only an occasional request is traced, and every request again after an accepted
// event.
func TestRefusals(t *testing.T) {
	r := &recorder{refuse: true}
	p := newProfiler(r.host(), Caller{Interface: 12, Profiler: 1})
	emit := func() {
		p.report(&conn.Trace{Steps: [8]uintptr{5}, Parts: []conn.TracedPart{{
			Lane: &lane.Lane{Carrier: numbered{}, Port: port{kind: lane.Verbs}}, Ended: true}}}, true)
	}
	wants := func(what string, one, every bool) {
		t.Helper()
		if p.watch.Wants(1) != one || p.watch.Wants(256) != every {
			t.Errorf("%s: request 1 is wanted: %v, 256: %v", what, p.watch.Wants(1), p.watch.Wants(256))
		}
	}
	wants("at first", true, true)
	for range manyRefusals - 1 {
		emit()
	}
	wants("a few refused", true, true)
	emit()
	emit()
	wants("many refused", false, true)
	r.refuse = false
	emit()
	wants("one taken", true, true)
	r.refuse = true
	emit()
	wants("one refused", true, true)
}
