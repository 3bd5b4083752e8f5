package control

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/accept"
	"ncclmesh/transport/sock"
)

// visitor is a hand-made connection to a node.
type visitor struct {
	sock.Conn
	t         *hosts.Test
	in        *bufio.Reader
	challenge []byte
	x         *handshake.Exchange
}

// visit connects from local(last) and reads the Challenge.
func visit(t *hosts.Test, n *node, last byte) *visitor {
	t.Helper()
	return visitFrom(t, n, sock.From{Addr: local(last)})
}

func visitFrom(t *hosts.Test, n *node, from sock.From) *visitor {
	t.Helper()
	c, err := t.Process("host").Dial(context.Background(), from, n.at(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(hang))
	v := &visitor{Conn: c, t: t, in: bufio.NewReader(c)}
	if v.challenge, err = handshake.ReadChallenge(v.in); err != nil {
		t.Fatal(err)
	}
	if v.x, err = handshake.NewDialler(n.cfg.Process, v.challenge, nil); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *visitor) hello(secret []byte, h *handshake.Hello) []byte {
	v.t.Helper()
	raw, err := v.x.SayHello(secret, h)
	if err != nil {
		v.t.Fatal(err)
	}
	return raw
}

func (v *visitor) say(b []byte) {
	v.t.Helper()
	if _, err := v.Write(b); err != nil {
		v.t.Fatal(err)
	}
}

// rejected reads the node's reply and expects it to close the connection: after a Reject with this code, or without a
// reply.
func (v *visitor) rejected(code handshake.RejectCode) {
	v.t.Helper()
	raw, err := handshake.ReadWelcome(v.in)
	if code == 0 {
		if err == nil {
			v.t.Errorf("the node said %x, want nothing", raw)
		}
		return
	}
	if err != nil {
		v.t.Errorf("the node said nothing, want a Reject: %v", err)
		return
	}
	_, _, err = v.x.HearWelcome(raw)
	var reject *handshake.RejectError
	if !errors.As(err, &reject) || reject.Code != code {
		v.t.Errorf("the node said %v, want a Reject with %v", err, code)
	}
	if _, err := v.in.ReadByte(); err != io.EOF {
		v.t.Errorf("after the Reject: %v, want EOF", err)
	}
}

// TestHostileBytes sends the listener everything that it must refuse, while a session is in use.
func TestHostileBytes(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newNode(t, nil)
		a := newNode(t, nil)
		_, h := b.invite()
		s := a.dial(h)
		a.send(s, &handshake.Connected{Conn: 1})
		r := b.first()
		before := s.LocalAddr()
		another, _ := b.invite() // what an unauthenticated process may know, but for the secret

		random := rand.New(rand.NewSource(1))
		noise := make([]byte, 70000)
		random.Read(noise)
		hello := func(change func(*handshake.Hello)) *handshake.Hello {
			h := &handshake.Hello{Process: handshake.ProcessID{9}, Hostname: "intruder", Port: 1, Listen: another.ID}
			if change != nil {
				change(h)
			}
			return h
		}
		resume := func(h *handshake.Hello) { h.Session = s.ID() }

		tests := []struct {
			name   string
			reason string // "" when it is nothing worth a line
			reject handshake.RejectCode
			do     func(v *visitor)
		}{
			{"nothing, then the end", "", 0, func(v *visitor) { _ = v.CloseWrite() }},
			{"noise", reasonMalformed, 0, func(v *visitor) { _, _ = v.Write(noise) }},
			{"a line of HTTP", reasonMalformed, 0, func(v *visitor) { v.say([]byte("GET / HTTP/1.1\r\n\r\n")) }},
			{"part of a header", accept.Truncated, 0, func(v *visitor) { v.say(v.hello(nil, hello(nil))[:5]); _ = v.CloseWrite() }},
			{"part of a hello", accept.Truncated, 0, func(v *visitor) { v.say(v.hello(nil, hello(nil))[:50]); _ = v.CloseWrite() }},
			{"a hello too long", reasonMalformed, 0, func(v *visitor) { v.say([]byte{0x4e, 0x4d, handshake.Version, 0x82, 0, 0, 0xc0, 1}) }},
			{"an absurd length", reasonMalformed, 0, func(v *visitor) { v.say([]byte{0x4e, 0x4d, handshake.Version, 0x82, 0xff, 0xff, 0xff, 0xff}) }},
			{"its own challenge", reasonMalformed, 0, func(v *visitor) { v.say(v.challenge) }},
			{"another version", reasonVersion, handshake.RejectVersion, func(v *visitor) {
				raw := v.hello(another.Secret[:], hello(nil))
				raw[2] = handshake.Version + 1
				v.say(raw[:32])
			}},
			{"no secret", reasonSecret, handshake.RejectSecret, func(v *visitor) { v.say(v.hello(nil, hello(nil))) }},
			{"the secret of another listen", reasonSecret, handshake.RejectSecret, func(v *visitor) { v.say(v.hello(h.Secret[:], hello(nil))) }},
			{"an unknown listen", reasonListen, handshake.RejectListen, func(v *visitor) {
				v.say(v.hello(another.Secret[:], hello(func(h *handshake.Hello) { h.Listen++ })))
			}},
			{"a closed listen", reasonClosed, handshake.RejectClosed, func(v *visitor) {
				l, _ := b.invite()
				l.Close()
				v.say(v.hello(l.Secret[:], hello(func(h *handshake.Hello) { h.Listen = l.ID })))
			}},
			{"a repeated hello", reasonSecret, handshake.RejectSecret, func(v *visitor) {
				other := visit(v.t, b, 1)
				v.say(other.hello(another.Secret[:], hello(nil)))
				_ = other.Close()
			}},
			{"a hello with a bit changed", reasonSecret, handshake.RejectSecret, func(v *visitor) {
				raw := v.hello(another.Secret[:], hello(nil))
				raw[50] ^= 1
				v.say(raw)
			}},
			{"an unknown session", reasonSession, handshake.RejectSession, func(v *visitor) {
				v.say(v.hello(another.Secret[:], hello(func(h *handshake.Hello) { h.Session = handshake.SessionID{1} })))
			}},
			{"a live session without its key", reasonSecret, 0, func(v *visitor) { v.say(v.hello(another.Secret[:], hello(resume))) }},
			{"a live session with its listen's secret", reasonSecret, 0, func(v *visitor) { v.say(v.hello(h.Secret[:], hello(resume))) }},
			{"the other end of a live session", reasonSession, handshake.RejectSession, func(v *visitor) {
				v.say(v.hello(nil, hello(func(h *handshake.Hello) { resume(h); h.Accepted = true })))
			}},
		}
		want := make(map[string]uint64)
		lines := make(map[string]bool)
		for i, tt := range tests {
			t.Run(tt.name, func(t *hosts.Test) {
				v := visit(t, b, 1)
				tt.do(v)
				v.rejected(tt.reject)
			})
			if tt.reason != "" {
				want[tt.reason]++
				lines[tt.reason] = true
			}
			a.send(s, &handshake.Connected{Conn: uint32(i) + 2})
		}
		a.send(s, &handshake.Bye{Conn: 1})

		got := b.messages(r, len(tests)+2)
		if diff := cmp.Diff(append(conns(1, uint32(len(tests))+1), &handshake.Bye{Conn: 1}), got); diff != "" {
			t.Errorf("messages of the session (-want +got):\n%s", diff)
		}
		t.Until("the unauthenticated connections to be gone", func() bool { return b.Stats().Pending == 0 })
		st := b.Stats()
		if diff := cmp.Diff(want, st.Refused); diff != "" {
			t.Errorf("refused (-want +got):\n%s", diff)
		}
		if st.Cut != 0 || st.Resumed != 0 || st.Accepted != 1 || st.Sessions != 1 || st.Listens != 2 {
			t.Errorf("stats: %+v", st)
		}
		if s.LocalAddr() != before {
			t.Error("the session was moved to another link")
		}
		log := b.logged()
		if got := strings.Count(log, "level=WARN"); got != len(lines) {
			t.Errorf("%d warnings for %d kinds of refusals", got, len(lines))
		}
		for reason := range lines {
			if strings.Count(log, `reason="`+reason+`"`) != 1 {
				t.Errorf("reason %q is not logged once", reason)
			}
		}
	})
}

func TestSlowHandshakes(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newNode(t, nil)
		silent, drip := visit(t, b, 1), visit(t, b, 1)
		raw := drip.hello(nil, &handshake.Hello{})
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() { // a byte now and then does not buy time
			defer close(done)
			for _, c := range raw {
				if _, err := drip.Write([]byte{c}); err != nil {
					return
				}
				select {
				case <-stop:
					return
				case <-time.After(250 * time.Millisecond):
				}
			}
		}()
		silent.rejected(0)
		drip.rejected(0)
		close(stop)
		<-done
		t.Until("both to be counted", func() bool { return b.Stats().Refused[accept.TimedOut] == 2 })
		if got := b.Stats().Pending; got != 0 {
			t.Errorf("%d unauthenticated connections are left", got)
		}
	})
}

// TestSharedAddress: silent connections from a peer's own address, more than an address may have, do not keep the peer
// out, and its attempt does not evict itself.
func TestSharedAddress(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, nil)
		for range maxPerSource + 4 {
			visit(t, b, 1)
		}
		_, h := b.invite()
		s := a.dial(h)
		a.send(s, &handshake.Connected{Conn: 1})
		if diff := cmp.Diff(conns(1, 1), b.messages(b.first(), 1)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		t.Until("some to be counted", func() bool { return b.Stats().Refused[accept.TooManyFromSource] >= 4 })
		if got := b.Stats().Pending; got > maxPerSource {
			t.Errorf("%d connections of one address are pending", got)
		}
	})
}

// TestManyUnauthenticated: a legitimate peer gets in although all places are taken.
func TestManyUnauthenticated(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newNode(t, nil)
		for i := range maxPending {
			visit(t, b, 100+byte(i/maxPerSource))
		}
		if got := b.Stats().Pending; got != maxPending {
			t.Fatalf("%d connections are pending, want %d", got, maxPending)
		}
		a := newNode(t, nil)
		_, h := b.invite()
		a.dial(h)
		t.Until("one to be counted", func() bool { return b.Stats().Refused[accept.TooMany] > 0 })
	})
}

// flood opens connections to an address from 127.0.0.1, four each 100 us, sends nothing on them and keeps them until
// the other end closes them. It returns a function that returns how many there were so far.
func flood(t *hosts.Test, to netip.AddrPort) (opened func() int64) {
	t.Helper()
	var n atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	places := make(chan struct{}, 4*maxPerSource)
	p := t.Process("host")
	for range 4 {
		wg.Go(func() {
			for ; ctx.Err() == nil; p.Clock().Sleep(100 * time.Microsecond) {
				c, err := p.Dial(ctx, sock.From{Addr: loopback}, to)
				if err != nil {
					continue // the listener's queue is full, or it is over
				}
				n.Add(1)
				places <- struct{}{}
				wg.Go(func() {
					stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
					_, _ = io.Copy(io.Discard, c)
					stop()
					_ = c.Reset()
					<-places
				})
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return n.Load
}

// TestFlood: a link that is reset while many connections arrive on both sides from their own address is replaced every
// time.
func TestFlood(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, nil)
		_, h := b.invite()
		s := a.dial(h)
		a.send(s, &handshake.Connected{Conn: 1})
		r := b.first()
		toA, toB := flood(t, a.at(1)), flood(t, b.at(1)) // at both, for either may dial
		opened := func() int64 { return toA() + toB() }
		t.Until("the crowds", func() bool { return a.Stats().Pending >= maxPerSource && b.Stats().Pending >= maxPerSource })
		const resets = 10
		before := opened()
		for i := range uint32(resets) {
			s.Redial(errors.New("reset"))
			a.send(s, &handshake.Connected{Conn: i + 2})
			b.send(r, &handshake.Connected{Conn: i + 1})
			b.messages(r, int(i)+2)
			a.messages(s, int(i)+1)
		}
		if survived := opened() - before; survived < resets {
			t.Errorf("only %d connections came meanwhile", survived)
		}
		if diff := cmp.Diff(conns(1, resets+1), b.messages(r, resets+1)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if got := a.Stats(); got.Resumed < resets || got.Dead != 0 {
			t.Errorf("stats: %+v", got)
		}
	})
}

// TestOvertakenHello: a dialler that gave up a Hello and made its session over another address keeps that session.
func TestOvertakenHello(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, nil)
		l, h := b.invite()
		v := visit(t, b, 1)
		v.say(v.hello(l.Secret[:], &handshake.Hello{Process: a.cfg.Process, Port: a.Port(), Listen: l.ID}))
		raw, err := handshake.ReadWelcome(v.in)
		if err != nil {
			t.Fatal(err)
		}
		s := a.dial(h)
		a.send(s, &handshake.Connected{Conn: 1})
		r := b.first()
		if _, _, err := v.x.HearWelcome(raw); err != nil {
			t.Fatal(err)
		}
		_ = v.Close()
		t.Until("the connection to be gone", func() bool { return b.Stats().Pending == 0 })
		a.send(s, &handshake.Connected{Conn: 2})
		if diff := cmp.Diff(conns(1, 2), b.messages(r, 2)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if got := b.Stats(); got.Accepted != 1 || got.Cut != 0 {
			t.Errorf("stats: %+v", got)
		}
	})
}

// peerByHand makes a session with b and returns its link.
func peerByHand(t *hosts.Test, b *node, process handshake.ProcessID) (*visitor, handshake.Keys) {
	t.Helper()
	l, _ := b.invite()
	v := visit(t, b, 1)
	v.say(v.hello(l.Secret[:], &handshake.Hello{Process: process, Hostname: "by hand", Listen: l.ID}))
	raw, err := handshake.ReadWelcome(v.in)
	if err != nil {
		t.Fatal(err)
	}
	_, keys, err := v.x.HearWelcome(raw)
	if err != nil {
		t.Fatal(err)
	}
	return v, keys
}

// TestPeerThatBreaksTheProtocol: a protocol violation of an authenticated peer ends its session with an error that
// names it.
func TestPeerThatBreaksTheProtocol(t *testing.T) {
	ready, err := handshake.AppendMessage(nil, &handshake.Connected{Conn: 1})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		f    handshake.Frame
		want string
	}{
		{"a gap", handshake.Frame{Type: handshake.TypeConnected, Number: 3, Body: ready}, "message 3 follows message 1"},
		{"a message twice", handshake.Frame{Type: handshake.TypeConnected, Number: 1, Body: ready}, "message 1 follows message 1"},
		{"an ack of what was not sent", handshake.Frame{Type: handshake.TypeConnected, Number: 2, Ack: 1, Body: ready}, "acknowledges message 1, the last one sent is 0"},
		{"an unknown type", handshake.Frame{Type: 99, Number: 2}, "message type 99 is unknown"},
		{"a malformed body", handshake.Frame{Type: handshake.TypeConnected, Number: 2, Body: ready[1:]}, "Connected: message ends too early"},
		{"an ack that skips", handshake.Frame{Type: handshake.TypeAck, Number: 5}, "the peer has sent 5 messages, 1 have arrived"},
		{"an ack with a body", handshake.Frame{Type: handshake.TypeAck, Number: 1, Body: ready}, "protocol error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				b := newNode(t, nil)
				v, keys := peerByHand(t, b, handshake.ProcessID{9})
				seal := handshake.NewSealer(keys.Send)
				v.say(seal.Append(seal.Append(nil, &handshake.Frame{Type: handshake.TypeConnected, Number: 1, Body: ready}), &tt.f))
				r := b.first()
				if err := b.died(r); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Dead: %v, want one that says %q", err, tt.want)
				}
				if diff := cmp.Diff(conns(1, 1), b.messages(r, 1)); diff != "" {
					t.Errorf("messages before (-want +got):\n%s", diff)
				}
				if err := r.Send(&handshake.Bye{Conn: 1}); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Send: %v", err)
				}
			})
		})
	}
}

// TestClaimedProcess: a second session whose peer claims to be the process of the first has no effect on the first,
// neither by its messages nor by its end.
func TestClaimedProcess(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, func(c *Config) { c.LaneWait = 500 * time.Millisecond })
		_, h := b.invite()
		s := a.dial(h)
		a.send(s, &handshake.Connected{Conn: 1})
		honest := b.first()

		v, keys := peerByHand(t, b, a.cfg.Process)
		ready, err := handshake.AppendMessage(nil, &handshake.Connected{Conn: 9})
		if err != nil {
			t.Fatal(err)
		}
		v.say(handshake.NewSealer(keys.Send).Append(nil, &handshake.Frame{Type: handshake.TypeConnected, Number: 1, Body: ready}))
		b.until("its message", func() bool { return len(b.seen) == 2 })
		b.mu.Lock()
		claimed := b.seen[1]
		b.mu.Unlock()
		for i := range uint32(2) {
			a.send(s, &handshake.Connected{Conn: i + 2})
			b.send(honest, &handshake.Connected{Conn: i + 1})
			b.messages(honest, int(i)+2)
			a.messages(s, int(i)+1)
			if i == 0 { // what the liar does not answer for is not the other's end either
				_ = v.Close()
				if err := b.died(claimed); err == nil {
					t.Error("the session of the liar ended in good order")
				}
			}
		}
		if got := b.Stats(); got.Sessions != 1 || got.Cut != 1 || !honest.Alive() {
			t.Errorf("stats: %+v", got)
		}
		if diff := cmp.Diff(conns(1, 3), b.messages(honest, 3)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	})
}

// TestDiallerStartsAnew: a process that has lost its session, while its peer still considers the link alive, gets
// another one at once.
func TestDiallerStartsAnew(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newNode(t, nil)
		ready, err := handshake.AppendMessage(nil, &handshake.Connected{Conn: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			v, keys := peerByHand(t, b, handshake.ProcessID{9})
			v.say(handshake.NewSealer(keys.Send).Append(nil, &handshake.Frame{Type: handshake.TypeConnected, Number: 1, Body: ready}))
			b.until("its message", func() bool { return len(b.seen) == i+1 && b.seen[i].ID() == keys.Session })
		}
		if got := b.Stats(); got.Sessions != 2 || got.Accepted != 2 {
			t.Errorf("stats: %+v", got)
		}
	})
}

// TestForgedFrames: bytes injected into a live TCP connection end the link, not the session.
func TestForgedFrames(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		a.port = 0 // so that the other side cannot dial back past the proxy
		p := newProxy(t, b)
		_, h := b.invite()
		h.Addrs = []netip.Addr{p.addr.Addr()}
		s := a.dial(h)
		a.send(s, &handshake.Connected{Conn: 1})
		r := b.first()
		forged := handshake.NewSealer(handshake.Key{}).Append(nil, &handshake.Frame{Type: handshake.TypeBye, Number: 2, Body: make([]byte, 4)})
		for i, b2 := range [][]byte{forged, bytes.Repeat([]byte{0xff}, 100)} {
			cut := a.Stats().Cut
			t.Until("the link to break", func() bool {
				p.inject(b2) // more than once: the first may meet a link that is just being replaced
				return a.Stats().Cut > cut
			})
			a.send(s, &handshake.Connected{Conn: uint32(i) + 2})
			b.send(r, &handshake.Connected{Conn: uint32(i) + 1})
		}
		if diff := cmp.Diff(conns(1, 3), b.messages(r, 3)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(conns(1, 2), a.messages(s, 2)); diff != "" {
			t.Errorf("messages back (-want +got):\n%s", diff)
		}
		if b.Stats().Refused[reasonFrame] == 0 {
			t.Error("no frame with a wrong MAC was counted")
		}
		if _, err := b.Dial(context.Background(), handshake.Handle{}); err == nil {
			t.Error("dialled an empty handle")
		}
	})
}
