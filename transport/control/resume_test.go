package control

import (
	"errors"
	"io"
	"math/rand"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
)

// proxy stands between two nodes, at the second address and the port of the one it leads to. It dials from that address too, so that
// one in front of each node is all that they know of each other.
type proxy struct {
	t    *testing.T
	ln   net.Listener
	addr netip.AddrPort
	to   string
	wg   sync.WaitGroup // of copying goroutines

	served chan struct{}
	dialer net.Dialer

	mu     sync.Mutex
	silent bool // new connections are taken and forgotten
	deaf   int  // so many new connections are cut when the dialler speaks
	pairs  map[*net.TCPConn]*net.TCPConn
}

func newProxy(t *testing.T, n *node) *proxy {
	t.Helper()
	p := &proxy{t: t, addr: n.at(2), to: n.at(1).String(), pairs: make(map[*net.TCPConn]*net.TCPConn)}
	var err error
	if p.ln, err = net.Listen("tcp", p.addr.String()); err != nil {
		t.Fatal(err)
	}
	p.dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.addr.Addr(), 0))
	p.dialer.Control = func(_, _ string, c syscall.RawConn) (err error) { // a port it dials from may be the next one to listen at
		_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return err
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
			p.add(in.(*net.TCPConn), nil)
			continue
		}
		out, err := p.dialer.Dial("tcp", p.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.add(in.(*net.TCPConn), out.(*net.TCPConn))
		if deaf {
			p.wg.Go(func() { _, _ = io.Copy(struct{ io.Writer }{in}, struct{ io.Reader }{out}) })
			p.wg.Go(func() {
				_, _ = in.Read(make([]byte, 1))
				_, _ = in.Close(), out.Close()
			})
			continue
		}
		for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
			p.wg.Go(func() {
				// Bare, for otherwise the pipes of splice(2) look like a leak.
				_, _ = io.Copy(struct{ io.Writer }{d[0]}, struct{ io.Reader }{d[1]})
				_ = d[0].(*net.TCPConn).CloseWrite()
			})
		}
	}
}

func (p *proxy) add(in, out *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairs[in] = out
}

// cut breaks every connection, with RST or FIN.
func (p *proxy) cut(rst bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for in, out := range p.pairs {
		for _, c := range []*net.TCPConn{in, out} {
			if c != nil {
				if rst {
					_ = c.SetLinger(0)
				}
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

// hush makes the proxy take connections and nothing else.
func (p *proxy) hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

func (p *proxy) close() {
	_ = p.ln.Close()
	<-p.served
	p.cut(true)
	p.wg.Wait()
}

// through makes a session from a to b over a proxy; others are further addresses that a knows.
func through(t *testing.T, a, b *node, p *proxy, others ...netip.Addr) (s, r *Session) {
	t.Helper()
	_, h := b.invite()
	h.Addrs = []netip.Addr{p.addr.Addr()}
	s = a.dial(h)
	for _, o := range others {
		s.know(o, h.Port, false)
	}
	a.send(s, &handshake.Connected{Conn: 1})
	r = b.first()
	b.send(r, &handshake.Connected{Conn: 1})
	a.messages(s, 1)
	return s, r
}

// TestResume cuts the link again and again under traffic both ways: every message arrives once, in order.
func TestResume(t *testing.T) {
	tests := []struct {
		name  string
		scale float64
	}{
		{"the dialling side first", 20},
		{"both sides at once", 0.02}, // the other side hardly waits
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			leakCheck(t)
			change := func(c *Config) {
				c.TimeScale = tt.scale
				c.LaneWait = time.Duration(float64(hang) / min(1, tt.scale))
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
			err := errors.Join(a.died(s), b.died(r))
			if tt.scale < 1 && errors.Is(err, errUnconfirmed) {
				return // a deadline this short may pass
			}
			if err != nil {
				t.Errorf("Dead: %v", err)
			}
		})
	}
}

// TestResumeOverAnotherAddress: the address in use is gone, another one leads to the same process.
func TestResumeOverAnotherAddress(t *testing.T) {
	leakCheck(t)
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
}

// TestHelloInVain: links that break in the middle of the exchange are not the last.
func TestHelloInVain(t *testing.T) {
	leakCheck(t)
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
}

// TestResumeRefused: attempts that come at the wrong time change nothing.
func TestResumeRefused(t *testing.T) {
	leakCheck(t)
	a, b := newNode(t, nil), newNode(t, nil)
	_, h := b.invite()
	s := a.dial(h)
	for _, m := range conns(1, 3) {
		a.send(s, m)
	}
	eventually(t, "the messages to be acknowledged", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.acked == 3 })
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
}

// nthFrame is the frame of the nth message of conns.
func nthFrame(t *testing.T, n uint32) *handshake.Frame {
	t.Helper()
	m := &handshake.Connected{Conn: n}
	body, err := m.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &handshake.Frame{Type: m.Type(), Number: uint64(n), Body: body}
}

// TestResumedByHand: the right Hello takes the session over, and is told where to go on.
func TestResumedByHand(t *testing.T) {
	leakCheck(t)
	b := newNode(t, func(c *Config) { c.TimeScale = 0.1 }) // for nobody confirms the end
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
	// One who claims messages that were never sent is not to be dealt with.
	resume(9)
	if err := b.died(r); err == nil || !strings.Contains(err.Error(), "the peer has 9 messages, 0 were sent") {
		t.Errorf("Dead: %v", err)
	}
}

// TestCountedBeforeHeard: whoever has a message of a new link finds the link counted.
func TestCountedBeforeHeard(t *testing.T) {
	leakCheck(t)
	b := newNode(t, func(c *Config) { c.TimeScale = 0.1 }) // for nobody confirms the end
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
}

// TestRedial: the caller knows better than TCP that a link is of no use.
func TestRedial(t *testing.T) {
	leakCheck(t)
	a, b := newNode(t, nil), newNode(t, only)
	p := newProxy(t, b)
	s, r := through(t, a, b, p, loopback)
	p.hush() // the link stands, but a new one over this address does not come about
	s.Redial(errors.New("port rocep1s0f0 is down"))
	a.send(s, &handshake.Connected{Conn: 2})
	b.messages(r, 2)
	if s.RemoteAddr() == p.addr || !s.Alive() {
		t.Errorf("session over %v, alive %v", s.RemoteAddr(), s.Alive())
	}
}

// TestPeerDialsBack: the dialling side finds only silence; the other side comes back by itself.
func TestPeerDialsBack(t *testing.T) {
	leakCheck(t)
	a, b := newNode(t, nil), newNode(t, only)
	p := newProxy(t, b)
	s, r := through(t, a, b, p)
	p.hush()
	p.cut(true)
	a.send(s, &handshake.Connected{Conn: 2})
	b.messages(r, 2)
	if got := r.RemoteAddr().Port(); got != a.Port() {
		t.Errorf("the session goes to port %d, not to the listener's %d", got, a.Port())
	}
	eventually(t, "both sides to count it", func() bool { return a.Stats().Resumed == 1 && b.Stats().Resumed == 1 })
}

// TestByeOverABrokenLink: Close delivers what was sent even if the link breaks at that moment.
func TestByeOverABrokenLink(t *testing.T) {
	leakCheck(t)
	a, b := newNode(t, patient), newNode(t, func(c *Config) { patient(c); only(c) })
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
}

// hushable is a node, and its session over a proxy with a peer that cannot come back.
func hushable(t *testing.T, change func(*Config)) (a *node, s *Session, p *proxy) {
	t.Helper()
	slow := func(c *Config) {
		c.TimeScale = 0.05
		c.LaneWait = 60 * time.Second // scaled: also what a busy machine has to make the session in
	}
	a = newNode(t, func(c *Config) { slow(c); change(c) })
	b := newNode(t, func(c *Config) { only(c); slow(c) })
	p = newProxy(t, b)
	a.port = 0
	s, _ = through(t, a, b, p)
	return a, s, p
}

// TestSilence: a peer that does not answer any more is given up after LaneWait, or at once when nothing needs it.
func TestSilence(t *testing.T) {
	for _, busy := range []bool{true, false} {
		t.Run(map[bool]string{true: "busy", false: "idle"}[busy], func(t *testing.T) {
			leakCheck(t)
			var asked sync.Once
			called := make(chan struct{})
			a, s, p := hushable(t, func(c *Config) {
				c.Busy = func(*Session) bool { asked.Do(func() { close(called) }); return busy }
			})
			start := time.Now()
			p.hush()
			p.cut(false)
			err := a.died(s)
			var peer *PeerError
			if !errors.As(err, &peer) || peer.Dead || peer.Cause == nil || !strings.Contains(err.Error(), p.addr.String()+": no answer") {
				t.Errorf("Dead: %v, want a PeerError of a silent peer", err)
			}
			if waited := time.Since(start); busy && waited < a.scaled(a.cfg.LaneWait) {
				t.Errorf("a peer that is needed was given up after %v", waited)
			}
			<-called
			if err := s.Send(&handshake.Connected{}); !errors.As(err, &peer) {
				t.Errorf("Send: %v", err)
			}
		})
	}
}

// TestSilenceBesideData: a silent peer with which data moves is not given up before LaneWait has passed without any.
func TestSilenceBesideData(t *testing.T) {
	leakCheck(t)
	var until atomic.Int64 // in nanoseconds of the clock; 0 before the link is cut
	a, s, p := hushable(t, func(c *Config) {
		c.Moved = func(*Session) uint64 { return uint64(min(time.Now().UnixNano(), until.Load())) }
	})
	a.cfg.LaneWait = 10 * time.Second // and now half a second
	wait := a.scaled(a.cfg.LaneWait)
	start := time.Now()
	until.Store(start.Add(3 * wait).UnixNano())
	p.hush()
	p.cut(false)
	var peer *PeerError
	if err := a.died(s); !errors.As(err, &peer) || peer.Dead {
		t.Errorf("Dead: %v, want a PeerError of a silent peer", err)
	}
	if waited := time.Since(start); waited < 4*wait {
		t.Errorf("a peer with which data moved for %v was given up after %v, want %v at least", 3*wait, waited, 4*wait)
	}
}
