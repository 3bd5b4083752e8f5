package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/topology"
)

// loop returns a node's loopback address.
func loop(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}) }

// line is nodes in a row, each with two ports, to the node before and to the one after, and with sessions with both.
type line struct {
	relays   []*Relay
	data     []*dataport.Endpoint
	sessions map[[2]int]*fakeSession
	first    *keeper // network of the first node
	over     chan struct{}
	wg       sync.WaitGroup
}

// keeper is a network that keeps the last connection that has become a lane, for tests that half-close or reset it.
type keeper struct {
	sock.Network
	last sock.Conn
}

func (k *keeper) Dial(ctx context.Context, from sock.From, to netip.AddrPort) (sock.Conn, error) {
	c, err := k.Network.Dial(ctx, from, to)
	if err != nil {
		return nil, err
	}
	return &kept{c, k, false}, nil
}

// kept is a connection that the test closes after it has become a lane.
type kept struct {
	sock.Conn
	by   *keeper
	lane bool
}

func (k *kept) Stream() (*sock.Stream, error) {
	k.by.last, k.lane = k.Conn, true
	return k.Conn.Stream()
}

func (k *kept) Close() error {
	if k.lane {
		return nil
	}
	return k.Conn.Close()
}

// newLine makes a row of n nodes.
func newLine(t *hosts.Test, n int, change ...func(i int, c *Config)) *line {
	t.Helper()
	l := &line{sessions: map[[2]int]*fakeSession{}, over: make(chan struct{})}
	for i := range n {
		p := t.Process("host")
		var network sock.Network = p
		if i == 0 {
			l.first = &keeper{Network: p}
			network = l.first
		}
		d := dataport.New(dataport.Config{KeepAlive: 10 * time.Second, Network: network, Clock: p.Clock()})
		cfg := Config{
			Process: process(i), Node: node(i), Data: d, GIDs: topology.AnyGID, Clock: p.Clock(), Random: p.Random(),
			Ports: []lane.Port{hostPort("lo", loop(i), lane.TCP, 0), hostPort("lo", loop(i), lane.TCP, 1)},
		}
		for _, f := range change {
			f(i, &cfg)
		}
		r := New(cfg)
		r.neighbour = func(_ context.Context, p handshake.ProcessID, port uint8) (session, error) {
			s := l.sessions[[2]int{i, int(p[1])}]
			if s == nil {
				return nil, errors.New("no way to " + host(int(p[1])))
			}
			return s, nil
		}
		l.relays, l.data = append(l.relays, r), append(l.data, d)
	}
	for i := range n - 1 {
		for _, e := range [][2]int{{i, i + 1}, {i + 1, i}} {
			s := newSession(e[0], e[1])
			for j := range s.peer.Ports {
				s.peer.Ports[j].Addrs[0].Addr = netip.AddrFrom16(loop(e[1]).As16())
			}
			l.sessions[e] = s
		}
	}
	for e, s := range l.sessions { // what is sent by one end comes to the other's relay
		back := l.sessions[[2]int{e[1], e[0]}]
		l.wg.Go(func() {
			for {
				select {
				case m := <-s.sent:
					l.relays[e[1]].message(back, m)
				case <-l.over:
					return
				}
			}
		})
	}
	t.Cleanup(func() { l.close(t) })
	return l
}

func (l *line) close(t *hosts.Test) {
	for i, r := range l.relays {
		if err := errors.Join(r.Close(), l.data[i].Close()); err != nil {
			t.Error(err)
		}
	}
	close(l.over)
	l.wg.Wait()
}

// route returns the route from the first node through all others to the last.
func (l *line) route() (via []handshake.Hop) {
	for i := 1; i < len(l.relays)-1; i++ {
		via = append(via, handshake.Hop{Process: process(i), Node: node(i), In: 0, Out: 1})
	}
	return via
}

// way is a lane from a line's first node to its last, as the sockets at both ends.
type way struct {
	asked   *lane.OpenedCircuit
	dropped chan error
	a, z    sock.Conn
}

// laneEnd returns the end of a lane between the first node and the last.
func laneEnd() dataport.End {
	return dataport.End{
		Name: handshake.LaneName{Session: handshake.SessionID{42}, Conn: 7, Lane: 3}, Key: handshake.Key{9}.LaneKey(),
		Tokens: handshake.LaneTokens{Dialler: 11, Listener: 22},
	}
}

// dial connects a lane, or returns the error.
func (l *line) dial(t *hosts.Test, end dataport.End) (*way, error) {
	t.Helper()
	last := len(l.relays) - 1
	got := make(chan sock.Conn, 1)
	theirs := laneEnd()
	theirs.Addr, theirs.Netdev = loop(last), "lo"
	call, err := l.data[last].ExpectHop(theirs, func(c sock.Conn) { got <- c })
	if err != nil {
		t.Fatal(err)
	}
	defer l.data[last].Cancel(call)
	port, err := l.data[last].Listen(loop(last), "lo")
	if err != nil {
		t.Fatal(err)
	}
	l.expect(t, end.Tokens.Listener, handshake.Lane{Kind: handshake.LaneTCP, Addr: netip.AddrFrom16(loop(last).As16()), TCPPort: port})
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	w := &way{dropped: make(chan error, 8)}
	m := &handshake.CircuitOpen{
		Kind: handshake.LaneTCP, Half: handshake.Lane{Token: 5}, Route: l.route(),
		Final: handshake.Final{Process: process(last), Node: node(last), Token: end.Tokens.Listener},
	}
	if w.asked, err = l.relays[0].OpenCircuit(ctx, 1, m, func(err error) { w.dropped <- err }, nil); err != nil {
		return nil, err
	}
	hop := dataport.End{
		Name: w.asked.Hop, Key: w.asked.Key, Tokens: handshake.LaneTokens{Dialler: 5, Listener: w.asked.Half.Token},
		Addr: w.asked.From.Addr.Unmap(), Netdev: "lo",
	}
	stream, err := l.data[0].DialThrough(ctx, hop, netip.AddrPortFrom(w.asked.Half.Addr.Unmap(), w.asked.Half.TCPPort), end)
	if err != nil {
		return w, err
	}
	w.a, w.z = l.first.last, wait(t, "the lane", got)
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { _, _ = w.a.Close(), w.z.Close() })
	return w, nil
}

// expect makes the last node accept the circuit with a token, and reply with that end.
func (l *line) expect(t *hosts.Test, token uint64, half handshake.Lane) {
	t.Helper()
	err := l.relays[len(l.relays)-1].Expect(token, func(context.Context, *handshake.CircuitDeliver, func(string)) (*handshake.CircuitOpened, error) {
		return &handshake.CircuitOpened{Half: half}, nil
	}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
}

func mustDial(t *hosts.Test, l *line) *way {
	t.Helper()
	w, err := l.dial(t, laneEnd())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// carried waits until no relay of the line relays a circuit.
func (l *line) idle(t *hosts.Test) {
	t.Helper()
	t.Until("the circuits' end", func() bool {
		for _, r := range l.relays {
			if r.Stats().Now > 0 {
				return false
			}
		}
		return true
	})
}

// stream sends n random bytes in one direction and reports whether they have arrived unchanged.
func stream(from, to sock.Conn, n, seed int64) error {
	sent, got := sha256.New(), sha256.New()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.MultiWriter(from, sent), io.LimitReader(rand.New(rand.NewSource(seed)), n))
		done <- err
	}()
	_, err := io.CopyN(got, to, n)
	if err = errors.Join(err, <-done); err == nil && !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		err = errors.New("other bytes have come than were sent")
	}
	return err
}

// Bytes flow in both directions at once through one relay and through three, and are counted. A half-close passes
// through, and the circuit ends after the second one.
func TestSplice(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(host(n-1), func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				l := newLine(t, n)
				w := mustDial(t, l)
				const forth, back = 1<<20 + 13, 512<<10 + 1
				other := make(chan error, 1)
				go func() { other <- stream(w.z, w.a, back, 2) }()
				if err := errors.Join(stream(w.a, w.z, forth, 1), <-other); err != nil {
					t.Fatal(err)
				}
				if err := w.a.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if n, err := w.z.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("after a half-close: %d, %v; want its end", n, err)
				}
				if err := stream(w.z, w.a, 64<<10, 3); err != nil {
					t.Errorf("the other way after a half-close: %v", err)
				}
				if err := w.z.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if n, err := w.a.Read(make([]byte, 1)); n != 0 || err != io.EOF {
					t.Errorf("after the other half-close: %d, %v; want its end", n, err)
				}
				l.idle(t)
				if err := wait(t, "the end", w.dropped); !strings.Contains(err.Error(), errFinished.Error()) {
					t.Errorf("the circuit ended: %v", err)
				}
				hello := uint64(handshake.LaneHelloSize)
				want := Stats{Carried: 1, Forth: forth + hello, Back: back + 64<<10 + handshake.LaneWelcomeSize}
				for i := 1; i < n-1; i++ {
					s := l.relays[i].Stats()
					want.Askers = []string{host(i - 1)}
					s.Strange = 0 // both sides of a hop may tell of its end at a time
					if diff := cmp.Diff(want, s); diff != "" {
						t.Errorf("%s counts (-want +got):\n%s", host(i), diff)
					}
				}
			})
		})
	}
}

// If one end breaks in any way, the other end gets an error.
func TestSpliceReset(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(l *line, w *way)
		hear func(w *way) sock.Conn
	}{
		{"the asker", func(_ *line, w *way) { _ = w.a.Reset() }, func(w *way) sock.Conn { return w.z }},
		{"the receiver", func(_ *line, w *way) { _ = w.z.Reset() }, func(w *way) sock.Conn { return w.a }},
		{"a relay", func(l *line, _ *way) { l.relays[1].PortDown(0, errors.New("p0 has no carrier")) }, func(w *way) sock.Conn { return w.z }},
		{"a session", func(l *line, _ *way) { l.sessions[[2]int{2, 1}].end(l.relays[2]) }, func(w *way) sock.Conn { return w.a }},
		{"a relay's process", func(l *line, _ *way) { _ = l.relays[2].Close() }, func(w *way) sock.Conn { return w.a }},
		{"a drop", func(_ *line, w *way) { w.asked.Drop("enough") }, func(w *way) sock.Conn { return w.z }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				l := newLine(t, 4)
				w := mustDial(t, l)
				if err := errors.Join(stream(w.a, w.z, 64<<10, 1), stream(w.z, w.a, 64<<10, 1)); err != nil {
					t.Fatal(err)
				}
				tt.do(l, w)
				if n, err := tt.hear(w).Read(make([]byte, 1)); n != 0 || !errors.Is(err, unix.ECONNRESET) {
					t.Errorf("the other end hears %d, %v; want a reset", n, err)
				}
				l.idle(t)
				if tt.name != "a drop" {
					err := wait(t, "the drop", w.dropped)
					if !strings.HasPrefix(err.Error(), "node-") {
						t.Errorf("the reason names no node: %v", err)
					}
					t.Log(err)
				}
				if len(w.dropped) != 0 {
					t.Error("dropped again")
				}
			})
		})
	}
}

// A receiver that does not read stops the sender once the kernels' buffers are full. No data is lost, and data in
// flight arrives when the sender closes and drops the circuit.
func TestSpliceBackpressure(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		l := newLine(t, 3)
		w := mustDial(t, l)
		if err := w.a.SetDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		sent := sha256.New()
		random := rand.New(rand.NewSource(7))
		total, chunk := 0, make([]byte, 64<<10)
		for {
			_, _ = random.Read(chunk)
			n, err := w.a.Write(chunk)
			sent.Write(chunk[:n])
			total += n
			if err != nil {
				break
			}
			if total > 1<<30 {
				t.Fatal("nothing holds the sender up")
			}
		}
		_ = w.a.Close()
		w.asked.Drop("the lane has been closed")
		got := sha256.New()
		if n, err := io.Copy(got, w.z); int(n) != total || err != nil || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
			t.Errorf("of %d bytes under way at a drop %d have come: %v", total, n, err)
		}
		_ = w.z.Close()
		l.idle(t)
	})
}

// The error of a circuit that cannot be made names the obstacle.
func TestSpliceFailures(t *testing.T) {
	wrong := laneEnd()
	wrong.Tokens.Listener++
	tests := []struct {
		name   string
		nodes  int
		end    dataport.End
		change func(i int, c *Config)
		asking string // what CircuitOpen says; "" when it succeeds
		says   string // what the drop says, or dialling
	}{
		{"refused by the second", 4, laneEnd(), func(i int, c *Config) {
			if i == 2 {
				c.Refuse = func() error { return errors.New("NCCL_MESH_RELAY is 0 there") }
			}
		}, "node-c: relaying is off: NCCL_MESH_RELAY is 0 there", ""},
		{"wrong proof at the end", 3, wrong, nil, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				var change []func(int, *Config)
				if tt.change != nil {
					change = append(change, tt.change)
				}
				l := newLine(t, tt.nodes, change...)
				w, err := l.dial(t, tt.end)
				if err == nil || !strings.Contains(err.Error(), tt.asking) {
					t.Fatalf("dialled: %v, want %q", err, tt.asking)
				}
				if w != nil {
					w.asked.Drop("given up")
				}
				l.idle(t)
			})
		})
	}
}

// The key and name of a lane do not authenticate a hop, and those of a hop do not authenticate a lane.
func TestHopIsNoLane(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		l := newLine(t, 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		m := &handshake.CircuitOpen{
			Kind: handshake.LaneTCP, Half: handshake.Lane{Token: 5}, Route: l.route(),
			Final: handshake.Final{Process: process(2), Node: node(2), Token: 22},
		}
		l.expect(t, 22, handshake.Lane{Kind: handshake.LaneTCP, Addr: netip.AddrFrom16(loop(2).As16()), TCPPort: 1})
		a, err := l.relays[0].OpenCircuit(t.Context(), 1, m, func(error) {}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := l.sessions[[2]int{0, 1}]
		to := netip.AddrPortFrom(a.Half.Addr.Unmap(), a.Half.TCPPort)
		for name, change := range map[string]func(*dataport.End){
			"the key of lanes": func(e *dataport.End) { e.Key = handshake.Key(append(s.id[:], s.id[:]...)).LaneKey() },
			"a lane's name":    func(e *dataport.End) { e.Name.Lane = 0 },
			"another circuit":  func(e *dataport.End) { e.Name.Conn++ },
			"another token":    func(e *dataport.End) { e.Tokens.Dialler++ },
		} {
			end := dataport.End{Name: a.Hop, Key: a.Key, Tokens: handshake.LaneTokens{Dialler: 5, Listener: a.Half.Token}, Addr: loop(0), Netdev: "lo"}
			change(&end)
			if fd, err := l.data[0].Dial(ctx, end, to); err == nil {
				t.Errorf("%s opens the hop", name)
				_ = fd.Close()
			}
		}
		a.Drop("done")
		l.idle(t)
		if n := l.data[1].Stats().Expected; n != 0 {
			t.Errorf("%d hops are still expected", n)
		}
	})
}

// A process that requests a circuit and does not connect is dropped, and named in the reason.
func TestSpliceLate(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		l := newLine(t, 3)
		dropped := make(chan error, 1)
		m := &handshake.CircuitOpen{
			Kind: handshake.LaneTCP, Half: handshake.Lane{Token: 5}, Route: l.route(),
			Final: handshake.Final{Process: process(2), Node: node(2), Token: 22},
		}
		l.expect(t, 22, handshake.Lane{Kind: handshake.LaneTCP, Addr: netip.AddrFrom16(loop(2).As16()), TCPPort: 1})
		if _, err := l.relays[0].OpenCircuit(t.Context(), 1, m, func(err error) { dropped <- err }, nil); err != nil {
			t.Fatal(err)
		}
		if err := wait(t, "the drop", dropped); !strings.Contains(err.Error(), "node-b: node-a asked for the circuit and has not connected to 127.0.0.2:") {
			t.Error(err)
		}
		l.idle(t)
	})
}

// The last relay connects only to the address that the receiver has named, which must be the receiver's own.
func TestLastHop(t *testing.T) {
	listening := func(a netip.Addr, port uint16) handshake.Lane {
		return handshake.Lane{Kind: handshake.LaneTCP, Addr: netip.AddrFrom16(a.As16()), TCPPort: port}
	}
	for _, tt := range []struct {
		name string
		half handshake.Lane
		ask  uint64 // token
		says string
	}{
		{"another token", listening(loop(2), 1), 23, "node-c: " + reasonToken},
		{"another node's address", listening(loop(0), 1), 22, "node-b: node-c wants the lane at 127.0.0.1, TCP port 1"},
		{"no address", handshake.Lane{Kind: handshake.LaneTCP, TCPPort: 1}, 22, "node-b: node-c wants the lane at "},
		{"no port", listening(loop(2), 0), 22, "node-b: node-c wants the lane at 127.0.0.3, TCP port 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				l := newLine(t, 3)
				if !tt.half.Addr.IsValid() {
					tt.half.Addr = netip.IPv6Unspecified()
				}
				l.expect(t, 22, tt.half)
				m := &handshake.CircuitOpen{
					Kind: handshake.LaneTCP, Half: handshake.Lane{Token: 5}, Route: l.route(),
					Final: handshake.Final{Process: process(2), Node: node(2), Token: tt.ask},
				}
				_, err := l.relays[0].OpenCircuit(t.Context(), 1, m, func(error) {}, nil)
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("asked: %v, want %q", err, tt.says)
				}
				l.idle(t)
			})
		})
	}
}
