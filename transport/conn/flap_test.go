package conn

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/topology"
)

// A path whose lanes fail soon after each return is held down for longer each time, and the user is told of
// it ever less often. A path that has been stable for a while starts anew.
func TestFlaps(t *testing.T) {
	type step struct {
		Held time.Duration
		Tell bool
	}
	const ms = time.Millisecond
	tests := []struct {
		name  string
		scale float64
		stays []time.Duration // how long lanes stay in service, one after the other
		want  []step
	}{
		{"soon each time", 1, []time.Duration{0, 1, time.Second, 9 * time.Second, 10 * time.Second, 1, 1, 1, 1, 1, 1, 1}, []step{
			{100 * ms, false}, {200 * ms, true}, {400 * ms, false}, {800 * ms, true}, {1600 * ms, false}, {3200 * ms, false},
			{6400 * ms, false}, {10 * time.Second, true}, {10 * time.Second, false}, {10 * time.Second, false}, {10 * time.Second, false}, {10 * time.Second, false},
		}},
		{"it holds in between", 1, []time.Duration{1, 1, 1, 10*time.Second + 1, 1, 1}, []step{
			{100 * ms, false}, {200 * ms, true}, {400 * ms, false}, {0, false}, {100 * ms, false}, {200 * ms, true},
		}},
		{"scaled", 3, []time.Duration{29 * time.Second, 31 * time.Second, 1}, []step{{300 * ms, false}, {0, false}, {300 * ms, false}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f flapRecord
				if f.failed(time.Now(), tt.scale) || f.held(time.Now()) {
					t.Error("the first failure is a flap")
				}
				var got []step
				for _, stay := range tt.stays {
					f.joined(time.Now())
					time.Sleep(stay)
					s := step{Tell: f.failed(time.Now(), tt.scale)}
					if f.failed(time.Now(), tt.scale) {
						t.Error("the second of two lanes that came back together is told of")
					}
					for begun := time.Now(); f.held(time.Now()); s.Held = time.Since(begun) {
						time.Sleep(50 * ms)
					}
					got = append(got, s)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("how long the path is held after each failure, and whether that is told (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The log text about a path that flaps has the number of its failures.
func TestFlapsText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flapRecord
		f.failed(time.Now(), 1)
		for !f.quiet() {
			f.joined(time.Now())
			f.failed(time.Now(), 1)
		}
		const want = "it flaps: it has failed 2 times, each within 10s of its return, and now stays out for 200ms, after each further failure for longer, up to 10s; check the cable"
		if got := f.text(time.Now(), 1); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A connection adds no lane over a port without a carrier, nor over a path that is held down, while it has
// another lane in service. It does when the hold-down is over, or without another lane.
func TestLanesToAdd(t *testing.T) {
	type at struct {
		name string
		do   func()
		want []uint8 // ports, by index
	}
	synctest.Test(t, func(t *testing.T) {
		c := &NewSender(&Env{Context: t.Context()}, nil, 1, 0).Conn
		defer c.cancelJoins()
		var plan []lane.Spec
		for i := range uint8(3) {
			p := tcp.NewPort(topology.Port{Netdev: "p", IfIndex: 1 + int(i), LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Carrier: true}, i, tcp.Options{})
			plan = append(plan, lane.Spec{Port: p, Peer: handshake.Port{Index: i}})
			l := lane.New(&c.Shared, int(i), plan[i])
			c.lanes = append(c.lanes, inService(l))
			c.target[pathOf(l)] = 1
		}
		c.traits = lane.Traits{Polled: true, NoRKeys: true}
		c.state.Enter(Open)
		serves := func(i int) func() { return func() { c.lanes[i] = inService(lane.New(&c.Shared, i, plan[i])) } }
		stops := func(i int) func() { return func() { c.lanes[i].Deactivate(); c.lanes[i].Enter(lane.Stopped) } }
		fail := func(i int) {
			stops(i)()
			c.flapRecordOf(pathOf(c.lanes[i])).failed(time.Now(), 1)
		}
		for _, tt := range []at{
			{"all serve", func() {}, nil},
			{"a port loses its carrier, and a lane is lost", func() { plan[1].Port.Carrier(false); fail(1) }, nil},
			{"another", func() { fail(0) }, []uint8{0}},
			{"the last", stops(2), []uint8{0, 1, 2}},
			{"one over the dark port comes back", serves(1), []uint8{0, 2}},
			{"one over a good one", serves(0), []uint8{2}},
			{"the dark one goes", stops(1), []uint8{2}},
			{"the carrier is back", func() { plan[1].Port.Carrier(true) }, []uint8{1, 2}},
			{"a lane flaps", func() { c.flapRecordOf(pathTo(plan[1])).joined(time.Now()); fail(1) }, []uint8{2}},
			{"no other serves", stops(0), []uint8{0, 1, 2}},
			{"one does", serves(2), []uint8{0}},
			{"a moment later", func() { time.Sleep(minHoldDown) }, []uint8{0, 1}},
		} {
			tt.do()
			var got []uint8
			for _, p := range c.LanesToAdd(plan) {
				got = append(got, p.Port.Index())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: ports whose lanes are wanted (-want +got):\n%s", tt.name, diff)
			}
		}
	})
}

// inService puts a lane into service.
func inService(l *lane.Lane) *lane.Lane {
	l.Enter(lane.Connected)
	l.Enter(lane.Up)
	return l
}
