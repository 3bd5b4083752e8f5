package transport_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/fault"
)

// newPeer returns the control plane of another process, which is closed before the test ends.
func newPeer(t *testing.T) *control.Endpoint {
	t.Helper()
	runs := transporttest.WorldOf(t).Machines[1].Start().Runs()
	peer, err := control.New(control.Config{
		Process: handshake.NewProcessID(runs.Random), Hostname: "elsewhere", Addrs: []netip.Addr{netip.MustParseAddr("192.168.1.2")},
		Network: runs.Network, Descriptors: runs.Descriptors, Random: runs.Random, Clock: runs.Clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	return peer
}

// A peer that ends before it has requested its connection ends the wait for that connection only.
func TestPeerNeverConnects(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a := transporttest.NewTCP(t, 1)
		left, h := transporttest.Listen(t, a)
		other, _ := transporttest.Listen(t, a)
		peer := newPeer(t)
		if _, err := peer.Dial(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		transporttest.Await(t, "the session", func() bool { return len(a.Sessions()) == 1 })
		if r, err := left.Accept(); r != nil || err != nil {
			t.Errorf("while the peer lives: %v, %v", r, err)
		}
		if err := peer.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		transporttest.Await(t, "the error", func() bool {
			_, err = left.Accept()
			return err != nil
		})
		if !errors.Is(err, fault.ErrPeer) || !strings.Contains(err.Error(), "elsewhere, which was to connect to") {
			t.Errorf("error %v, want ErrPeer that names the peer", err)
		}
		if r, err := other.Accept(); r != nil || err != nil {
			t.Errorf("the listener of another peer: %v, %v", r, err)
		}
		for _, l := range []*transport.Listener{left, other} {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A connection that is up can be accepted although its peer has ended since.
func TestAcceptAfterTheEnd(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.NewTCP(t, 1), transporttest.NewTCP(t, 1)
		l, h := transporttest.Listen(t, a)
		b.Dial(h)
		var up *conn.Receiver // and not yet accepted
		transporttest.Await(t, "the connection", func() bool {
			if all := l.Up(); len(all) == 1 {
				up = all[0]
			}
			return up != nil
		})
		a.Dead(up.Session, errors.New("no answer"))
		r, err := l.Accept()
		if r == nil || err != nil {
			t.Fatalf("accept: %v, %v", r, err)
		}
		if err := errors.Join(r.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A listener accepts connections of many peers, and several of one. A connection that fails causes one error of Accept.
func TestListenerTakesMany(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b, c := transporttest.NewTCP(t, 1), transporttest.NewTCP(t, 1), transporttest.NewTCP(t, 1)
		l, h := transporttest.Listen(t, a)
		lost := newPeer(t)
		if _, err := lost.Dial(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		transporttest.Await(t, "its session", func() bool { return len(a.Sessions()) == 1 })
		if err := lost.Close(); err != nil {
			t.Fatal(err)
		}
		const each = 3
		var ends []interface{ Close() error }
		for _, from := range []*transport.Transport{b, c} {
			for range each {
				d := from.Dial(h)
				var s *conn.Sender
				transporttest.Await(t, "a sender", func() bool {
					var err error
					if s, err = d.Poll(); err != nil {
						t.Fatal(err)
					}
					return s != nil
				})
				ends = append(ends, s)
			}
		}
		peers := map[handshake.ProcessID]int{}
		failures := 0
		transporttest.Await(t, "all of them", func() bool {
			r, err := l.Accept()
			switch {
			case err != nil:
				if failures++; !strings.Contains(err.Error(), "elsewhere, which was to connect to") {
					t.Errorf("accept: %v", err)
				}
			case r != nil:
				ends = append(ends, r)
				peers[r.Session.Peer().Process]++
			}
			return failures > 0 && len(ends) == 4*each
		})
		if r, err := l.Accept(); r != nil || err != nil {
			t.Errorf("one more: %v, %v", r, err)
		}
		if len(peers) != 2 || failures != 1 {
			t.Errorf("connections by peer: %v; %d failures, want 1", peers, failures)
		}
		for _, e := range append(ends, l) {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		d, err := b.Dial(h), error(nil)
		transporttest.Await(t, "a refusal", func() bool {
			_, err = d.Poll()
			return err != nil
		})
		if !strings.Contains(err.Error(), "has been closed") {
			t.Errorf("dialling a closed listener: %v", err)
		}
	})
}
