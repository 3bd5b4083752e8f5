package internet_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/ibv"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport/control"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/sock"
)

// until waits for something to become so.
func (w *world) until(what string, so func() bool) {
	w.Helper()
	for begun := w.bus.Now(); !so(); w.clock.Sleep(time.Millisecond) {
		if w.bus.Now()-begun > time.Hour {
			w.Fatalf("still waiting for %s", what)
		}
	}
}

// cabled is the address of a host on a cable.
func cabled(cable, host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 1, byte(cable), byte(host + 1)})
}

// cable joins two hosts by interfaces eth1, eth2 and so on.
func (w *world) cable(number, a, b int) *internet.Link {
	name := fmt.Sprint("eth", number)
	return w.net.Connect(fast, w.hosts[a].AddInterface(name, netip.PrefixFrom(cabled(number, a), 24)),
		w.hosts[b].AddInterface(name, netip.PrefixFrom(cabled(number, b), 24)))
}

// A speaker is the control plane of a process, and what it has heard.
type speaker struct {
	*control.Endpoint
	log strings.Builder

	mu   sync.Mutex
	got  []handshake.Message
	dead []error
	from *control.Session
}

func (s *speaker) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

func (w *world) speaker(host int, addrs ...netip.Addr) *speaker {
	w.Helper()
	s := &speaker{}
	var err error
	s.Endpoint, err = control.New(control.Config{
		Process: handshake.ProcessID{byte(host + 1)}, Node: handshake.NodeID{byte(host + 1)}, Hostname: w.hosts[host].Name(), Addrs: addrs,
		Network: w.processes[host], Log: slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Message: func(from *control.Session, m handshake.Message) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.got, s.from = append(s.got, m), from
		},
		Dead: func(_ *control.Session, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dead = append(s.dead, err)
		},
	})
	w.must(err)
	return s
}

// heard is how many messages have come.
func (s *speaker) heard() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

func (s *speaker) ended() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.dead)
}

// call makes a session from one speaker to another.
func (w *world) call(from, to *speaker) *control.Session {
	w.Helper()
	l, err := to.Listen()
	w.must(err)
	raw := l.Handle()
	h, err := handshake.DecodeHandle(&raw)
	w.must(err)
	s, err := from.Dial(context.Background(), h)
	w.must(err)
	return s
}

// connected are messages with numbers from first to last.
func connected(first, last int) (all []handshake.Message) {
	for i := first; i <= last; i++ {
		all = append(all, &handshake.Connected{Conn: uint32(i)})
	}
	return all
}

// A session goes on over another address when its link is cut, and nothing that was said is lost, nor said twice.
func TestControl(t *testing.T) {
	for name, fault := range map[string]struct {
		strike func(w *world)
		moved  bool // to the cable
	}{
		"nothing":      {func(w *world) {}, false},
		"cut":          {func(w *world) { w.link.Cut(true) }, true},
		"black hole":   {func(w *world) { w.ports[0].Lose(internet.All) }, true},
		"one way":      {func(w *world) { w.ports[1].Lose(internet.All) }, true},
		"a short cut":  {func(w *world) { w.link.Cut(true); w.after(500*time.Millisecond, func() { w.link.Cut(false) }) }, false},
		"a reset":      {func(w *world) { w.net.Reset(func(_, to netip.AddrPort) bool { return to.Addr() == addr(1) }) }, false},
		"no interface": {func(w *world) { w.ports[1].SetUp(false) }, true},
		"loss": {func(w *world) {
			w.ports[0].Lose(internet.Loss{Streams: 0.2})
			w.ports[1].Lose(internet.Loss{Streams: 0.2})
		}, false},
		"out of descriptors": {func(w *world) {
			w.processes[0].LimitDescriptors(3)
			w.after(time.Second, func() { w.processes[0].LimitDescriptors(100) })
			w.link.Cut(true)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, 2, func(w *world) {
				w.cable(1, 0, 1)
				a, b := w.speaker(0, addr(0), cabled(1, 0)), w.speaker(1, addr(1), cabled(1, 1))
				s := w.call(a, b)
				if s.LocalAddr().Addr() != addr(0) {
					t.Errorf("the session is over %v, which was dialled first is %v", s.LocalAddr(), addr(0))
				}
				const rounds = 50
				for i, m := range connected(1, 4*rounds) {
					w.must(s.Send(m))
					if i == rounds {
						fault.strike(w)
					}
					if i > rounds/2 {
						w.clock.Sleep(3 * time.Millisecond)
					}
				}
				w.until("all messages", func() bool { return b.heard() == 4*rounds })
				if diff := cmp.Diff(connected(1, 4*rounds), b.got); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
				if over := s.LocalAddr().Addr() == cabled(1, 0); over != fault.moved {
					t.Errorf("the session is over %v", s.LocalAddr())
				}
				w.must(b.from.Send(&handshake.Connected{}))
				w.until("an answer", func() bool { return a.heard() == 1 })
				w.must(a.Close())
				w.until("the end", func() bool { return len(b.ended()) == 1 })
				w.must(b.Close())
				if diff := cmp.Diff([]error{nil}, b.ended()); diff != "" {
					t.Errorf("the end (-want +got):\n%s", diff)
				}
				if t.Failed() {
					t.Logf("a:\n%s\nb:\n%s", a.log.String(), b.log.String())
				}
				w.Log(w.bus.Now(), w.net.Counts())
			})
		})
	}
}

// The death of a peer is told at once where its machine lives, and after a while where it does not.
func TestControlPeerDies(t *testing.T) {
	for name, tt := range map[string]struct {
		kill           func(w *world)
		atLeast, under time.Duration
	}{
		"killed":        {func(w *world) { w.processes[1].Kill() }, 0, time.Second},
		"without power": {func(w *world) { w.hosts[1].PowerOff() }, 10 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, 2, func(w *world) {
				a, b := w.speaker(0, addr(0)), w.speaker(1, addr(1))
				w.must(w.call(a, b).Send(&handshake.Connected{Conn: 1}))
				w.until("a message", func() bool { return b.heard() == 1 })
				begun := w.bus.Now()
				tt.kill(w)
				w.until("the death of the peer", func() bool { return len(a.ended()) == 1 })
				if took := w.bus.Now() - begun; took < tt.atLeast || took >= tt.under {
					t.Errorf("it took %v", took)
				}
				if a.ended()[0] == nil {
					t.Error("the session ended well")
				}
				w.must(a.Close())
				_ = b.Close() // whose listener is gone
			})
		})
	}
}

// A lane is a stream with memory outside the Go heap.
type lane struct {
	*sock.Stream
	w   *world
	mem *ibv.Memory
	b   []byte
}

func (w *world) lane(s *sock.Stream) *lane {
	w.Helper()
	mem, err := ibv.Alloc(1 << 20)
	w.must(err)
	return &lane{s, w, mem, ibv.Carve[byte](mem, 1<<20)}
}

// sends sends all of the memory, and receives as much into the other's.
func (l *lane) sends(to *lane, number int) {
	l.w.Helper()
	want := pattern(len(l.b), number)
	copy(l.b, want)
	clear(to.b)
	sent, received := 0, 0
	l.w.until("bytes", func() bool {
		if n, _ := l.Send(ibv.AddrOf(&l.b[0])+uintptr(sent), len(l.b)-sent); n > 0 {
			sent += n
		}
		if n, _ := to.Receive(ibv.AddrOf(&to.b[0])+uintptr(received), len(to.b)-received); n > 0 {
			received += n
		}
		return received == len(to.b)
	})
	if !slices.Equal(to.b, want) {
		l.w.Error("what came differs")
	}
}

func (l *lane) close() { l.w.must(l.Close(), l.mem.Free()) }

// end is what both sides of a lane know.
func end(name byte, at netip.Addr, netdev string) dataport.End {
	return dataport.End{Name: handshake.LaneName{Session: handshake.SessionID{name}, Conn: 7, Lane: 3}, Key: handshake.Key{9}.LaneKey(),
		Tokens: handshake.LaneTokens{Dialler: 11, Listener: 22}, Addr: at, Netdev: netdev}
}

// wait waits for what a channel brings.
func wait[T any](w *world, what string, c <-chan T) (v T) {
	w.Helper()
	w.until(what, func() bool {
		select {
		case v = <-c:
			return true
		default:
			return false
		}
	})
	return v
}

func (w *world) data(host int) *dataport.Endpoint {
	return dataport.New(dataport.Config{KeepAlive: 10 * time.Second, Network: w.processes[host]})
}

// A lane is dialled over its cable, also when that comes back only later, and carries bytes although some are lost.
func TestDataPort(t *testing.T) {
	for name, disturb := range map[string]func(w *world, l *internet.Link){
		"nothing": func(*world, *internet.Link) {},
		"cut": func(w *world, l *internet.Link) {
			l.Cut(true)
			w.after(2*time.Second, func() { l.Cut(false) })
		},
		"no descriptors": func(w *world, _ *internet.Link) {
			w.processes[1].LimitDescriptors(4)
			w.after(2*time.Second, func() { w.processes[1].LimitDescriptors(100) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			try(t, 2, func(w *world) {
				l := w.cable(1, 0, 1)
				a, b := w.data(0), w.data(1)
				port, err := b.Listen(cabled(1, 1), "eth1")
				w.must(err)
				come := make(chan *sock.Stream, 1)
				_, err = b.Expect(end(1, cabled(1, 1), "eth1"), func(s *sock.Stream) { come <- s })
				w.must(err)
				disturb(w, l)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				s, err := a.Dial(ctx, end(1, cabled(1, 0), "eth1"), netip.AddrPortFrom(cabled(1, 1), port))
				w.must(err)
				from, to := w.lane(s), w.lane(wait(w, "the lane", come))
				from.sends(to, 1)
				to.sends(from, 2)
				from.close()
				to.close()
				w.must(a.Close(), b.Close())
			})
		})
	}
}

// A lane goes through a relay.
func TestDataPortThroughRelay(t *testing.T) {
	try(t, 3, func(w *world) {
		w.cable(1, 0, 1)
		w.cable(2, 1, 2)
		a, relay, b := w.data(0), w.data(1), w.data(2)
		atRelay, err := relay.Listen(cabled(1, 1), "eth1")
		w.must(err)
		atEnd, err := b.Listen(cabled(2, 2), "eth2")
		w.must(err)
		over := make(chan error, 2)
		_, err = relay.ExpectHop(end(1, cabled(1, 1), "eth1"), func(in sock.Conn) {
			out, err := relay.DialHop(context.Background(), dataport.End{Addr: cabled(2, 1), Netdev: "eth2"}, netip.AddrPortFrom(cabled(2, 2), atEnd))
			if err != nil {
				t.Error(err)
				return
			}
			var both sync.WaitGroup
			for _, way := range [][2]sock.Conn{{in, out}, {out, in}} {
				both.Go(func() {
					over <- way[0].Pump(way[1], func(int) {})
					_ = way[1].CloseWrite()
				})
			}
			both.Wait()
			w.must(in.Close(), out.Close())
		})
		w.must(err)
		come := make(chan *sock.Stream, 1)
		_, err = b.Expect(end(2, cabled(2, 2), "eth2"), func(s *sock.Stream) { come <- s })
		w.must(err)
		s, err := a.DialThrough(context.Background(), end(1, cabled(1, 0), "eth1"), netip.AddrPortFrom(cabled(1, 1), atRelay), end(2, cabled(1, 0), "eth1"))
		w.must(err)
		from, to := w.lane(s), w.lane(wait(w, "the lane", come))
		from.sends(to, 1)
		to.sends(from, 2)
		from.close()
		to.close()
		w.must(wait(w, "the end of one way", over), wait(w, "the end of the other", over))
		w.must(a.Close(), b.Close(), relay.Close())
	})
}

// Neighbours at cables are found although datagrams are lost, one way or the other, and doubled.
func TestDiscovery(t *testing.T) {
	bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
		w := newWorld(t, b, 3)
		w.cable(1, 0, 1)
		w.cable(2, 1, 2)
		w.ports[0].Lose(internet.Loss{Datagrams: 0.5})
		var discoveries []*discovery.Discovery
		for i, netdevs := range [][]string{{"eth1"}, {"eth1", "eth2"}, {"eth2"}} {
			for _, netdev := range netdevs {
				line := w.hosts[i].Interface(netdev)
				line.Lose(internet.Loss{Datagrams: 0.4})
				line.Duplicate(0.3)
			}
			h, err := discovery.New(discovery.Config{Process: handshake.ProcessID{byte(i + 1)}, Node: handshake.NodeID{byte(i + 1)}, ControlPort: uint16(1000 + i),
				Network: w.processes[i], Ports: func() (all []discovery.Port) {
					for n, netdev := range netdevs {
						all = append(all, discovery.Port{Index: uint8(n), Netdev: netdev})
					}
					return all
				}})
			w.must(err)
			discoveries = append(discoveries, h)
		}
		for i, want := range []string{"eth1:02", "eth1:01 eth2:03", "eth2:02"} {
			discoveries[i].Solicit()
			w.until("the end of asking", func() bool {
				select {
				case <-discoveries[i].Done():
					return true
				default:
					return false
				}
			})
			var got []string
			for _, n := range discoveries[i].Neighbours() {
				got = append(got, fmt.Sprintf("%s:%.2x", n.Name, n.Process[:1]))
			}
			if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Errorf("neighbours of host %d (-want +got):\n%s", i, diff)
			}
		}
		for i, h := range discoveries {
			w.must(h.Close())
			if left := w.processes[i].Open(); len(left) > 0 {
				t.Errorf("host %d has left open: %v", i, left)
			}
		}
		counts := w.net.Counts()
		if counts["lost datagram"] == 0 {
			t.Errorf("nothing was lost: %v", counts)
		}
	})
}
