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
		up = l.conn
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
