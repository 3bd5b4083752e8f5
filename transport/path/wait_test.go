package path

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ncclmesh/transport/clock"
	"ncclmesh/transport/conn"
)

// Await waits as long as a connection that has lost its lanes: for LaneWait of time in which this process ran;
// while a node is known that may become a relay for RouteWait, and for LaneWait after the last such node has
// gone; and not at all if waiting is useless.
func TestWait(t *testing.T) {
	const laneWait, routeWait = 10 * time.Second, time.Minute
	never := time.Duration(1<<63 - 1)
	no, refused := errors.New("no path"), errors.New("refused")
	tests := []struct {
		name     string
		back     time.Duration    // when there is a path
		known    [2]time.Duration // from when to when a node that may relay is known
		stopped  time.Duration    // how long the process is stopped in the middle of the first look
		err      error            // of looks before that
		want     error
		from, to time.Duration // when it is over
		says     int
	}{
		{"there is a path", 0, [2]time.Duration{}, 0, no, nil, 0, 0, 0},
		{"it is soon back", 20 * time.Millisecond, [2]time.Duration{}, 0, no, nil, 0, 200 * time.Millisecond, 0},
		{"it is back after 5 s", 5 * time.Second, [2]time.Duration{}, 0, no, nil, 5 * time.Second, 6200 * time.Millisecond, 1},
		{"it is back after 9 s", 9 * time.Second, [2]time.Duration{}, 0, no, nil, 9 * time.Second, 10200 * time.Millisecond, 1},
		{"it does not come back", never, [2]time.Duration{}, 0, no, no, laneWait, laneWait + 1200*time.Millisecond, 1},
		{"the process was stopped", 15 * time.Second, [2]time.Duration{}, 15 * time.Second, no, nil, 15 * time.Second, 15200 * time.Millisecond, 0},
		{"somebody may relay", 50 * time.Second, [2]time.Duration{0, never}, 0, no, nil, 50 * time.Second, 51200 * time.Millisecond, 0},
		{"nobody does", never, [2]time.Duration{0, never}, 0, no, no, routeWait, routeWait + 1200*time.Millisecond, 0},
		{"who might has gone with a port, and path and all come back", 38 * time.Second, [2]time.Duration{0, 30 * time.Second}, 0, no, nil, 38 * time.Second, 39200 * time.Millisecond, 0},
		{"who might has gone", never, [2]time.Duration{0, 30 * time.Second}, 0, no, no, 39 * time.Second, 41200 * time.Millisecond, 0},
		{"who might comes later", 40 * time.Second, [2]time.Duration{5 * time.Second, never}, 0, no, nil, 40 * time.Second, 41200 * time.Millisecond, 1},
		{"it is no use", never, [2]time.Duration{0, never}, 0, refused, refused, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, says, looks := time.Now(), 0, 0
				w := wait{
					laneWait: laneWait, routeWait: routeWait,
					relayKnown: func() bool { at := time.Since(begun); return at >= tt.known[0] && at < tt.known[1] },
					hopeless:   func(err error) bool { return errors.Is(err, refused) },
					say:        func(error) { says++ },
					pause: func(d time.Duration, tick func()) bool {
						for ; d > 0; d -= 50 * time.Millisecond {
							time.Sleep(min(d, 50*time.Millisecond))
							tick()
						}
						return true
					},
				}
				err := w.until(func(tick func()) error {
					if looks++; looks == 1 {
						time.Sleep(tt.stopped)
						tick()
					}
					if time.Since(begun) >= tt.back {
						return nil
					}
					return tt.err
				})
				if at := time.Since(begun); !errors.Is(err, tt.want) || at < tt.from || at > tt.to || says != tt.says {
					t.Errorf("%v after %v, and it was said %d times that there is none yet; want %v after %v to %v, and %d", err, at, says, tt.want, tt.from, tt.to, tt.says)
				}
			})
		})
	}
}

// A caller that waits gives up when its context ends, and searches again at once when a port has changed.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFinder(Config{Env: &conn.Env{Clock: clock.Clock{}.WithScale(2)}})
		begun, ticks := time.Now(), 0
		rest := func() bool { return f.waitForChange(t.Context(), time.Second, func() { ticks++ }) }
		if on, at := rest(), time.Since(begun); !on || at != 2*time.Second || ticks < 39 {
			t.Errorf("it rests for %v with %d ticks and goes on %v, want 2s, ticks each 50ms, true", at, ticks, on)
		}
		time.AfterFunc(time.Millisecond, f.Changed)
		if begun = time.Now(); !rest() || time.Since(begun) != time.Millisecond {
			t.Errorf("it looks again %v after a port has changed", time.Since(begun)-time.Millisecond)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if f.waitForChange(ctx, time.Second, func() {}) {
			t.Error("it goes on though nobody waits any more")
		}
	})
}
