package conn

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/threads"
	"ncclmesh/transport/topology"
)

// newSession returns a session of two processes over real sockets, which names the ends of a connection. It
// must be called outside of synctest bubbles.
func newSession(t *testing.T) *control.Session {
	t.Helper()
	endpoint := func(host string) *control.Endpoint {
		e, err := control.New(control.Config{Process: handshake.NewProcessID(nil), Hostname: host, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	from, to := endpoint("a"), endpoint("b")
	l, err := to.Listen()
	if err != nil {
		t.Fatal(err)
	}
	raw := l.Handle()
	h, err := handshake.DecodeHandle(&raw)
	if err != nil {
		t.Fatal(err)
	}
	s, err := from.Dial(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// slowPort is the port of slow lanes.
type slowPort struct{ lane.Port }

func (slowPort) Now() *topology.Port { return &topology.Port{Netdev: "p0"} }
func (slowPort) Index() uint8        { return 0 }
func (slowPort) Traits() lane.Traits { return lane.Traits{} }

// slow is a carrier that takes some time to drain and some to be destroyed.
type slow struct {
	lane.Carrier
	drains, destroys time.Duration

	stopped, closed time.Time
	refuse          error // error of Stop
}

func (s *slow) Unsent() int { return 0 }
func (s *slow) Stop() error {
	if s.refuse == nil {
		s.stopped = time.Now()
	}
	return s.refuse
}
func (s *slow) Drained() bool { return !s.stopped.IsZero() && time.Since(s.stopped) >= s.drains }
func (s *slow) Close() error {
	if s.closed.IsZero() {
		time.Sleep(s.destroys)
		s.closed = time.Now()
	}
	return nil
}

// While lanes are drained or destroyed, goroutines that wait for the connection do not stop the clock: in a
// synctest bubble virtual time stands still while a goroutine waits for a sync.Mutex. While lanes drain other
// goroutines can lock the connection.
func TestStoppingTakesLong(t *testing.T) {
	for _, tt := range []struct {
		name             string
		drains, destroys time.Duration
		refuse           error
		looked           time.Duration // when another goroutine has locked the connection
		over             time.Duration // when no request is outstanding any more
	}{
		{"drains", time.Second, 0, nil, 0, time.Second},
		{"never drains", time.Hour, 0, nil, 0, drainTime},
		{"cannot be stopped, and is destroyed", time.Hour, time.Second, errors.New("no"), 2 * time.Second, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			session := newSession(t)
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var work, wg sync.WaitGroup
				memory := &lane.Region{} // used by a request
				s := NewSender(&Env{
					Log: slog.New(slog.DiscardHandler), Context: ctx, LanePool: threads.New(1, clock.Clock{}, ctx.Done()),
					Background: func(f func()) { work.Go(f) }, Forget: func(*Conn) {},
				}, session, 1, 0)
				s.startRequest(8, 1, 0, memory)
				b := &s.Conn
				lanes := []*slow{{drains: tt.drains, destroys: tt.destroys, refuse: tt.refuse}, {drains: tt.drains, destroys: tt.destroys, refuse: tt.refuse}}
				for i, c := range lanes {
					l := lane.New(&b.Shared, i, lane.Spec{Port: slowPort{}, Weight: 1})
					l.Carrier = c
					inService(l)
					b.lanes = append(b.lanes, l)
				}
				began := time.Now()
				wg.Go(func() { // memory is deregistered
					b.Lock()
					defer b.Unlock()
					b.Fail(fault.ErrUsage)
					if err := b.quiesce(); err != nil {
						t.Error(err)
					}
					if got := time.Since(began); got.Round(time.Millisecond) != tt.over || memory.InUse != 0 {
						t.Errorf("after %v %d requests use the memory; want none after %v", got, memory.InUse, tt.over)
					}
				})
				synctest.Wait()
				wg.Go(func() {
					b.Lock()
					defer b.Unlock()
					if got := time.Since(began); got != tt.looked {
						t.Errorf("another has the connection after %v, want %v", got, tt.looked)
					}
				})
				for range 2 {
					wg.Go(func() {
						if err := b.Close(); err != nil {
							t.Error(err)
						}
						if memory.InUse != 0 {
							t.Error("closed, and requests are outstanding")
						}
					})
				}
				wg.Wait()
				work.Wait()
				for i, c := range lanes {
					if c.closed.IsZero() {
						t.Errorf("lane %d was not destroyed", i)
					}
				}
			})
		})
	}
}

// A lane that joins while all others are stopped for good does not come into service.
func TestNoLaneJoinsAfterTheEnd(t *testing.T) {
	c := &NewSender(&Env{Log: slog.New(slog.DiscardHandler), Context: t.Context()}, newSession(t), 1, 0).Conn
	s := newSetup(c, 1)
	l := lane.New(&c.Shared, 0, lane.Spec{Port: slowPort{}, Weight: 1})
	l.Carrier, l.Epoch = &slow{}, 1
	s.lanes = append(s.lanes, l)
	l.Enter(lane.Connected)
	c.Lock()
	c.Fail(fault.ErrUsage)
	err := c.quiesce()
	c.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if mask, err := s.putInService(1, &handshake.Validated{Lanes: 1}); mask != 0 || !errors.Is(err, ErrNoLane) {
		t.Errorf("lanes %b came into service, %v; want none, %v", mask, err, ErrNoLane)
	}
	if l.State() != lane.Stopped {
		t.Errorf("the lane is %v", l.State())
	}
}
