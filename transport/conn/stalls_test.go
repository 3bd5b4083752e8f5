package conn_test

import (
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
)

// soon makes a lane stall after 100 ms, and shortens no other time.
func soon(o *transport.Options) {
	o.TimeScale, o.LaneWait, o.ProofWait = 0.2, 100*time.Second, 50*time.Second
}

// A lane over which no part, or no grant, comes through while other lanes deliver is drained long before its
// queue pairs give up, and comes back: nothing is lost.
func TestStalledLane(t *testing.T) {
	tests := []struct {
		name  string
		stall func(t *testing.T, f *traffic)
		more  int // groups that are received while the lane is stalled
		says  string
	}{
		{"a part", func(t *testing.T, f *traffic) { // all grants have arrived
			f.hold = true
			transporttest.Await(t, "all grants", func() bool { f.step(f.count + 40); return f.granted() })
			transporttest.Stall(t, 0)
			f.hold = false
		}, 0, "nothing was delivered for "},
		{"a grant", func(t *testing.T, f *traffic) { // the next goes over the lane, and nothing is sent before it arrives
			for f.groups%2 == 0 {
				f.run(1, func() {})
			}
			transporttest.Stall(t, 0)
		}, 40, "no grant arrived over it for "},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			patient := func(o *transport.Options) { soon(o); o.Timeout = 22 } // 17 s, several times
			s, r := transporttest.Connect(t, transporttest.New(t, patient), transporttest.New(t, patient))
			t.Cleanup(func() { transporttest.Heal(t) })
			f := newTraffic(t, transporttest.Draws(t), s, r, 12, 1<<16)
			f.run(10, func() {})
			lanes := up(s, r)
			tt.stall(t, f)
			most := f.count + tt.more
			transporttest.Await(t, "the lane to be left", func() bool { f.step(most); return len(up(s, r)) == 1 })
			if err := lanes[0][0].Failure(); err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the lane is accused of %v", err)
			}
			f.run(50, func() {})
			transporttest.Heal(t)
			transporttest.Await(t, "both lanes", func() bool { f.step(f.count + 4); return len(up(s, r)) == 2 })
			f.run(50, func() {})
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// A receiver that does nothing for long, while its sender waits for it, does not make a lane of any kind
// fail.
func TestSlowReceiver(t *testing.T) {
	transporttest.OverLanes(t, func(t *testing.T, s *conn.Sender, r *conn.Receiver) {
		f := newTraffic(t, transporttest.Draws(t), s, r, 12, 1<<16)
		for range 3 {
			f.run(20, func() {})
			most := f.count + 40
			for range 5 { // and amid messages
				f.step(most)
			}
			f.deaf = true
			for range 300 {
				f.step(most)
				transporttest.WorldOf(t).Sleep(time.Millisecond)
			}
			f.deaf = false
		}
		f.run(20, func() {})
		for _, b := range []*conn.Conn{&s.Conn, &r.Conn} {
			b.Lock()
			if n := b.Count.Failures.Value(); n > 0 {
				t.Errorf("%d lanes were lost", n)
			}
			b.Unlock()
		}
		transporttest.CloseBoth(t, s, r)
	}, soon)
}
