package transport

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/forkfd"
)

// ends are the two ends of a connection whose lanes are built and, at the receiver, connected. No messages pass between
// them but those that its set-up sends from then on.
type ends struct {
	from, to *conn
	devs     []handshake.Device
	lanes    []handshake.Lane // what the sender is told
}

func newEnds(t *testing.T, a, b *Transport, s *SendConn, r *RecvConn) *ends {
	t.Helper()
	id := a.lastID.Add(1)
	e := &ends{from: newConn(a, s.s, id, true), to: newConn(b, r.s, id, false)}
	for _, c := range []*conn{e.from, e.to} {
		c.trial, c.half = true, idle{}
		if err := c.t.add(c); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.destroy(); err != nil {
				t.Error(err)
			}
		})
	}
	plan, err := a.paths(t.Context(), s.s)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.from.build(plan); err != nil {
		t.Fatal(err)
	}
	devs, lanes := e.from.offers(1<<len(plan) - 1)
	answer, err := e.to.planFor(lanes)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.to.adopt(uint64(e.from.wireBase), devs), e.to.build(answer)); err != nil {
		t.Fatal(err)
	}
	e.devs, e.lanes = e.to.offers(e.to.connectLanes(t.Context(), devs, lanes))
	if err := e.from.adopt(uint64(e.to.wireBase), e.devs); err != nil {
		t.Fatal(err)
	}
	if len(e.lanes) != 2 {
		t.Fatalf("%d lanes, want two", len(e.lanes))
	}
	return e
}

// halves are both ends, connected and not proved.
func halves(t *testing.T, a, b *Transport, s *SendConn, r *RecvConn) (from, to *conn) {
	t.Helper()
	e := newEnds(t, a, b, s, r)
	if mask := e.from.connectLanes(t.Context(), e.devs, e.lanes); mask != 3 {
		t.Fatalf("lanes %b are connected, want two", mask)
	}
	return e.from, e.to
}

// A socket whose peer's kernel has answered waits for the peer's process.
func TestSlowSocket(t *testing.T) {
	for _, tt := range []struct {
		name     string
		laneWait time.Duration
		want     uint32
	}{
		{"after several times ProofWait", time.Hour, 3},
		{"never", 300 * time.Millisecond, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leaks(t)
			short := func(o *Options) { o.ProofWait, o.LaneWait = 100*time.Millisecond, tt.laneWait }
			a, b := tcpTransport(t, 1, short), tcpTransport(t, 1, short)
			s, r := connect(t, a, b)
			e := newEnds(t, a, b, s, r)
			e.to.mu.Lock() // without which it does not take a lane
			if tt.want != 0 {
				time.AfterFunc(3*a.opts.scaled(a.opts.ProofWait), e.to.mu.Unlock)
			}
			mask := e.from.connectLanes(t.Context(), e.devs, e.lanes)
			if tt.want == 0 {
				e.to.mu.Unlock()
			}
			if mask != tt.want || mask == 0 && e.from.slowness() == "" {
				t.Errorf("lanes %b are connected, want %b; %q", mask, tt.want, e.from.slowness())
			}
			closeBoth(t, s, r)
		})
	}
}

// Where strangers crowd the receiver's data port no cable is blamed, at either end.
func TestCrowdedDataPort(t *testing.T) {
	leaks(t)
	short := func(o *Options) { o.ProofWait = 50 * time.Millisecond }
	a, b := tcpTransport(t, 1, short), tcpTransport(t, 1, short)
	s, r := connect(t, a, b)
	e := newEnds(t, a, b, s, r)
	crowded := func() bool {
		for why := range b.data.Stats().Refused {
			if strings.Contains(why, "too many") {
				return true
			}
		}
		return false
	}
	first := e.lanes[0]
	at := forkfd.Dialer{Addr: addrOf(first.GID), Device: e.from.lanes[0].port.Netdev}
	for i := 0; !crowded(); i++ {
		if i == 4096 {
			t.Fatal("the data port took as many strangers as came")
		}
		f, err := at.Dial(t.Context(), netip.AddrPortFrom(at.Addr, first.TCPPort))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = forkfd.Close(f) })
	}
	for i := range e.lanes {
		e.lanes[i].TCPPort = 1 // where nobody listens: chance turns the sender out each time
	}
	over := make(chan error, 1)
	go func() {
		proved, theirs, err := e.to.prove(t.Context(), 0)
		if err == nil {
			_, err = e.to.agree(proved, theirs)
		}
		over <- errors.Join(err, e.to.send(e.to.verdict(0)))
	}()
	mask := e.from.connectLanes(t.Context(), e.devs, e.lanes)
	proved, _, err := e.from.prove(t.Context(), mask)
	if err := errors.Join(err, e.from.send(e.from.verdict(proved))); err != nil {
		t.Fatal(err)
	}
	theirs, err := expect[*handshake.Proved](t.Context(), e.from)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.from.agree(proved, theirs)
	for _, side := range []struct {
		name string
		c    *conn
		err  error
	}{{"the sender", e.from, err}, {"the receiver", e.to, <-over}} {
		if !errors.Is(side.err, errNoLane) {
			t.Fatalf("%s: %v, want no lane", side.name, side.err)
		}
		if text := side.c.noLane().Error(); strings.Contains(text, "Check the cables") || !strings.Contains(text, r.s.LocalName()+": the data port is crowded") {
			t.Errorf("%s says %q, want the crowd and no cables", side.name, text)
		}
	}
	closeBoth(t, s, r)
}

// mute is a carrier that cannot send its proof.
type mute struct{ carrier }

func (mute) postProof() error { return errors.New("it broke") }

// What a process has not done is waited for; what a carrier says counts at once.
func TestProve(t *testing.T) {
	tests := []struct {
		name     string
		laneWait time.Duration
		peer     func(from, to *conn)
		want     uint32
		reason   string // of lane 1
		slow     bool   // is evidence of that
	}{
		{"at once", time.Hour, func(_, to *conn) {
			_, _, _ = to.prove(to.t.ctx, 3)
		}, 3, "", false},
		{"after several times ProofWait", time.Hour, func(from, to *conn) {
			time.Sleep(2 * from.t.opts.scaled(from.t.opts.ProofWait))
			_, _, _ = to.prove(to.t.ctx, 3)
		}, 3, "", false},
		{"one lane never", time.Hour, func(_, to *conn) {
			_, _, _ = to.prove(to.t.ctx, 1)
		}, 1, "a packet arrived there and none came back within ", true},
		{"one lane failed there", time.Hour, func(_, to *conn) {
			_ = to.send(&handshake.LaneDown{Conn: to.id, Lane: 1, Reason: "it broke"})
			_, _, _ = to.prove(to.t.ctx, 1)
		}, 1, ": it broke", false},
		{"all failed there", time.Hour, func(_, to *conn) {
			for i := range uint8(2) {
				_ = to.send(&handshake.LaneDown{Conn: to.id, Lane: i, Reason: "it broke"})
			}
		}, 0, ": it broke", false},
		{"never", 300 * time.Millisecond, func(_, _ *conn) {}, 0,
			"a packet arrived there and none came back within ", true},
		{"one lane failed here", time.Hour, func(_, to *conn) {
			_, _, _ = to.prove(to.t.ctx, 3)
		}, 1, "it broke", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			leaks(t)
			short := func(o *Options) { o.ProofWait, o.LaneWait = 100*time.Millisecond, tt.laneWait }
			a, b := newTransport(t, short), newTransport(t, short)
			s, r := connect(t, a, b)
			from, to := halves(t, a, b, s, r)
			if tt.name == "one lane failed here" {
				from.lanes[1].carrier = mute{from.lanes[1].carrier}
			}
			over := make(chan struct{})
			go func() {
				defer close(over)
				tt.peer(from, to)
			}()
			got, _, err := from.prove(t.Context(), 3)
			if err != nil || got != tt.want {
				t.Errorf("proved %b, %v; want %b", got, err, tt.want)
			}
			_ = from.send(from.verdict(got))
			<-over
			if l := from.lanes[1]; !strings.Contains(l.reason, tt.reason) || (l.reason == "") != (tt.reason == "") {
				t.Errorf("lane 1: %q, want %q", l.reason, tt.reason)
			}
			if slow := from.slowness(); tt.slow && slow == "" { // on a busy machine there may be other evidence of it
				t.Error("nothing is said of a slow process")
			}
			closeBoth(t, s, r)
		})
	}
}

// Of a time in which the process did not run no more than a glance counts.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := clock{glance: glance}
		k.start()
		for _, gap := range []time.Duration{time.Millisecond, glance, 3 * time.Second} {
			time.Sleep(gap)
			k.look()
		}
		if k.ran != 2*glance+time.Millisecond || k.lost != 3*time.Second-glance {
			t.Errorf("ran %v, lost %v", k.ran, k.lost)
		}
		time.Sleep(time.Hour)
		k.start()
		if k.look(); k.ran != 2*glance+time.Millisecond {
			t.Errorf("ran %v after a pause", k.ran)
		}
	})
}
