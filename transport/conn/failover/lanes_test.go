package failover

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The drawing of State, as a table: each event in each state, and what to do. An event that is missing changes nothing.
func TestTransitions(t *testing.T) {
	type row struct {
		from State
		e    Event
	}
	type result struct {
		to State
		do Actions
	}
	want := map[row]result{
		{Vacant, Joined}:           {InService, Begin},
		{InService, Failed}:        {Draining, Stop},
		{InService, PeerDown}:      {PeerDrained, Stop},
		{Draining, Drained}:        {LocalDrained, SendLaneDown},
		{Draining, PeerDown}:       {PeerDrained, 0},
		{PeerDrained, Drained}:     {BothDrained, SendLaneDown},
		{LocalDrained, PeerDown}:   {BothDrained, 0},
		{LocalDrained, PeerClosed}: {Vacant, Settle | Close},
		{BothDrained, Reported}:    {Vacant, Settle | Close},
		{BothDrained, PeerClosed}:  {Vacant, Settle | Close},
	}
	got := map[row]result{}
	for from := Vacant; from <= BothDrained; from++ {
		for e := range Event(events) {
			var s Lanes
			s.lanes[3].state, s.lanes[3].epoch = from, 7
			do := s.Step(3, 7, e)
			if to := s.At(3); do != 0 || to != from {
				got[row{from, e}] = result{to, do}
			}
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
}

// An event of another epoch, or of an index that no connection has, changes nothing; a lane that joins begins an epoch.
func TestEpochs(t *testing.T) {
	var s Lanes
	if do := s.Step(0, 1, Joined); do != Begin {
		t.Fatalf("the first lane joins: %b", do)
	}
	before := s
	for _, late := range []struct {
		index uint8
		epoch uint32
		e     Event
	}{{0, 0, Failed}, {0, 2, PeerDown}, {0, 2, Joined}, {MaxLanes, 1, Failed}, {255, 0, Joined}} {
		if do := s.Step(late.index, late.epoch, late.e); do != 0 || s != before {
			t.Errorf("%v of epoch %d at index %d: do %b, %v", late.e, late.epoch, late.index, do, s.At(0))
		}
	}
	for _, e := range []Event{Failed, PeerDown, Drained, Reported} {
		s.Step(0, 1, e)
	}
	if do := s.Step(0, 2, Joined); do != Begin || s.At(0) != InService {
		t.Errorf("a lane joins at the index of one that is settled: do %b, %v", do, s.At(0))
	}
	if do := s.Step(0, 1, Failed); do != 0 {
		t.Errorf("the lane before it fails: do %b", do)
	}
}

// States and events have names of their own.
func TestNames(t *testing.T) {
	names := map[string]bool{}
	for s := Vacant; s <= BothDrained; s++ {
		names[s.String()] = true
	}
	for e := range Event(events) {
		names[e.String()] = true
	}
	names[State(200).String()], names[Event(200).String()] = true, true
	if n, want := len(names), int(BothDrained)+1+events+2; n != want {
		t.Errorf("%d names, want %d: %v", n, want, names)
	}
}
