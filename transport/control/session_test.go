package control

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/accept"
)

func TestMessagesBothWaysAndBye(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, func(c *Config) {
			c.Hostname = "b"
			c.Ports = func() []handshake.Port { return []handshake.Port{{Index: 3, Device: "rocep1s0f0", Num: 1}} }
		})
		l, h := b.invite()
		s := a.dial(h)
		want := Peer{Process: b.cfg.Process, Node: b.cfg.Node, Hostname: "b", Ports: b.cfg.Ports()}
		if diff := cmp.Diff(want, s.Peer()); diff != "" {
			t.Errorf("peer (-want +got):\n%s", diff)
		}
		for _, m := range conns(1, 500) {
			a.send(s, m)
		}
		r := b.first()
		if diff := cmp.Diff(conns(1, 500), b.messages(r, 500)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if r.ID() != s.ID() || r.Dialled() || !s.Dialled() || r.Peer().Process != a.cfg.Process {
			t.Errorf("the two ends disagree: %v %v", s, r)
		}
		if s.LocalAddr() != r.RemoteAddr() || s.RemoteAddr() != r.LocalAddr() {
			t.Errorf("addresses: %v-%v and %v-%v", s.LocalAddr(), s.RemoteAddr(), r.LocalAddr(), r.RemoteAddr())
		}
		if r.PendingListen() != l.ID || s.PendingListen() != 0 {
			t.Errorf("the sessions owe %#x and %#x", r.PendingListen(), s.PendingListen())
		}
		if err := b.Redeem(l.ID, r, 7, handshake.Proof(h.Secret, s.ID(), h.Listen, 7)); err != nil || r.PendingListen() != 0 {
			t.Errorf("Redeem = %v, owes %#x", err, r.PendingListen())
		}
		b.send(r, &handshake.Refuse{Conn: 7, Text: "no"})
		a.messages(s, 1)

		// Messages that were queued before Close still arrive.
		for _, m := range conns(501, 1000) {
			a.send(s, m)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := b.died(r); err != nil {
			t.Errorf("Dead after Bye: %v", err)
		}
		if err := a.died(s); err != nil {
			t.Errorf("Dead after Close: %v", err)
		}
		if diff := cmp.Diff(conns(1, 1000), b.messages(r, 1000)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if err := r.Send(&handshake.Bye{Conn: 1}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Send after Bye: %v", err)
		}
		if _, err := a.Dial(context.Background(), h); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Dial after Close: %v", err)
		}
	})
}

// TestAcknowledgedWhenHandled: after the last acknowledgement all messages have had their effect at the peer.
func TestAcknowledgedWhenHandled(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		entered, leave := make(chan struct{}), make(chan struct{})
		a, b := newNode(t, nil), newNode(t, func(c *Config) {
			told := c.Message
			c.Message = func(s *Session, m handshake.Message) {
				told(s, m)
				if _, ok := m.(*handshake.Bye); ok {
					close(entered)
					<-leave
				}
			}
		})
		_, h := b.invite()
		s := a.dial(h)
		a.send(s, &handshake.Connected{Conn: 1})
		a.send(s, &handshake.Bye{Conn: 1})
		a.send(s, &handshake.Ask{})
		<-entered
		b.send(b.first(), &handshake.Refuse{Conn: 2, Text: "says what has been handled, too"})
		a.messages(s, 1)
		if s.Unanswered() == 0 {
			t.Error("a message that is being handled was acknowledged")
		}
		close(leave)
		t.Until("the acknowledgement of what was handled", func() bool { return s.Unanswered() == 0 })
	})
}

func TestDialReusesTheSession(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, nil)
		_, h1 := b.invite()
		_, h2 := b.invite()
		if a.dial(h1) != a.dial(h2) {
			t.Error("two sessions with one process")
		}
		// The other direction is a session of its own.
		_, back := a.invite()
		if b.dial(back).ID() == a.dial(h1).ID() {
			t.Error("one session for both directions")
		}
		a.send(a.dial(h1), &handshake.Connected{})
		b.first()
		if got := b.Stats(); got.Dialled != 1 || got.Accepted != 1 || got.Sessions != 2 {
			t.Errorf("stats: %+v", got)
		}
	})
}

func TestConcurrentDialsShareOneSession(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, nil)
		sessions := make([]*Session, 64)
		var wg sync.WaitGroup
		for i := range sessions {
			_, h := b.invite()
			wg.Go(func() {
				s, err := a.Dial(context.Background(), h)
				if err != nil {
					t.Errorf("dial %d: %v", i, err)
					return
				}
				sessions[i] = s
				if err := s.Send(&handshake.Connected{Conn: uint32(i)}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i, s := range sessions {
			if s != sessions[0] {
				t.Errorf("dial %d made a session of its own", i)
			}
		}
		b.messages(b.first(), len(sessions))
		if got := a.Stats().Dialled; got != 1 {
			t.Errorf("%d sessions were dialled", got)
		}
		if got := b.Stats().Accepted; got != 1 {
			t.Errorf("%d sessions were accepted", got)
		}
	})
}

// TestOneBadHandleSpoilsNoOther: a dialler with the handle of a closed listen fails, and other diallers do not.
func TestOneBadHandleSpoilsNoOther(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, nil)
		var wg sync.WaitGroup
		for i := range 16 {
			l, h := b.invite()
			good := i >= 8
			if !good {
				l.Close()
				l.Close()
			}
			wg.Go(func() {
				_, err := a.Dial(context.Background(), h)
				var reject *handshake.RejectError
				switch {
				case good && err != nil:
					t.Errorf("dial with a good handle: %v", err)
				case err != nil && !(errors.As(err, &reject) && reject.Code == handshake.RejectClosed):
					t.Errorf("dial with a withdrawn one: %v", err)
				}
			})
		}
		wg.Wait()
		if got := a.Stats(); got.Dialled != 1 || got.Sessions != 1 {
			t.Errorf("stats: %+v", got)
		}
	})
}

func TestDialSelf(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a := newNode(t, nil)
		l, h := a.invite()
		s := a.dial(h)
		for _, m := range conns(1, 3) {
			a.send(s, m)
		}
		r := a.first()
		if r == s || r.ID() != s.ID() || r.Dialled() {
			t.Fatalf("the other end of a session with oneself is %v", r)
		}
		a.send(r, &handshake.Bye{Conn: 5})
		if diff := cmp.Diff([]handshake.Message{&handshake.Bye{Conn: 5}}, a.messages(s, 1)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if err := a.Redeem(l.ID, r, 1, handshake.Proof(h.Secret, s.ID(), h.Listen, 1)); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(a.died(s), a.died(r)); err != nil {
			t.Errorf("Dead: %v", err)
		}
	})
}

// TestRedeem: a listen is valid for many connections of many sessions, and each proof is valid once.
func TestRedeem(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, nil)
		l, h := b.invite()
		s := a.dial(h)
		proof := handshake.Proof(h.Secret, s.ID(), h.Listen, 1)
		a.send(s, &handshake.Connected{})
		r := b.first()
		withdrawn, h2 := b.invite()
		withdrawn.Close()
		tests := []struct {
			name   string
			listen uint32
			conn   uint32
			proof  [32]byte
			want   string
		}{
			{"no proof", l.ID, 1, [32]byte{}, "not made with that listen's secret"},
			{"proof for another connection", l.ID, 2, proof, "not made with that listen's secret"},
			{"proof for another listen", l.ID, 1, handshake.Proof(h.Secret, s.ID(), h.Listen+1, 1), "not made with that listen's secret"},
			{"proof for another session", l.ID, 1, handshake.Proof(h.Secret, handshake.SessionID{1}, h.Listen, 1), "not made with that listen's secret"},
			{"unknown listen", h2.Listen + 1, 1, proof, "never made here"},
			{"withdrawn listen", h2.Listen, 1, handshake.Proof(h2.Secret, s.ID(), h2.Listen, 1), "has been closed here"},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *hosts.Test) {
				if err := b.Redeem(tt.listen, r, tt.conn, tt.proof); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error = %v, want one that says %q", err, tt.want)
				}
			})
		}
		if diff := cmp.Diff(map[string]uint64{reasonSecret: 4, reasonListen: 1, reasonClosed: 1}, b.Stats().Refused); diff != "" {
			t.Errorf("refused (-want +got):\n%s", diff)
		}
		for _, n := range []uint32{1, 2, 1000} {
			proof := handshake.Proof(h.Secret, s.ID(), h.Listen, n)
			if err := b.Redeem(l.ID, r, n, proof); err != nil {
				t.Errorf("the right proof for connection %d: %v", n, err)
			}
			if err := b.Redeem(l.ID, r, n, proof); err == nil || !strings.Contains(err.Error(), "it has already requested connection") {
				t.Errorf("the same proof again: %v", err)
			}
		}
		c := newNode(t, nil)
		other := c.dial(h)
		c.send(other, &handshake.Connected{})
		b.until("the other session", func() bool { return len(b.seen) == 2 })
		if err := b.Redeem(l.ID, b.seen[1], 1, handshake.Proof(h.Secret, other.ID(), h.Listen, 1)); err != nil {
			t.Errorf("connection 1 of another session: %v", err)
		}
	})
}

// A refused request and a session whose link breaks do not wait for each other's locks.
func TestRedeemWhileALinkBreaks(t *testing.T) {
	e := &Endpoint{acceptor: accept.New(accept.Config{})}
	s := &Session{e: e}
	s.mu.Lock()
	refused := make(chan error)
	go func() { refused <- e.Redeem(1, s, 1, [32]byte{}) }()
	for e.acceptor.Counts()[reasonListen] == 0 {
		runtime.Gosched()
	}
	free := make(chan bool)
	go func() { free <- e.spawn(func() {}) }() // as the end of a link does, with Session.mu locked
	select {
	case <-free:
	case <-time.After(hang): // only if the test fails
		t.Fatal("Endpoint.mu is held until Session.mu is free")
	}
	s.mu.Unlock()
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "listen 0x1 was never made here") {
		t.Errorf("%v", err)
	}
}

func TestSendRefusesWhatDoesNotFit(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, nil)
		_, h := b.invite()
		s := a.dial(h)
		if err := s.Send(&handshake.Accept{Lanes: []handshake.Lane{{QPN: 1 << 24, Kind: handshake.LaneVerbs}}}); err == nil || !strings.Contains(err.Error(), "24 bits") {
			t.Errorf("Send = %v", err)
		}
		a.send(s, &handshake.Connected{Conn: 1})
		if diff := cmp.Diff(conns(1, 1), b.messages(b.first(), 1)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	})
}

func TestBothSidesClose(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		for range 10 {
			a, b := newNode(t, nil), newNode(t, nil)
			_, h := b.invite()
			s := a.dial(h)
			a.send(s, &handshake.Connected{})
			r := b.first()
			var wg sync.WaitGroup
			for _, n := range []*node{a, b} {
				wg.Go(func() {
					if err := n.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if err := errors.Join(a.died(s), b.died(r)); err != nil {
				t.Errorf("Dead: %v", err)
			}
		}
	})
}

// TestSlowReader: messages wait while a Message function is slow, and Send does not block.
func TestSlowReader(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		const count = 5000
		open := make(chan struct{})
		var got []handshake.Message
		all := make(chan struct{})
		a, b := newNode(t, nil), newNode(t, func(c *Config) {
			c.Message = func(_ *Session, m handshake.Message) {
				<-open
				if got = append(got, m); len(got) == count {
					close(all)
				}
			}
		})
		_, h := b.invite()
		s := a.dial(h)
		for _, m := range conns(1, count) {
			a.send(s, m)
		}
		close(open)
		select {
		case <-all:
		case <-time.After(hang):
			t.Fatal("messages are missing")
		}
		if diff := cmp.Diff(conns(1, count), got); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	})
}

func TestNewRefusesUnreachableNodes(t *testing.T) {
	for _, addrs := range [][]netip.Addr{nil, {netip.MustParseAddr("fe80::1"), netip.IPv4Unspecified()}} {
		if _, err := New(Config{Addrs: addrs}); err == nil || !strings.Contains(err.Error(), "NCCL_SOCKET_IFNAME") {
			t.Errorf("New with addresses %v: %v", addrs, err)
		}
	}
}

func TestReachable(t *testing.T) {
	parse := func(s ...string) (out []netip.Addr) {
		for _, a := range s {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	tests := []struct {
		name     string
		in, want []netip.Addr
	}{
		{"order is kept", parse("10.0.0.2", "192.168.1.1", "2001:db8::1"), parse("10.0.0.2", "192.168.1.1", "2001:db8::1")},
		{"link-local and loopback", parse("fe80::1%lo", "127.0.0.1", "10.0.0.1", "::1"), parse("10.0.0.1")},
		{"loopback alone", parse("fe80::1", "127.0.0.1"), parse("127.0.0.1")},
		{"IPv4 link-local", parse("169.254.1.2"), parse("169.254.1.2")},
		{"mapped", parse("::ffff:10.0.0.1"), parse("10.0.0.1")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, reachable(tt.in), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}
