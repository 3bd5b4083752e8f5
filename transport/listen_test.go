package transport

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
)

// A peer that goes before it has asked for its connection ends the wait for it, and
// no other wait.
func TestPeerNeverConnects(t *testing.T) {
	leaks(t)
	a := tcpTransport(t, 1)
	left, h := listen(t, a)
	other, _ := listen(t, a)
	peer, err := control.New(control.Config{
		Process: handshake.NewProcessID(), Hostname: "elsewhere", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, TimeScale: 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Dial(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	await(t, "the session", func() bool { return len(a.ep.Sessions()) == 1 })
	if r, err := left.Accept(); r != nil || err != nil {
		t.Errorf("while the peer lives: %v, %v", r, err)
	}
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the error", func() bool {
		_, err = left.Accept()
		return err != nil
	})
	if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), "elsewhere, which was to connect to") {
		t.Errorf("error %v, want ErrPeer that names the peer", err)
	}
	if r, err := other.Accept(); r != nil || err != nil {
		t.Errorf("the listener of another peer: %v, %v", r, err)
	}
	for _, l := range []*Listener{left, other} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A connection that is up can be accepted although its peer has gone since.
func TestAcceptAfterTheEnd(t *testing.T) {
	leaks(t)
	a, b := tcpTransport(t, 1), tcpTransport(t, 1)
	l, h := listen(t, a)
	b.Dial(h)
	var up *RecvConn // and not yet accepted
	await(t, "the connection", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.up) == 1 {
			up = l.up[0]
		}
		return up != nil
	})
	a.dead(up.s, errors.New("no answer"))
	r, err := l.Accept()
	if r == nil || err != nil {
		t.Fatalf("accept: %v, %v", r, err)
	}
	if err := errors.Join(r.Close(), l.Close()); err != nil {
		t.Error(err)
	}
}

// A listener takes connections of many peers, and several of one. One that fails
// costs one Accept.
func TestListenerTakesMany(t *testing.T) {
	leaks(t)
	a, b, c := tcpTransport(t, 1), tcpTransport(t, 1), tcpTransport(t, 1)
	l, h := listen(t, a)
	lost, err := control.New(control.Config{
		Process: handshake.NewProcessID(), Hostname: "elsewhere", Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, TimeScale: 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lost.Dial(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	await(t, "its session", func() bool { return len(a.ep.Sessions()) == 1 })
	if err := lost.Close(); err != nil {
		t.Fatal(err)
	}
	const each = 3
	var ends []interface{ Close() error }
	for _, from := range []*Transport{b, c} {
		for range each {
			d := from.Dial(h)
			var s *SendConn
			await(t, "a sender", func() bool {
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
	await(t, "all of them", func() bool {
		r, err := l.Accept()
		switch {
		case err != nil:
			if failures++; !strings.Contains(err.Error(), "elsewhere, which was to connect to") {
				t.Errorf("accept: %v", err)
			}
		case r != nil:
			ends = append(ends, r)
			peers[r.s.Peer().Process]++
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
	d := b.Dial(h)
	await(t, "a refusal", func() bool {
		_, err = d.Poll()
		return err != nil
	})
	if !strings.Contains(err.Error(), "has been closed") {
		t.Errorf("dialling a closed listener: %v", err)
	}
}

// What waits to be accepted is bounded.
func TestListenerIsBounded(t *testing.T) {
	l := &Listener{}
	for i := range maxWaiting {
		if err := l.begin(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			l.finish(nil, errors.New("failed"))
		}
	}
	if err := l.begin(); err == nil || !strings.Contains(err.Error(), "wait to be accepted") {
		t.Errorf("one too many: %v", err)
	}
	l.orphan(errors.New("dropped"))
	if _, err := l.Accept(); err == nil {
		t.Error("no failure was told")
	}
	if err := l.begin(); err != nil {
		t.Errorf("after an Accept: %v", err)
	}
}
