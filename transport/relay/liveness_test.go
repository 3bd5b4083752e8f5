package relay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/lane"
)

// checksRun reports whether checkLiveness runs.
func (b *bench) checksRun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.checking
}

// A relay checks the next one for signs of life, and reports its silence towards the sender as long as it lasts. It
// does not report a silent receiver.
func TestSilence(t *testing.T) {
	tests := []struct {
		name  string
		route func(*handshake.CircuitOpen)
		do    func(b *bench)
		says  string
	}{
		{"the next relay's", func(*handshake.CircuitOpen) {}, func(b *bench) { b.c.silence(time.Hour) }, "node-b: node-c has given no sign of life for "},
		{"a relay's further on", func(*handshake.CircuitOpen) {}, func(b *bench) {
			b.message(b.c, &handshake.CircuitStalled{Circuit: 1, Reason: "node-c: node-d has given no sign"})
			b.message(b.c, &handshake.CircuitStalled{Circuit: 1, Reason: "again"})
		}, "node-c: node-d has given no sign"},
		{"the receiver's", toC, func(b *bench) { b.c.silence(time.Hour) }, ""},
		{"the receiver's, as it says", toC, func(b *bench) { b.message(b.c, &handshake.CircuitStalled{Circuit: 1, Reason: "me"}) }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				b := newBench(t)
				b.message(b.a, ask(5, tt.route))
				b.c.next(t)
				b.message(b.c, &handshake.CircuitOpened{Circuit: 1, Half: handshake.Lane{Kind: handshake.LaneVerbs}})
				b.a.next(t)
				tt.do(b)
				if tt.says == "" {
					if b.checksRun() {
						t.Error("the receiver is asked for signs of life")
					}
					b.a.quiet(t)
					return
				}
				for range 2 {
					s, ok := b.a.next(t).(*handshake.CircuitStalled)
					if !ok || s.Circuit != 5 || !strings.Contains(s.Reason, tt.says) && s.Reason != "again" {
						t.Errorf("the asker heard %+v, want %q", s, tt.says)
					}
				}
				b.c.silence(0)
				b.message(b.a, &handshake.CircuitClose{Circuit: 5, Asker: true, Reason: "enough"})
				t.Until("the end of the checks", func() bool { return !b.checksRun() })
			})
		})
	}
}

// The process that requested a circuit is notified of the first relay's silence, while it lasts.
func TestSilenceOfOwn(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newBench(t)
		m := ask(0)
		m.Route = m.Route[1:]
		got, silent := make(chan *lane.OpenedCircuit, 1), make(chan error, 1<<16)
		go func() {
			a, err := b.OpenCircuit(t.Context(), 1, m, func(err error) { t.Errorf("dropped: %v", err) }, func(err error) { silent <- err })
			if err != nil {
				t.Error(err)
			}
			got <- a
		}()
		b.c.next(t)
		b.message(b.c, &handshake.CircuitStalled{Circuit: 1, Reason: "too early"})
		b.message(b.a, &handshake.CircuitStalled{Circuit: 1, Reason: "of another"})
		if n := b.Stats().Strange; n != 2 {
			t.Errorf("%d strange messages, want 2", n)
		}
		b.message(b.c, &handshake.CircuitOpened{Circuit: 1, Half: handshake.Lane{Kind: handshake.LaneVerbs}})
		a := wait(t, "the circuit", got)
		b.c.silence(time.Hour)
		for range 2 {
			if err := wait(t, "word", silent); !strings.Contains(err.Error(), "node-c has given no sign of life for ") {
				t.Errorf("the lane heard %v", err)
			}
		}
		a.Drop("enough")
		t.Until("the end of the checks", func() bool { return !b.checksRun() })
	})
}

// The time in which this process is stopped does not count, and a peer that was silent for less than the time between
// two checks does not either.
func TestVigil(t *testing.T) {
	s := newSession(1, 2)
	hops := []*hop{{key: key{s: s}}, {key: key{s: s}}} // a session is asked once for all its hops
	const most = 3 * time.Second
	for _, tt := range []struct {
		name             string
		was, passed, owe time.Duration
		want             time.Duration
	}{
		{"owes nothing", 5 * time.Second, time.Second, 0, 0},
		{"owes since the last look", 0, time.Second, time.Second, time.Second},
		{"still owes", time.Second, time.Second, 2 * time.Second, 2 * time.Second},
		{"owes something newer", 5 * time.Second, time.Second, time.Millisecond, time.Millisecond},
		{"this process did not run", time.Second, time.Hour, time.Hour, 4 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				s.silence(tt.owe)
				v := liveness{watch: clock.Watch{Most: most}, silent: map[session]time.Duration{s: tt.was}}
				v.watch.StartAt(time.Now().Add(-tt.passed))
				got := v.check(hops)[s]
				if atMost := min(tt.owe, tt.was+most); got < tt.want || got > atMost { // the test takes time too
					t.Errorf("silent for %v, want %v, or on a slow machine %v", got, tt.want, atMost)
				}
			})
		})
	}
}

// A panic in a stalled callback ends the checks, and the next hop starts them again.
func TestVigilPanics(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newBench(t)
		m := ask(0)
		m.Route = m.Route[1:]
		stand := func(n uint32, silent func(error)) *lane.OpenedCircuit {
			got := make(chan *lane.OpenedCircuit, 1)
			go func() {
				a, err := b.OpenCircuit(t.Context(), 1, m, func(error) {}, silent)
				if err != nil {
					t.Error(err)
				}
				got <- a
			}()
			b.c.next(t)
			b.message(b.c, &handshake.CircuitOpened{Circuit: n, Half: handshake.Lane{Kind: handshake.LaneVerbs}})
			return wait(t, "the circuit", got)
		}
		told := make(chan error, 1<<16)
		b.c.silence(time.Hour)
		first := stand(1, func(error) { panic(errors.New("a lane")) })
		t.Until("the end of the checks", func() bool { return !b.checksRun() })
		first.Drop("enough")
		b.c.next(t)
		stand(2, func(err error) { told <- err })
		wait(t, "word", told)
	})
}
