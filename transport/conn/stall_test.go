package conn

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/lane"
)

// excuse is a carrier that says whether its path may be the reason why nothing is delivered.
type excuse struct {
	lane.Carrier
	ways bool
}

func (e excuse) Stalled() bool { return e.ways }

// A lane has stalled if its sender has polled for long enough while the lane delivered nothing and others
// delivered what was posted later.
func TestStalls(t *testing.T) {
	const limit = 100 * time.Millisecond
	const first, second = 1, 2 // bits
	type step struct {
		after     time.Duration // time of polling before the step
		waits     [2]uint64     // oldest message in flight on each lane; 0: none
		delivered [2]uint64     // message that each lane delivers; 0: none
		want      uint32
	}
	tests := []struct {
		name   string
		change func(lanes []*lane.Lane)
		steps  []step
	}{
		{"overtaken by a later message", nil, []step{
			{0, [2]uint64{1, 2}, [2]uint64{}, 0},
			{limit / 2, [2]uint64{1, 0}, [2]uint64{0, 2}, 0},
			{limit - 1, [2]uint64{1, 0}, [2]uint64{}, 0},
			{limit / 2, [2]uint64{1, 0}, [2]uint64{}, first},
		}},
		{"overtaken by a part of the same message", nil, []step{
			{0, [2]uint64{0, 7}, [2]uint64{7, 0}, 0},
			{limit, [2]uint64{0, 7}, [2]uint64{}, second},
		}},
		{"nothing is delivered at all", nil, []step{
			{0, [2]uint64{1, 2}, [2]uint64{}, 0},
			{10 * limit, [2]uint64{1, 2}, [2]uint64{}, 0},
		}},
		{"only what came before is delivered", nil, []step{
			{0, [2]uint64{5, 4}, [2]uint64{0, 3}, 0},
			{limit, [2]uint64{5, 0}, [2]uint64{0, 4}, 0},
			{10 * limit, [2]uint64{5, 0}, [2]uint64{}, 0},
		}},
		{"a lane that moves, however far behind", nil, []step{
			{0, [2]uint64{1, 9}, [2]uint64{0, 8}, 0},
			{limit - 1, [2]uint64{2, 10}, [2]uint64{1, 9}, 0},
			{limit - 1, [2]uint64{3, 11}, [2]uint64{2, 10}, 0},
			{limit - 1, [2]uint64{4, 12}, [2]uint64{3, 11}, 0},
			{limit, [2]uint64{4, 13}, [2]uint64{0, 12}, first},
		}},
		{"idle lanes", nil, []step{
			{0, [2]uint64{}, [2]uint64{1, 2}, 0},
			{10 * limit, [2]uint64{}, [2]uint64{}, 0},
		}},
		{"it is the peer's process", func(lanes []*lane.Lane) { lanes[0].Carrier = excuse{} }, []step{
			{0, [2]uint64{1, 0}, [2]uint64{0, 2}, 0},
			{10 * limit, [2]uint64{1, 0}, [2]uint64{}, 0},
		}},
		{"the other is out of service", func(lanes []*lane.Lane) { lanes[1].Deactivate() }, []step{
			{0, [2]uint64{1, 0}, [2]uint64{0, 2}, 0},
			{10 * limit, [2]uint64{1, 0}, [2]uint64{}, 0},
		}},
		{"the other is accused", func(lanes []*lane.Lane) { lanes[1].MarkFailed(errors.New("a cable")) }, []step{
			{0, [2]uint64{1, 0}, [2]uint64{0, 2}, 0},
			{10 * limit, [2]uint64{1, 0}, [2]uint64{}, 0},
		}},
		{"what it carries takes its time", func(lanes []*lane.Lane) { lanes[0].Backlog = 1e6 }, []step{ // 128 ms at a sixteenth of 1 Gb/s
			{0, [2]uint64{1, 0}, [2]uint64{0, 2}, 0},
			{limit + 127*time.Millisecond, [2]uint64{1, 0}, [2]uint64{}, 0},
			{time.Millisecond, [2]uint64{1, 0}, [2]uint64{}, first},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s stalls
			var lanes []*lane.Lane
			for range 2 {
				l := &lane.Lane{Carrier: excuse{ways: true}, Weight: 1000}
				inService(l)
				lanes = append(lanes, l)
			}
			if tt.change != nil {
				tt.change(lanes)
			}
			for i, step := range tt.steps {
				s.polled += step.after
				var waits [lane.MaxParts]uint64
				copy(waits[:], step.waits[:])
				for k, n := range step.delivered {
					if n > 0 {
						lanes[k].Delivered++
						lanes[k].Latest = max(lanes[k].Latest, n)
					}
				}
				if got := s.find(lanes, &waits, limit); got != step.want {
					t.Errorf("step %d: lanes %b have stalled, want %b", i, got, step.want)
				}
			}
		})
	}
}

// Time in which a process was stopped, or did not poll, hardly counts.
func TestStallsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gap, most = 20 * time.Millisecond, time.Millisecond
		s := stalls{start: time.Now()}
		s.tick(0)
		before := s.polled
		time.Sleep(gap)
		s.tick(most)
		if s.polled-before != most || s.gap != gap {
			t.Errorf("of a gap of %v %v counts, want %v of %v", s.gap, s.polled-before, most, gap)
		}
	})
}

// While each poll finds deliveries the clock is read in one poll of several. It is read at once after a poll
// that has found none.
func TestStallsClock(t *testing.T) {
	s := stalls{start: time.Now()}
	reads := func(polls int, news bool) (n int) {
		for range polls {
			s.delivered = news
			if s.beforePoll(pollGapLimit); s.skipped == 0 {
				n++
			}
		}
		return n
	}
	s.tick(pollGapLimit)
	got := []int{reads(3*pollsPerClock, true), reads(3, true), reads(3, false)}
	if diff := cmp.Diff([]int{3, 0, 3}, got); diff != "" {
		t.Errorf("reads of the clock (-want +got):\n%s", diff)
	}
}

// The wait for a missing grant counts from when it was first found missing.
func TestStallsMissingGrant(t *testing.T) {
	var s stalls
	for i, step := range []struct {
		polled time.Duration
		seq    uint64
		index  int
		want   int
		missed time.Duration
	}{
		{1, 0, 0, -1, 1},
		{2, 7, 1, -1, 2},
		{3, 7, 1, 1, 2},
		{4, 8, 0, -1, 4}, // the missing grant has arrived
		{5, 8, 0, 0, 4},
		{6, 0, 0, -1, 6},
		{7, 0, 0, -1, 7},
	} {
		s.polled = step.polled
		if got := s.noteMissing(step.seq, step.index); got != step.want || s.missingSince != step.missed {
			t.Errorf("step %d: lane %d since %v, want %d since %v", i, got, s.missingSince, step.want, step.missed)
		}
	}
}

// A grant is not overdue over a lane that has just replaced another, nor over one that has failed.
func TestStallsOverdue(t *testing.T) {
	old, fresh := &lane.Lane{}, &lane.Lane{}
	inService(old)
	inService(fresh)
	var s stalls
	for i, step := range []struct {
		after time.Duration
		lane  *lane.Lane
		fails bool
		want  time.Duration
	}{
		{1, old, false, 0},
		{2, old, false, 2},
		{3, old, true, 0},
		{4, old, false, 0},
		{5, fresh, false, 0},
		{6, fresh, false, 6},
	} {
		if s.polled += step.after; step.fails {
			step.lane.Fail(errors.New("a cable"))
		}
		if got := s.overdue(step.lane); got != step.want {
			t.Errorf("step %d: overdue for %d, want %d", i, got, step.want)
		}
	}
}
