package transport

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/clock"
)

// Memory is collected after work and when no data moves, and never during traffic.
func TestIdleGC(t *testing.T) {
	type second struct {
		work    bool
		traffic bool
	}
	tests := []struct {
		name    string
		seconds []second
		want    []int // collections until the end of each second
	}{
		{"nothing was done", []second{{}, {}, {}}, []int{0, 0, 0}},
		{"work, then peace", []second{{work: true}, {}, {}, {}}, []int{0, 1, 1, 1}},
		{"work all the time", []second{{work: true}, {work: true}, {work: true}, {}, {}}, []int{0, 0, 0, 1, 1}},
		{"traffic after the work", []second{{work: true, traffic: true}, {traffic: true}, {traffic: true}, {traffic: true}}, []int{0, 0, 0, 0}},
		{"peace after traffic", []second{{work: true, traffic: true}, {traffic: true}, {}, {}, {}, {}}, []int{0, 0, 0, 0, 1, 1}},
		{"a job's end after long traffic", []second{{work: true, traffic: true}, {traffic: true}, {traffic: true}, {traffic: true}, {traffic: true}, {work: true}, {}}, []int{0, 0, 0, 0, 0, 0, 1}},
		{"traffic without work", []second{{traffic: true}, {traffic: true}, {}}, []int{0, 0, 0}},
		{"twice", []second{{work: true}, {}, {work: true}, {}, {}}, []int{0, 1, 1, 2, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var moved atomic.Uint64
				var collected atomic.Int32
				d := newIdleGC(clock.Clock{}, moved.Load, func() { collected.Add(1) }, func(p *guard.Panic) { t.Error(p) })
				for i, s := range tt.seconds {
					for range 10 {
						time.Sleep(100 * time.Millisecond)
						if s.work {
							d.noteWork()
						}
						if s.traffic {
							moved.Add(1)
						}
						synctest.Wait()
					}
					if n := int(collected.Load()); n != tt.want[i] {
						t.Errorf("after second %d: %d collections, want %d", i+1, n, tt.want[i])
					}
				}
				collected.Store(0)
				d.close()
				d.noteWork()
				time.Sleep(time.Hour)
				if collected.Load() != 1 {
					t.Errorf("%d collections after the end, want 1", collected.Load())
				}
			})
		})
	}
}

// Memory is not collected within half a second of the last data, whenever there was work.
func TestIdleGCIsPatient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var moved atomic.Uint64
		var collected atomic.Int32
		d := newIdleGC(clock.Clock{}, moved.Load, func() { collected.Add(1) }, func(p *guard.Panic) { t.Error(p) })
		defer d.close()
		d.noteWork()
		time.Sleep(100 * time.Millisecond)
		d.noteWork()
		time.Sleep(450 * time.Millisecond) // soon after a look, and soon before the next
		moved.Add(1)
		time.Sleep(499 * time.Millisecond)
		if n := collected.Load(); n != 0 {
			t.Errorf("%d collections within half a second of traffic", n)
		}
		time.Sleep(time.Second)
		if n := collected.Load(); n != 1 {
			t.Errorf("%d collections after it, want 1", n)
		}
	})
}

// Work that arrives during a collection, however long that takes, is followed by another collection.
func TestIdleGCSlowCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var collected atomic.Int32
		var d *idleGC
		d = newIdleGC(clock.Clock{}, func() uint64 { return 0 }, func() {
			if collected.Add(1) == 1 {
				d.noteWork()
				time.Sleep(2 * idleBefore)
			}
		}, func(p *guard.Panic) { t.Error(p) })
		defer d.close()
		d.noteWork()
		time.Sleep(time.Minute)
		if n := collected.Load(); n != 2 {
			t.Errorf("%d collections, want 2", n)
		}
	})
}

// If there is no collector, no goroutine looks for traffic.
func TestIdleGCWithoutCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newIdleGC(clock.Clock{}, func() uint64 { t.Error("traffic is looked for"); return 0 }, nil, func(p *guard.Panic) { t.Error(p) })
		d.noteWork()
		time.Sleep(time.Hour)
		d.close()
	})
}
