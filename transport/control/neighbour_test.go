package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/time/rate"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/accept"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/sock"
)

var public = handshake.NeighbourSecret(nil)

// wired makes the loopback interface a cable, over which neighbours with the public secret may connect.
func wired(c *Config) {
	c.NeighbourSecret = &public
	c.Cable = func(netdev string) bool { return netdev == "lo" }
}

func (n *node) neighbour(to *node, secret handshake.Secret) (*Session, error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	return n.DialNeighbour(ctx, to.cfg.Process, secret, to.at(1), "lo")
}

func (n *node) mustNeighbour(to *node) *Session {
	n.t.Helper()
	s, err := n.neighbour(to, public)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (s *Session) known() []address {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.addrs)
}

// TestNeighbour: a session without a handle, to one address at either end.
func TestNeighbour(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, wired), newNode(t, wired)
		s := a.mustNeighbour(b)
		for _, m := range conns(1, 100) {
			a.send(s, m)
		}
		r := b.first()
		if diff := cmp.Diff(conns(1, 100), b.messages(r, 100)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		b.send(r, &handshake.Connected{Conn: 1})
		a.messages(s, 1)
		if !s.Neighbour() || !r.Neighbour() || s.PendingListen() != 0 || r.PendingListen() != 0 || r.Peer().Process != a.cfg.Process || s.ID() != r.ID() {
			t.Errorf("the two ends: %v %v, owing %d and %d", s.Neighbour(), r.Neighbour(), s.PendingListen(), r.PendingListen())
		}
		if s.LocalAddr() != r.RemoteAddr() || s.RemoteAddr() != b.at(1) {
			t.Errorf("addresses: %v-%v and %v", s.LocalAddr(), s.RemoteAddr(), r.RemoteAddr())
		}
		same := cmp.Comparer(func(a, b address) bool { return a == b })
		if diff := cmp.Diff([]address{{b.at(1), true}}, s.known(), same); diff != "" {
			t.Errorf("addresses known where it was dialled (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]address{{a.at(1), true}}, r.known(), same); diff != "" {
			t.Errorf("addresses known where it was accepted (-want +got):\n%s", diff)
		}
		if a.mustNeighbour(b) != s {
			t.Error("a second session with one neighbour")
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(a.died(s), b.died(r)); err != nil {
			t.Errorf("Dead: %v", err)
		}
		if got := b.Stats(); len(got.Refused) != 0 {
			t.Errorf("stats: %+v", got)
		}
	})
}

// TestNeighbourRefused: the refusal contains the reason.
func TestNeighbourRefused(t *testing.T) {
	other := handshake.NeighbourSecret([]byte("k"))
	tests := []struct {
		name   string
		change func(*Config)
		secret handshake.Secret
		reason string
		says   string
	}{
		{"another key here", wired, other, reasonKey, "has another NCCL_MESH_KEY"},
		{"another key there", func(c *Config) { wired(c); c.NeighbourSecret = &other }, public, reasonKey, "has another NCCL_MESH_KEY"},
		{"no relaying there", nil, public, reasonNeighbour, "takes no sessions from neighbours"},
		{"not by a cable", func(c *Config) { wired(c); c.Cable = func(string) bool { return false } }, public, reasonCable, "or not over this interface"},
		{"no cable", func(c *Config) { wired(c); c.Cable = nil }, public, reasonCable, "or not over this interface"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				a, b := newNode(t, wired), newNode(t, tt.change)
				s, err := a.neighbour(b, tt.secret)
				var peer *PeerError
				if !errors.As(err, &peer) || !peer.Refused() || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("session %v, error %v; want one that says %q", s, err, tt.says)
				}
				if got := b.Stats(); got.Accepted != 0 || got.Refused[tt.reason] != 1 || len(got.Refused) != 1 {
					t.Errorf("stats: %+v", got)
				}
				_, _ = a.neighbour(b, tt.secret)
				t.Until("the second to be counted", func() bool { return b.Stats().Refused[tt.reason] == 2 })
				if got := strings.Count(b.logged(), tt.reason); got != 1 {
					t.Errorf("%d lines say %q", got, tt.reason)
				}
			})
		})
	}
}

// TestNeighbourNowhere: a neighbour is dialled at a port, from an interface that exists.
func TestNeighbourNowhere(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a := newNode(t, wired)
		for _, at := range []netip.AddrPort{{}, netip.MustParseAddrPort("127.0.0.1:0")} {
			if _, err := a.DialNeighbour(context.Background(), a.cfg.Process, public, at, "lo"); err == nil {
				t.Errorf("dialled %v", at)
			}
		}
		if _, err := a.DialNeighbour(context.Background(), a.cfg.Process, public, a.at(1), ""); err == nil {
			t.Error("dialled from no interface")
		}
		if _, err := a.DialNeighbour(context.Background(), a.cfg.Process, public, a.at(1), "none-such"); !errors.Is(err, syscall.ENODEV) {
			t.Errorf("dialled from an interface that is not there: %v", err)
		}
	})
}

// neighbourByHand sends what a neighbour sends, from an address on the link or from one that may be behind a router.
func neighbourByHand(t *hosts.Test, b *node, process handshake.ProcessID, onLink bool) *visitor {
	t.Helper()
	v := visitFrom(t, b, sock.From{Addr: loopback, OnLink: onLink})
	v.say(v.hello(public[:], &handshake.Hello{Process: process, Hostname: "by hand"}))
	raw, err := handshake.ReadWelcome(v.in)
	if err != nil {
		t.Fatal(err)
	}
	_, keys, err := v.x.HearWelcome(raw)
	if err != nil {
		t.Fatal(err)
	}
	v.say(handshake.NewSealer(keys.Send).Append(nil, nthFrame(t, 1)))
	return v
}

// TestNeighbourBehindARouter: a process that is not at the other end of the cable, and has the public secret, gets no
// session.
func TestNeighbourBehindARouter(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newNode(t, wired)
		for i, onLink := range []bool{false, true} { // the hop limits 64 and 254
			if onLink {
				t.Host("host").Interface("lo").Route(1)
			}
			neighbourByHand(t, b, handshake.ProcessID{9}, onLink)
			t.Until("the connection to be gone", func() bool { return b.Stats().Refused[accept.TimedOut] == uint64(i)+1 })
			if got := b.Stats(); got.Accepted != 0 || got.Sessions != 0 {
				t.Errorf("stats: %+v", got)
			}
		}
		t.Host("host").Interface("lo").Route(0)
		neighbourByHand(t, b, handshake.ProcessID{9}, true)
		if r := b.first(); !r.Neighbour() {
			t.Error("no session with a neighbour")
		}
	})
}

// TestNeighbourDisplacesNobody: a session by handle and one with a neighbour exist side by side, whichever was first.
func TestNeighbourDisplacesNobody(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("neighbour first %v", first), func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) { sideBySide(t, first) })
		})
	}
}

func sideBySide(t *hosts.Test, first bool) {
	a, b := newNode(t, wired), newNode(t, wired)
	_, h := b.invite()
	var s, n *Session
	if first {
		n = a.mustNeighbour(b)
		s = a.dial(h)
	} else {
		s = a.dial(h)
		n = a.mustNeighbour(b)
	}
	if s == n || s.Neighbour() || !n.Neighbour() || a.dial(h) != s || a.mustNeighbour(b) != n {
		t.Errorf("neighbour first %v: the two are confused", first)
	}
	for _, x := range []*Session{s, n} {
		a.send(x, &handshake.Connected{Conn: 1})
		a.send(x, &handshake.Connected{Conn: 2})
	}
	b.until("both", func() bool { return len(b.seen) == 2 })
	for _, r := range b.seen {
		b.messages(r, 2)
		if (r.PendingListen() != 0) == r.Neighbour() {
			t.Errorf("neighbour %v owes %#x", r.Neighbour(), r.PendingListen())
		}
	}
	// A session that ends does not end the other, or remove its entry.
	n.end(nil)
	if err := a.died(n); err != nil {
		t.Error(err)
	}
	if again := a.mustNeighbour(b); again == n || !s.Alive() || a.dial(h) != s {
		t.Error("the end of a neighbour's session is not its own")
	}
	if got := a.Stats(); got.Sessions != 2 {
		t.Errorf("stats: %+v", got)
	}
}

// TestNeighbourResumes from either end, over the same interface and addresses.
func TestNeighbourResumes(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, wired), newNode(t, wired)
		s := a.mustNeighbour(b)
		a.send(s, &handshake.Connected{Conn: 1})
		r := b.first()
		for i := range uint32(6) {
			if i%2 == 0 {
				s.Redial(errors.New("a cable flapped"))
			} else {
				r.Redial(errors.New("a cable flapped"))
			}
			a.send(s, &handshake.Connected{Conn: i + 2})
			b.send(r, &handshake.Connected{Conn: i + 1})
			b.messages(r, int(i)+2)
			a.messages(s, int(i)+1)
		}
		if diff := cmp.Diff(conns(1, 7), b.messages(r, 7)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if len(s.known()) != 1 || len(r.known()) != 1 || len(a.Stats().Refused)+len(b.Stats().Refused) != 0 {
			t.Errorf("addresses %v and %v, stats %+v and %+v", s.known(), r.known(), a.Stats(), b.Stats())
		}
	})
}

// TestNeighbourResumedFromElsewhere: a session cannot be resumed over another interface, even with its key.
func TestNeighbourResumedFromElsewhere(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		var elsewhere atomic.Bool
		a := newNode(t, wired)
		b := newNode(t, func(c *Config) { wired(c); c.Cable = func(string) bool { return !elsewhere.Load() } })
		s := a.mustNeighbour(b)
		a.send(s, &handshake.Connected{Conn: 1})
		r := b.first()
		before := r.RemoteAddr()
		elsewhere.Store(true) // as if what comes now came by another interface
		v := visit(t, b, 1)
		v.say(v.hello(s.resume[:], &handshake.Hello{Session: s.id, Received: 0}))
		v.rejected(0)
		if got := b.Stats(); got.Refused[reasonCable] != 1 || got.Resumed != 0 || r.RemoteAddr() != before {
			t.Errorf("stats: %+v, over %v", got, r.RemoteAddr())
		}
	})
}

// TestTooManyNeighbours: the sessions of neighbours over a cable are limited from their admission on, and not only once
// they are established. The end of one releases its slot.
func TestTooManyNeighbours(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newNode(t, wired)
		hello := func(i int) *visitor {
			v := visitFrom(t, b, sock.From{Addr: local(100 + byte(i%4)), OnLink: true}) // fewer from each address than may wait
			v.say(v.hello(public[:], &handshake.Hello{Process: handshake.ProcessID{9, byte(i)}, Hostname: "by hand"}))
			return v
		}
		var all []*visitor
		for i := range maxOfCable { // none of which says more
			all = append(all, hello(i))
			if _, err := handshake.ReadWelcome(all[i].in); err != nil {
				t.Fatalf("neighbour %d: %v", i, err)
			}
		}
		hello(maxOfCable).rejected(0)
		if got := b.Stats(); got.Accepted != 0 || got.Refused[reasonNeighbours] != 1 {
			t.Errorf("stats: %+v", got)
		}
		_ = all[0].Close()
		t.Until("a place", func() bool { return b.accepted("lo") < maxOfCable })
		neighbourByHand(t, b, handshake.ProcessID{8}, true)
		b.first()
		hello(maxOfCable).rejected(0)
		for _, v := range all {
			_ = v.Close()
		}
		t.Until("places", func() bool { return b.accepted("lo") == 1 })
		b.first().end(nil)
		t.Until("all places", func() bool { return b.accepted("lo") == 0 })
	})
}

// accepted returns how many slots the neighbours of a cable use.
func (n *node) accepted(netdev string) int {
	n.Endpoint.mu.Lock()
	defer n.Endpoint.mu.Unlock()
	return n.cableLocked(netdev).accepted
}

// TestOtherCableFull: neighbours of one cable do not use the slots of another cable.
func TestOtherCableFull(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, wired), newNode(t, wired)
		for range 4 * maxOfCable {
			b.reserveSlot("another")
		}
		a.send(a.mustNeighbour(b), &handshake.Connected{Conn: 1})
		b.first()
		if got := b.accepted("another"); got != maxOfCable {
			t.Errorf("%d places of another cable are taken, want %d", got, maxOfCable)
		}
	})
}

// TestPace: the frames read from a cable's neighbours are limited, whichever of them sends; other sessions do not wait.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &Endpoint{cables: map[string]*cable{}}
		flooded, other := e.cableLocked("p0"), e.cableLocked("p1")
		began, waits := time.Now(), 0
		count := func() { waits++ }
		for range cableBurst {
			flooded.wait(clock.Clock{}, 0, nil, count)
		}
		if took := time.Since(began); took != 0 || waits != 0 {
			t.Errorf("the first %d frames took %v and %d waits", cableBurst, took, waits)
		}
		for range cableRate {
			flooded.wait(clock.Clock{}, frameUnit-1, nil, count)
		}
		if took := time.Since(began); took.Round(time.Millisecond) != time.Second || waits != cableRate {
			t.Errorf("%d frames more took %v and %d waits, want a second", cableRate, took, waits)
		}
		for range cableRate {
			flooded.wait(clock.Clock{}, 3*frameUnit, nil, func() {})
		}
		if took := time.Since(began); took.Round(time.Millisecond) != 5*time.Second {
			t.Errorf("with as many of four times the size it took %v, want 5 s", took)
		}
		began = time.Now()
		other.wait(clock.Clock{}, handshake.MaxBody, nil, func() { t.Error("a frame over another cable waits") })
		done := make(chan struct{})
		time.AfterFunc(time.Microsecond, func() { close(done) })
		if flooded.wait(clock.Clock{}, handshake.MaxBody, done, count) || time.Since(began) != time.Microsecond {
			t.Errorf("a wait outlives its link by %v", time.Since(began))
		}
	})
}

// TestPaceOfASession: a neighbour that sends too much has to wait, and loses nothing. Sessions that were dialled by a
// handle do not wait.
func TestPaceOfASession(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, wired), newNode(t, wired)
		b.Endpoint.mu.Lock()
		b.cables["lo"] = &cable{pace: rate.NewLimiter(0, 10)}
		b.Endpoint.mu.Unlock()
		s := a.mustNeighbour(b)
		for _, m := range conns(1, 100) {
			a.send(s, m)
		}
		r := b.first()
		t.Until("a frame that waits", func() bool { return b.Stats().Paced > 0 })
		_, h := b.invite()
		a.send(a.dial(h), &handshake.Connected{Conn: 1})
		b.until("the other session", func() bool { return len(b.seen) == 2 })
		b.mu.Lock()
		heard := len(b.got[r])
		b.mu.Unlock()
		if heard > 11 { // the first is read with the Hello
			t.Errorf("%d messages were read at once", heard)
		}
		b.cables["lo"].pace.SetLimit(rate.Inf)
		s.Redial(errors.New("what waits, waits for the link"))
		if diff := cmp.Diff(conns(1, 100), b.messages(r, 100)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if got := strings.Count(b.logged(), "has to wait"); got != 1 {
			t.Errorf("%d lines say that it has to wait", got)
		}
	})
}
