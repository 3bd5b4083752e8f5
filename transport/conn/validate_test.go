package conn_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/path"
	"ncclmesh/transport/sock"
)

// ends are the two ends of a probe whose lanes are made and, at the receiver, connected. The ends exchange no
// messages but those that their set-ups send from then on.
type ends struct {
	from, to *conn.Conn
	devs     []handshake.Domain
	lanes    []handshake.Lane // the receiver's ends of the lanes
}

func newEnds(t *testing.T, a, b *transport.Transport, s *conn.Sender, r *conn.Receiver) *ends {
	t.Helper()
	id, session := a.Paths().NewID(), s.Session
	e := &ends{
		from: conn.NewProbe(a.Paths().Env, session, id, true), to: conn.NewProbe(b.Paths().Env, r.Session, id, false),
	}
	for b, f := range map[*conn.Conn]*path.Finder{e.from: a.Paths(), e.to: b.Paths()} {
		if err := f.Add(b); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Discard(); err != nil {
				t.Error(err)
			}
		})
	}
	plan, err := a.Paths().To(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.from.Build(plan); err != nil {
		t.Fatal(err)
	}
	devs, lanes := e.from.DomainsAndLanes(1<<len(plan) - 1)
	answer, err := b.Paths().PlanFor(e.to, lanes)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.to.SetPeerDomains(uint64(e.from.Ring.Base()), devs), e.to.Build(answer)); err != nil {
		t.Fatal(err)
	}
	e.devs, e.lanes = e.to.DomainsAndLanes(e.to.ConnectLanes(t.Context(), devs, lanes))
	if err := e.from.SetPeerDomains(uint64(e.to.Ring.Base()), e.devs); err != nil {
		t.Fatal(err)
	}
	if len(e.lanes) != 2 {
		t.Fatalf("%d lanes, want two", len(e.lanes))
	}
	return e
}

// connected returns both ends of a probe, connected and not validated.
func connected(t *testing.T, a, b *transport.Transport, s *conn.Sender, r *conn.Receiver) (from, to *conn.Conn) {
	t.Helper()
	e := newEnds(t, a, b, s, r)
	if mask := e.from.ConnectLanes(t.Context(), e.devs, e.lanes); mask != 3 {
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
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			short := func(o *transport.Options) { o.ProofWait, o.LaneWait = 100*time.Millisecond, tt.laneWait }
			a, b := transporttest.NewTCP(t, 1, short), transporttest.NewTCP(t, 1, short)
			s, r := transporttest.Connect(t, a, b)
			e := newEnds(t, a, b, s, r)
			w := transporttest.WorldOf(t)
			w.Clock.After(0, "the receiver's process stops", func() { w.Process(b).Halt(true) })
			if tt.want != 0 {
				w.Clock.After(3*e.from.Env().Clock.Scaled(e.from.Env().ProofWait), "it goes on", func() { w.Process(b).Halt(false) })
			}
			w.Sleep(time.Microsecond)
			mask := e.from.ConnectLanes(t.Context(), e.devs, e.lanes)
			if tt.want == 0 {
				w.Clock.After(0, "it goes on", func() { w.Process(b).Halt(false) })
			}
			if mask != tt.want || mask == 0 && e.from.Slowness() == "" {
				t.Errorf("lanes %b are connected, want %b; %q", mask, tt.want, e.from.Slowness())
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// If connections of other programs fill the receiver's data port, neither end blames a cable.
func TestCrowdedDataPort(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		short := func(o *transport.Options) { o.ProofWait = 50 * time.Millisecond }
		a, b := transporttest.NewTCP(t, 1, short), transporttest.NewTCP(t, 1, short)
		s, r := transporttest.Connect(t, a, b)
		e := newEnds(t, a, b, s, r)
		first := e.lanes[0]
		w, own := transporttest.WorldOf(t), e.from.Lanes()[0].Port.Now()
		intruder, at := w.Machines[0].Start().Sockets, sock.From{Addr: own.GIDs[0].Addr.Unmap(), Netdev: own.Netdev}
		for i := 0; e.to.Lanes()[0].Carrier.LocalError() == nil; i++ {
			if i == 4096 {
				t.Fatal("the data port accepted every connection")
			}
			c, err := intruder.Dial(t.Context(), at, netip.AddrPortFrom(first.Addr.Unmap(), first.TCPPort))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		for i := range e.lanes {
			e.lanes[i].TCPPort = 1 // no listener: the receiver always evicts the sender's connection
		}
		over := make(chan error, 1)
		go func() {
			validated, peerResult, err := e.to.Validate(t.Context(), 0)
			if err == nil {
				_, err = e.to.PutInService(validated, peerResult)
			}
			over <- err
		}()
		mask := e.from.ConnectLanes(t.Context(), e.devs, e.lanes)
		validated, _, err := e.from.Validate(t.Context(), mask)
		if err := errors.Join(err, e.from.SendMessage(e.from.ValidatedMessage(validated))); err != nil {
			t.Fatal(err)
		}
		peerResult, err := e.from.ExpectValidated(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = e.from.PutInService(validated, peerResult)
		for _, side := range []struct {
			name  string
			b     *conn.Conn
			paths *path.Finder
			err   error
		}{{"the sender", e.from, a.Paths(), err}, {"the receiver", e.to, b.Paths(), <-over}} {
			if !errors.Is(side.err, conn.ErrNoLane) {
				t.Fatalf("%s: %v, want no lane", side.name, side.err)
			}
			if text := side.paths.NoPath(side.b.Session, side.b.Failures(), side.b.Slowness()).Error(); strings.Contains(text, "Check the cables") || !strings.Contains(text, r.Session.LocalName()+": the data port has too many connections") {
				t.Errorf("%s says %q, want the crowd and no cables", side.name, text)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A connection of which no first lane comes into service waits for a path, even if a process seemed slow
// meanwhile, because a cable that fails between two packets looks like a slow process. A probe returns the
// error.
func TestNoneWorks(t *testing.T) {
	for _, tt := range []struct {
		name  string
		probe bool
		want  error
	}{{"connection", false, nil}, {"probe", true, conn.ErrNoLane}} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			var log transporttest.Log
			a, b := transporttest.New(t, log.Takes(slog.LevelInfo)), transporttest.New(t)
			s, r := transporttest.Connect(t, a, b)
			env, session, id := a.Paths().Env, s.Session, a.Paths().NewID()
			from := conn.NewProbe(env, session, id, true)
			if !tt.probe {
				from = &conn.NewSender(env, session, id, 0).Conn
			}
			plan, err := a.Paths().To(t.Context(), session)
			if err == nil {
				err = errors.Join(a.Paths().Add(from), from.Build(plan))
			}
			if err != nil {
				t.Fatal(err)
			}
			from.SeemSlow()
			if from.Slowness() == "" {
				t.Error("nothing is said of a slow process")
			}
			if mask, err := from.PutInService(0, &handshake.Validated{Conn: id}); mask != 0 || !errors.Is(err, tt.want) {
				t.Errorf("lanes %b in service, %v; want none, %v", mask, err, tt.want)
			}
			if n := log.Count("no lane is left: waiting for a path"); (n == 0) != tt.probe {
				t.Errorf("it says %d times that it waits for a path", n)
			}
			end := errors.New("the test is over")
			if err := from.Abort(end); !errors.Is(err, end) {
				t.Error(err)
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// brokenProbe is a carrier that cannot send its validation packet.
type brokenProbe struct{ lane.Carrier }

func (brokenProbe) PostProbe() error { return errors.New("it broke") }

// whyFailed returns why a lane failed, or "".
func whyFailed(l *lane.Lane) string {
	if l.Why() == nil {
		return ""
	}
	return l.Why().Error()
}

// A peer's process that is slow is waited for; a failure that a carrier reports counts at once.
func TestValidate(t *testing.T) {
	tests := []struct {
		name     string
		laneWait time.Duration
		peer     func(ctx context.Context, from, to *conn.Conn)
		want     uint32
		reason   string // why lane 1 failed
		slow     bool   // Slowness names a process
	}{
		{"at once", time.Hour, func(ctx context.Context, _, to *conn.Conn) {
			_, _, _ = to.Validate(ctx, 3)
		}, 3, "", false},
		{"after several times ProofWait", time.Hour, func(ctx context.Context, from, to *conn.Conn) {
			time.Sleep(2 * from.Env().Clock.Scaled(from.Env().ProofWait))
			_, _, _ = to.Validate(ctx, 3)
		}, 3, "", false},
		{"one lane never", time.Hour, func(ctx context.Context, _, to *conn.Conn) {
			_, _, _ = to.Validate(ctx, 1)
		}, 1, "a packet arrived there and none came back within ", true},
		{"one lane failed there", time.Hour, func(ctx context.Context, _, to *conn.Conn) {
			_ = to.SendMessage(&handshake.LaneDown{Conn: to.ID, Lane: 1, Reason: "it broke"})
			_, _, _ = to.Validate(ctx, 1)
		}, 1, ": it broke", false},
		{"all failed there", time.Hour, func(_ context.Context, _, to *conn.Conn) {
			for i := range uint8(2) {
				_ = to.SendMessage(&handshake.LaneDown{Conn: to.ID, Lane: i, Reason: "it broke"})
			}
		}, 0, ": it broke", false},
		{"never", 300 * time.Millisecond, func(context.Context, *conn.Conn, *conn.Conn) {}, 0,
			"a packet arrived there and none came back within ", true},
		{"one lane failed here", time.Hour, func(ctx context.Context, _, to *conn.Conn) {
			_, _, _ = to.Validate(ctx, 3)
		}, 1, "it broke", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			short := func(o *transport.Options) { o.ProofWait, o.LaneWait = 100*time.Millisecond, tt.laneWait }
			a, b := transporttest.New(t, short), transporttest.New(t, short)
			s, r := transporttest.Connect(t, a, b)
			from, to := connected(t, a, b, s, r)
			if tt.name == "one lane failed here" {
				from.Lanes()[1].Carrier = brokenProbe{from.Lanes()[1].Carrier}
			}
			over := make(chan struct{})
			go func() {
				defer close(over)
				tt.peer(t.Context(), from, to)
			}()
			got, _, err := from.Validate(t.Context(), 3)
			if err != nil || got != tt.want {
				t.Errorf("validated %b, %v; want %b", got, err, tt.want)
			}
			_ = from.SendMessage(from.ValidatedMessage(got))
			<-over
			if reason := whyFailed(from.Lanes()[1]); !strings.Contains(reason, tt.reason) || (reason == "") != (tt.reason == "") {
				t.Errorf("lane 1: %q, want %q", reason, tt.reason)
			}
			if slow := from.Slowness(); tt.slow && slow == "" { // on a busy machine it may be set in the other cases too
				t.Error("Slowness does not name a slow process")
			}
			transporttest.CloseBoth(t, s, r)
		}))
	}
}
