package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/accept"
	"ncclmesh/transport/limit"
	"ncclmesh/transport/sock"
)

// stand opens a listener at an address and passes its connections to serve until the test ends.
func stand(t *hosts.Test, at netip.AddrPort, serve func(sock.Conn)) {
	t.Helper()
	ln, err := t.Process("host").Listen(at, "", sock.PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		<-done
	})
}

// local returns a loopback address; the first one is 127.0.0.1.
func local(last byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, last}) }

// at returns a loopback address with the port of n.
func (n *node) at(last byte) netip.AddrPort { return netip.AddrPortFrom(local(last), n.Port()) }

// only binds a node to 127.0.0.1, so that a test may put something else on the same port elsewhere.
func only(c *Config) { c.bind = netip.MustParseAddrPort("127.0.0.1:0") }

// wrongAddresses listens on the addresses from the second on with programs that may answer where a process does not
// listen, and returns the error that Dial must report for each.
func wrongAddresses(t *hosts.Test, b *node) (addrs []netip.Addr, want map[string]string) {
	t.Helper()
	want = make(map[string]string)
	add := func(last byte, says string, serve func(sock.Conn)) {
		to := b.at(last)
		addrs = append(addrs, to.Addr())
		want[to.String()] = says
		if serve != nil {
			stand(t, to, serve)
		}
	}
	write := func(b []byte) func(sock.Conn) {
		return func(c sock.Conn) {
			_, _ = c.Write(b)
			hold(t, c)
		}
	}
	add(2, "connection refused", nil)
	_, challenge := handshake.NewListener(handshake.NewProcessID(nil), nil)
	add(3, "another process answers there", write(challenge))
	add(4, "this is not the plugin's protocol", write([]byte("SSH-2.0-OpenSSH_9.2p1 Debian\r\n")))
	_, other := handshake.NewListener(b.cfg.Process, nil)
	other[2] = 11
	add(5, "protocol version 11 (build "+handshake.Build()+"), this side speaks version 10", write(other))
	add(6, "refused: the process there never opened that listener", func(c sock.Conn) {
		_, challenge := handshake.NewListener(b.cfg.Process, nil)
		_, _ = c.Write(append(challenge, handshake.Reject(handshake.RejectListen)...))
		hold(t, c)
	})
	add(7, "wrong MAC", func(c sock.Conn) {
		defer c.Close()
		x, challenge := handshake.NewListener(b.cfg.Process, nil)
		_, _ = c.Write(challenge)
		raw, err := handshake.ReadHello(c)
		if err != nil {
			return // the dialler has found a better address
		}
		if _, err := x.HearHello(raw); err != nil {
			t.Error(err)
		}
		// It does not have the secret, and answers under another.
		y, challenge := handshake.NewListener(b.cfg.Process, nil)
		d, err := handshake.NewDialler(b.cfg.Process, challenge, nil)
		if err != nil {
			t.Error(err)
			return
		}
		hello, err := d.SayHello([]byte("mine"), &handshake.Hello{})
		if err != nil {
			t.Error(err)
		}
		if _, err := y.HearHello(hello); err != nil {
			t.Error(err)
		}
		if err := y.Verify([]byte("mine")); err != nil {
			t.Error(err)
		}
		welcome, _, err := y.SayWelcome(&handshake.Welcome{Process: b.cfg.Process})
		if err != nil {
			t.Error(err)
		}
		_, _ = c.Write(welcome)
	})
	return addrs, want
}

// hold keeps a connection open until the test ends.
func hold(t *hosts.Test, c sock.Conn) { t.Cleanup(func() { _ = c.Close() }) }

func TestDialFindsTheProcessAmongOthers(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		_, h := b.invite()
		wrong, _ := wrongAddresses(t, b)
		// Two more that never end by themselves.
		stand(t, b.at(8), func(c sock.Conn) { hold(t, c) })
		stand(t, b.at(9), func(c sock.Conn) { _ = c.Close() })
		h.Addrs = append(append(wrong, b.at(8).Addr(), b.at(9).Addr()), loopback)
		s := a.dial(h)
		if got := s.RemoteAddr(); got != b.at(1) {
			t.Errorf("connected to %v, want %v", got, b.at(1))
		}
		a.send(s, &handshake.Connected{})
		b.first()
	})
}

func TestDialSaysWhatEveryAddressSaid(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, func(c *Config) { c.Hostname = "spark-a" }), newNode(t, only)
		_, h := b.invite()
		wrong, want := wrongAddresses(t, b)
		h.Addrs = wrong
		_, err := a.Dial(context.Background(), h)
		var peer *PeerError
		if !errors.As(err, &peer) || !peer.Dead {
			t.Fatalf("error = %#v, want a PeerError of a dead peer", err)
		}
		got := make(map[string]string)
		for _, try := range peer.Tries {
			text := describeError(try.Err)
			if want := want[try.Addr.String()]; strings.Contains(text, want) {
				text = want
			}
			got[try.Addr.String()] = text
			if !strings.Contains(err.Error(), try.Addr.String()) {
				t.Errorf("the error does not name %v: %v", try.Addr, err)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		for _, want := range []string{"node spark-a", h.Process.String()[:8]} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.Is(err, handshake.ErrOtherProcess) || !errors.Is(err, handshake.ErrMAC) {
			t.Errorf("the error does not wrap what the addresses said: %v", err)
		}
		if got := a.Stats(); got.Sessions != 0 || got.Dialled != 0 {
			t.Errorf("stats: %+v", got)
		}
	})
}

// TestDialTakesARejectionForAnAnswer: a rejection by the process is final, even if another address is silent.
func TestDialTakesARejectionForAnAnswer(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, func(c *Config) { c.LaneWait = 2 * hang }), newNode(t, only)
		l, h := b.invite()
		l.Close()
		stand(t, b.at(8), func(c sock.Conn) { hold(t, c) })
		h.Addrs = []netip.Addr{b.at(8).Addr(), loopback}
		_, err := a.Dial(context.Background(), h)
		var peer *PeerError
		var reject *handshake.RejectError
		if !errors.As(err, &peer) || !peer.Dead || !errors.As(err, &reject) || reject.Code != handshake.RejectClosed {
			t.Errorf("error = %v, want a PeerError with a Reject", err)
		}
	})
}

// TestDialSilence: addresses that never answer are tried again until LaneWait, or until the caller's context ends.
func TestDialSilence(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		_, h := b.invite()
		stand(t, b.at(8), func(c sock.Conn) { hold(t, c) })
		h.Addrs = []netip.Addr{b.at(8).Addr()}
		begun := time.Now()
		_, err := a.Dial(context.Background(), h)
		var peer *PeerError
		if !errors.As(err, &peer) || peer.Dead || !strings.Contains(err.Error(), b.at(8).String()+": no answer") {
			t.Errorf("error = %v, want a PeerError of a silent peer", err)
		}
		if took := time.Since(begun); took != laneWait {
			t.Errorf("it was given up after %v, want %v", took, laneWait)
		}

		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := a.Dial(ctx, h); !strings.Contains(err.Error(), "context canceled") {
			t.Errorf("error = %v, want that the caller gave up", err)
		}
	})
}

func TestCloseEndsADial(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		_, h := b.invite()
		dialled := make(chan struct{}, 16)
		stand(t, b.at(8), func(c sock.Conn) { hold(t, c); dialled <- struct{}{} })
		h.Addrs = []netip.Addr{b.at(8).Addr()}
		failed := make(chan error)
		go func() {
			_, err := a.Dial(context.Background(), h)
			failed <- err
		}()
		<-dialled
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		select {
		case err := <-failed:
			if err == nil {
				t.Error("Dial succeeded")
			}
		case <-time.After(hang):
			t.Error("Dial outlives Close")
		}
	})
}

// TestAddressOffTheMeshIsPreferred: both addresses answer, the one on the mesh first.
func TestAddressOffTheMeshIsPreferred(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		six := netip.IPv6Loopback()
		for _, mesh := range []netip.Addr{loopback, six} {
			a, b := newNode(t, func(c *Config) {
				c.Mesh = func(a netip.Addr) bool { return a == mesh }
			}), newNode(t, func(c *Config) { c.Addrs = []netip.Addr{loopback, six} })
			_, h := b.invite()
			h.Addrs = []netip.Addr{loopback, six}
			if mesh == six {
				h.Addrs = []netip.Addr{six, loopback}
			}
			if got := a.dial(h).RemoteAddr().Addr(); got == mesh {
				t.Errorf("connected over the mesh address %v", got)
			}
			h.Addrs = []netip.Addr{mesh}
			c := newNode(t, func(c *Config) { c.Mesh = func(netip.Addr) bool { return true } })
			if got := c.dial(h).RemoteAddr().Addr(); got != mesh {
				t.Errorf("connected to %v, but only %v was offered", got, mesh)
			}
		}
	})
}

// TestPeerErrorSaysWhatHappened: each cause has one sentence, and an error about a peer that refuses does not claim
// that it has ended.
func TestPeerErrorSaysWhatHappened(t *testing.T) {
	const ended, elsewhere, check = "the process has ended, or a firewall", "these addresses belong to another machine", "check that both nodes are up"
	tests := []struct {
		name string
		err  error
		dead bool
		want string
	}{
		{"refused", syscall.ECONNREFUSED, true, ended},
		{"another process", handshake.ErrOtherProcess, true, elsewhere},
		{"silent", context.DeadlineExceeded, false, check},
		{"closed listen", &handshake.RejectError{Code: handshake.RejectClosed}, true, "refused: the listener has been closed there"},
		{"unknown listen", &handshake.RejectError{Code: handshake.RejectListen}, true, "refused: the process there never opened that listener"},
		{"wrong secret", &handshake.RejectError{Code: handshake.RejectSecret}, true, "refused: the listener there has another secret"},
		{"another version", &handshake.VersionError{Theirs: 1}, true, "an older build"},
	}
	endings := []string{ended, elsewhere, check, "has been closed", "never made", "another secret"}
	for _, tt := range tests {
		e := &PeerError{Local: "a", Peer: "b", Dead: tt.dead, Tries: []Try{{Err: tt.err}}}
		if !strings.Contains(e.Error(), tt.want) {
			t.Errorf("%s: %q does not say %q", tt.name, e.Error(), tt.want)
		}
		for _, other := range endings {
			if other != tt.want && !strings.Contains(tt.want, other) && strings.Contains(e.Error(), other) {
				t.Errorf("%s: %q also says %q", tt.name, e.Error(), other)
			}
		}
	}
}

// scarce leaves a node's process no free descriptors, until the returned function is called.
func (n *node) scarce() (enough func()) {
	n.process.LimitDescriptors(0) // what is open stays
	return func() { n.process.LimitDescriptors(1 << 20) }
}

// TestNoDescriptorIsNotThePeersFault: a lack of descriptors while a session is dialled or resumed is temporary and not
// attributed to the peer.
func TestNoDescriptorIsNotThePeersFault(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		short := func(c *Config) { c.LaneWait = 2 * time.Second } // more than a listener pauses that was out of descriptors
		a, b := newNode(t, short), newNode(t, nil)
		_, h := b.invite()
		check := func(what string, err error) {
			t.Helper()
			var peer *PeerError
			if err == nil || errors.As(err, &peer) || !limit.IsOwn(err) || !strings.Contains(err.Error(), "(ulimit -n)") {
				t.Errorf("%s: %v, want one that names this node's limit and no PeerError", what, err)
			}
		}
		enough := a.scarce()
		_, err := a.Dial(context.Background(), h)
		enough()
		check("Dial", err)

		enough = a.scarce()
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err = a.Dial(soon, h)
		cancel()
		enough()
		check("Dial until a deadline", err)

		s := a.dial(h)
		a.send(s, &handshake.Connected{Conn: 1})
		b.first()
		enough = a.scarce()
		s.Redial(errors.New("reset"))
		err = a.died(s)
		enough()
		check("Dead", err)
	})
}

// TestAcceptWithoutDescriptor: the log names the limit and no address, because the peer is not known.
func TestAcceptWithoutDescriptor(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newNode(t, nil)
		_, h := b.invite()
		enough := b.scarce()
		c, err := t.Process("host").Dial(context.Background(), sock.From{}, netip.AddrPortFrom(loopback, h.Port))
		if err != nil {
			t.Fatal(err)
		}
		hold(t, c)
		t.Until("the refusal", func() bool { return b.Stats().Refused[accept.AcceptFailed] > 0 })
		enough()
		t.Until("the line", func() bool { return strings.Contains(b.logged(), accept.AcceptFailed) })
		for line := range strings.Lines(b.logged()) {
			if strings.Contains(line, accept.AcceptFailed) && (strings.Contains(line, "from=") || !strings.Contains(line, "(ulimit -n)")) {
				t.Errorf("the log says %q, want the limit and no address", line)
			}
		}
	})
}

func TestSilent(t *testing.T) {
	const refused, unreachable, unanswered = syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.ETIMEDOUT
	tests := []struct {
		name  string
		tries []error
		want  bool
	}{
		{"no address", nil, false},
		{"all refuse", []error{refused, refused}, false},
		{"one does not answer", []error{refused, unanswered}, true},
		{"one refuses, to the others there is no way", []error{unreachable, refused, unreachable}, false},
		{"no way to any", []error{unreachable, unreachable}, true},
		{"each its own", []error{refused, unreachable, unanswered}, true},
	}
	for _, tt := range tests {
		var tries []Try
		for _, err := range tt.tries {
			tries = append(tries, Try{Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)}})
		}
		if got := silent(tries); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestRefusalOverVersionsNamesBothBuilds: in the dialler's error, and in the listener's log.
func TestRefusalOverVersionsNamesBothBuilds(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		_, h := b.invite()
		later := func(raw []byte) []byte { // as the next version would say it
			raw[2]++
			copy(raw[8:32], append([]byte("2.0+gfeedbee"), make([]byte, 24)...))
			return raw
		}
		heard := make(chan error, 16)
		stand(t, b.at(8), func(c sock.Conn) {
			defer c.Close()
			_, challenge := handshake.NewListener(b.cfg.Process, nil)
			_, _ = c.Write(later(challenge))
			_, err := handshake.ReadHello(bytes.NewReader(later(slurp(c))))
			heard <- err
		})
		h.Addrs = []netip.Addr{b.at(8).Addr()}
		_, err := a.Dial(context.Background(), h)
		want := "(build 2.0+gfeedbee), this side speaks version " + strconv.Itoa(handshake.Version) + " (build " + handshake.Build() + ")"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Dial: %v, want %q", err, want)
		}
		if err := <-heard; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("what the dialler said reads as %v", err)
		}

		v := visit(t, b, 1)
		v.say(later(handshake.Reject(handshake.RejectVersion)))
		v.rejected(handshake.RejectVersion)
		if !strings.Contains(b.logged(), want) {
			t.Errorf("the listener's log does not say %q", want)
		}
	})
}

// slurp reads everything from a connection until it ends.
func slurp(c sock.Conn) []byte {
	b, _ := io.ReadAll(c)
	return b
}
