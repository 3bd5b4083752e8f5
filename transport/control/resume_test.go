package control

import (
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
	"ncclmesh/transport/sock"
)

// proxy forwards connections between two nodes, at the second address and the port of the node that it leads to. It
// also dials from that address, so that with one proxy in front of each node, the nodes know only the proxies'
// addresses.
type proxy struct {
	t       *hosts.Test
	process *hosts.Process
	ln      sock.Listener
	addr    netip.AddrPort
	to      netip.AddrPort
	wg      sync.WaitGroup // of copying goroutines

	served chan struct{}

	mu     sync.Mutex
	silent bool // new connections are taken and forgotten
	deaf   int  // so many new connections are cut when the dialler speaks
	pairs  map[sock.Conn]sock.Conn
}

func newProxy(t *hosts.Test, n *node) *proxy {
	t.Helper()
	p := &proxy{t: t, process: t.Process("host"), addr: n.at(2), to: n.at(1), pairs: make(map[sock.Conn]sock.Conn)}
	var err error
	if p.ln, err = p.process.Listen(p.addr, "", sock.PortRange{}); err != nil {
		t.Fatal(err)
	}
	p.served = make(chan struct{})
	go p.serve()
	t.Cleanup(p.close)
	return p
}

func (p *proxy) serve() {
	defer close(p.served)
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		silent, deaf := p.silent, p.deaf > 0
		if deaf {
			p.deaf--
		}
		p.mu.Unlock()
		if silent {
			p.add(in, nil)
			continue
		}
		out, err := p.process.Dial(context.Background(), sock.From{Addr: p.addr.Addr()}, p.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.add(in, out)
		if deaf {
			p.wg.Go(func() { _, _ = io.Copy(in, out) })
			p.wg.Go(func() {
				_, _ = in.Read(make([]byte, 1))
				_, _ = in.Close(), out.Close()
			})
			continue
		}
		for _, d := range [][2]sock.Conn{{in, out}, {out, in}} {
			p.wg.Go(func() {
				_, _ = io.Copy(d[0], d[1])
				_ = d[0].CloseWrite()
			})
		}
	}
}

func (p *proxy) add(in, out sock.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairs[in] = out
}

// cut breaks every connection, with RST or FIN.
func (p *proxy) cut(rst bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for in, out := range p.pairs {
		for _, c := range []sock.Conn{in, out} {
			switch {
			case c == nil:
			case rst:
				_ = c.Reset()
			default:
				_ = c.Close()
			}
		}
	}
	clear(p.pairs)
}

// inject writes to the node that was dialled.
func (p *proxy) inject(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, out := range p.pairs {
		_, _ = out.Write(b)
	}
}

// stall makes the proxy accept connections and forward nothing.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

// resume makes the proxy forward again.
func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = false
}

func (p *proxy) close() {
	_ = p.ln.Close()
	<-p.served
	p.cut(true)
	p.wg.Wait()
}

// through makes a session from a to b over a proxy; others are further addresses that a knows.
func through(t *hosts.Test, a, b *node, p *proxy, others ...netip.Addr) (s, r *Session) {
	t.Helper()
	_, h := b.invite()
	h.Addrs = []netip.Addr{p.addr.Addr()}
	s = a.dial(h)
	for _, o := range others {
		s.addAddress(o, h.Port, false)
	}
	a.send(s, &handshake.Connected{Conn: 1})
	r = b.first()
	b.send(r, &handshake.Connected{Conn: 1})
	a.messages(s, 1)
	return s, r
}

// TestResume cuts the link repeatedly during traffic in both directions: every message arrives once, in order.
func TestResume(t *testing.T) {
	tests := []struct {
		name  string
		scale float64
	}{
		{"the dialling side first", 1},
		{"both sides at once", 0.02}, // the other side hardly waits
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				change := func(c *Config) {
					c.Clock = c.Clock.WithScale(tt.scale)
					c.LaneWait = time.Duration(float64(hang) / tt.scale)
					c.Addrs = []netip.Addr{local(2)}
					only(c)
				}
				a, b := newNode(t, change), newNode(t, change)
				p, back := newProxy(t, b), newProxy(t, a)
				s, r := through(t, a, b, p)
				random := rand.New(rand.NewSource(2))
				const count = 2000
				for i := uint32(2); i <= count; i++ {
					a.send(s, &handshake.Connected{Conn: i})
					b.send(r, &handshake.Connected{Conn: i})
					if i%100 == 0 {
						rst := random.Intn(2) == 0
						p.cut(rst)
						back.cut(rst)
						// Wait for one message that must cross the next link, so that links come to work.
						if random.Intn(2) == 0 {
							b.messages(r, int(i))
						}
					}
				}
				if diff := cmp.Diff(conns(1, count), b.messages(r, count)); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(conns(1, count), a.messages(s, count)); diff != "" {
					t.Errorf("messages back (-want +got):\n%s", diff)
				}
				// Which side notices a cut is open: the other may have the next link by then.
				if x, y := a.Stats(), b.Stats(); x.Cut+y.Cut == 0 || x.Resumed == 0 || !s.Alive() || !r.Alive() {
					t.Errorf("stats: %+v, %+v", x, y)
				}
				// The end is orderly, whatever the links went through.
				if err := a.Close(); err != nil {
					t.Error(err)
				}
				back.close() // refuses, as a does now
				if err := errors.Join(a.died(s), b.died(r)); err != nil {
					t.Errorf("Dead: %v", err)
				}
			})
		})
	}
}

// TestResumeOverAnotherAddress: the address in use is gone, another one leads to the same process.
func TestResumeOverAnotherAddress(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		p := newProxy(t, b)
		s, r := through(t, a, b, p, loopback)
		p.close()
		a.send(s, &handshake.Connected{Conn: 2})
		b.send(r, &handshake.Connected{Conn: 2})
		b.messages(r, 2)
		a.messages(s, 2)
		if !s.Alive() || s.RemoteAddr() == p.addr {
			t.Errorf("session over %v, alive %v", s.RemoteAddr(), s.Alive())
		}
	})
}

// TestLinkBreaksDuringHello: links that break in the middle of the handshake are followed by others.
func TestLinkBreaksDuringHello(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		a.port = 0 // so that the other side does not come back first
		p := newProxy(t, b)
		s, r := through(t, a, b, p)
		p.mu.Lock()
		p.deaf = 3
		p.mu.Unlock()
		p.cut(true)
		a.send(s, &handshake.Connected{Conn: 2})
		if diff := cmp.Diff(conns(1, 2), b.messages(r, 2)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if got := a.Stats(); got.Resumed != 1 || got.Cut != 1 {
			t.Errorf("stats: %+v", got)
		}
		if err := a.Close(); err != nil { // while the proxy still stands
			t.Error(err)
		}
	})
}

// TestResumeRefused: attempts to resume at the wrong time have no effect.
func TestResumeRefused(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, nil)
		_, h := b.invite()
		s := a.dial(h)
		for _, m := range conns(1, 3) {
			a.send(s, m)
		}
		t.Until("the messages to be acknowledged", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.acked == 3 })
		resume := func(n *node, s *Session, received uint64) *visitor {
			v := visit(t, n, 1)
			v.say(v.hello(s.resume[:], &handshake.Hello{Session: s.id, Accepted: s.dialled, Received: received}))
			return v
		}
		crossing := func(on bool) { s.mu.Lock(); defer s.mu.Unlock(); s.helloSent = on }

		// While our own Hello is on its way, the one who dialled the session does not yield to the other.
		crossing(true)
		resume(a, s, 3).rejected(handshake.RejectBusy)
		crossing(false)
		// An attempt from before these messages were acknowledged is out of date.
		resume(a, s, 2).rejected(0)
		if got := a.Stats(); got.Cut != 0 || got.Resumed != 0 || len(got.Refused) != 0 {
			t.Errorf("stats: %+v", got)
		}
	})
}

// nthFrame is the frame of the nth message of conns.
func nthFrame(t *hosts.Test, n uint32) *handshake.Frame {
	t.Helper()
	m := &handshake.Connected{Conn: n}
	body, err := handshake.AppendMessage(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return &handshake.Frame{Type: m.Type(), Number: uint64(n), Body: body}
}

// TestResumedByHand: a valid Hello resumes the session, and the Welcome contains the number of the next message.
func TestResumedByHand(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newNode(t, nil)
		old, keys := peerByHand(t, b, handshake.ProcessID{9})
		old.say(handshake.NewSealer(keys.Send).Append(nil, nthFrame(t, 1)))
		r := b.first()
		resume := func(received uint64) *visitor {
			v := visit(t, b, 1)
			v.say(v.hello(keys.Resume[:], &handshake.Hello{Session: keys.Session, Received: received}))
			return v
		}
		v := resume(0)
		raw, err := handshake.ReadWelcome(v.in)
		if err != nil {
			t.Fatal(err)
		}
		w, again, err := v.x.HearWelcome(raw)
		if err != nil || w.Received != 1 {
			t.Fatalf("Welcome = %+v, %v; want 1 message received", w, err)
		}
		v.say(handshake.NewSealer(again.Send).Append(nil, nthFrame(t, 2)))
		if diff := cmp.Diff(conns(1, 2), b.messages(r, 2)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if got := b.Stats(); got.Resumed != 1 || got.Cut != 0 || got.Accepted != 1 {
			t.Errorf("stats: %+v", got)
		}
		// A peer that claims to have messages that were never sent violates the protocol.
		resume(9)
		if err := b.died(r); err == nil || !strings.Contains(err.Error(), "the peer has 9 messages, 0 were sent") {
			t.Errorf("Dead: %v", err)
		}
	})
}

// TestCountedBeforeHeard: when a message of a new link is delivered, the link has been counted.
func TestCountedBeforeHeard(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newNode(t, nil)
		old, keys := peerByHand(t, b, handshake.ProcessID{9})
		old.say(handshake.NewSealer(keys.Send).Append(nil, nthFrame(t, 1)))
		r := b.first()
		for i := range uint64(200) {
			v := visit(t, b, 1)
			v.say(v.hello(keys.Resume[:], &handshake.Hello{Session: keys.Session}))
			raw, err := handshake.ReadWelcome(v.in)
			if err != nil {
				t.Fatal(err)
			}
			_, again, err := v.x.HearWelcome(raw)
			if err != nil {
				t.Fatal(err)
			}
			v.say(handshake.NewSealer(again.Send).Append(nil, nthFrame(t, uint32(i)+2)))
			b.messages(r, int(i)+2)
			if got := b.Stats().Resumed; got != i+1 {
				t.Fatalf("%d links counted when the first message of number %d had been heard", got, i+1)
			}
		}
	})
}

// TestRedial: the caller knows before TCP that a link has failed.
func TestRedial(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		p := newProxy(t, b)
		s, r := through(t, a, b, p, loopback)
		p.stall() // the link stands, but a new one over this address does not come about
		s.Redial(errors.New("port rocep1s0f0 is down"))
		a.send(s, &handshake.Connected{Conn: 2})
		b.messages(r, 2)
		if s.RemoteAddr() == p.addr || !s.Alive() {
			t.Errorf("session over %v, alive %v", s.RemoteAddr(), s.Alive())
		}
	})
}

// TestPeerDialsBack: the dialling side gets no answers, and the other side resumes the session.
func TestPeerDialsBack(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		p := newProxy(t, b)
		s, r := through(t, a, b, p)
		p.stall()
		p.cut(true)
		a.send(s, &handshake.Connected{Conn: 2})
		b.messages(r, 2)
		if got := r.RemoteAddr().Port(); got != a.Port() {
			t.Errorf("the session goes to port %d, not to the listener's %d", got, a.Port())
		}
		t.Until("both sides to count it", func() bool { return a.Stats().Resumed == 1 && b.Stats().Resumed == 1 })
	})
}

// TestByeOverABrokenLink: Close delivers all sent messages even if the link breaks at that moment.
func TestByeOverABrokenLink(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, b := newNode(t, nil), newNode(t, only)
		p := newProxy(t, b)
		s, r := through(t, a, b, p)
		for _, m := range conns(2, 300) {
			a.send(s, m)
		}
		p.cut(true)
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(conns(1, 300), b.messages(r, 300)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		if err := errors.Join(a.died(s), b.died(r)); err != nil {
			t.Errorf("Dead: %v", err)
		}
	})
}

// stallable is a node, and its session over a proxy with a peer that cannot come back.
func stallable(t *hosts.Test, change func(*Config)) (a *node, s *Session, p *proxy) {
	t.Helper()
	a = newNode(t, change)
	b := newNode(t, func(c *Config) { only(c); c.LaneWait = hang }) // so that it is a that gives up
	p = newProxy(t, b)
	a.port = 0
	s, _ = through(t, a, b, p)
	return a, s, p
}

// TestSilence: a peer that does not answer any more is given up after LaneWait, or at once if it is not needed.
func TestSilence(t *testing.T) {
	for _, busy := range []bool{true, false} {
		t.Run(map[bool]string{true: "busy", false: "idle"}[busy], func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				var asked sync.Once
				called := make(chan struct{})
				a, s, p := stallable(t, func(c *Config) {
					c.Busy = func(*Session) bool { asked.Do(func() { close(called) }); return busy }
				})
				start := time.Now()
				p.stall()
				p.cut(false)
				err := a.died(s)
				var peer *PeerError
				if !errors.As(err, &peer) || peer.Dead || peer.Cause == nil || !strings.Contains(err.Error(), p.addr.String()+": no answer") {
					t.Errorf("Dead: %v, want a PeerError of a silent peer", err)
				}
				least := replyTimeout
				if busy {
					least = laneWait
				}
				if waited := time.Since(start); waited < least || waited > least+replyTimeout+time.Second {
					t.Errorf("the peer was given up after %v, want %v and at most a round more", waited, least)
				}
				<-called
				if err := s.Send(&handshake.Connected{}); !errors.As(err, &peer) {
					t.Errorf("Send: %v", err)
				}
			})
		})
	}
}

// TestStoppedWhileRedialling: the time in which this process is stopped does not count as silence of the peer.
func TestStoppedWhileRedialling(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, s, p := stallable(t, func(*Config) {})
		start := time.Now()
		p.stall()
		p.cut(false)
		t.Sleep(laneWait / 2)
		const stop = 10 * laneWait
		a.process.Stop(stop)
		err := a.died(s)
		var peer *PeerError
		if !errors.As(err, &peer) || peer.Dead {
			t.Errorf("Dead: %v, want a PeerError of a silent peer", err)
		}
		if waited := time.Since(start) - stop; waited < laneWait-time.Second || waited > laneWait+replyTimeout+time.Second {
			t.Errorf("the peer was given up after %v in which this process ran, want %v", waited, laneWait)
		}
	})
}

// TestFoundAfterAStop: a peer that returns while this process is stopped is found after the stop.
func TestFoundAfterAStop(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		a, s, p := stallable(t, func(*Config) {})
		p.stall()
		p.cut(false)
		t.Sleep(time.Second)
		const stop = 10 * laneWait
		a.process.Stop(stop)
		t.Sleep(stop - time.Second)
		p.resume()
		t.Until("another link", func() bool { return a.Stats().Resumed > 0 || !s.Alive() })
		if !s.Alive() {
			t.Errorf("the peer was given up: %v", a.died(s))
		}
	})
}

// TestSilenceBesideData: a silent peer is not given up before LaneWait has passed without any data.
func TestSilenceBesideData(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		var until atomic.Int64 // in nanoseconds of the clock; 0 before the link is cut
		a, s, p := stallable(t, func(c *Config) {
			c.Moved = func(*Session) uint64 { return uint64(min(time.Now().UnixNano(), until.Load())) }
		})
		const wait = laneWait
		start := time.Now()
		until.Store(start.Add(3 * wait).UnixNano())
		p.stall()
		p.cut(false)
		var peer *PeerError
		if err := a.died(s); !errors.As(err, &peer) || peer.Dead {
			t.Errorf("Dead: %v, want a PeerError of a silent peer", err)
		}
		if waited := time.Since(start); waited < 4*wait || waited > 5*wait {
			t.Errorf("a peer with which data moved for %v was given up after %v, want %v at least", 3*wait, waited, 4*wait)
		}
	})
}
