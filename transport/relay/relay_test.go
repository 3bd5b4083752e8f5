package relay

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/tcp"
	"ncclmesh/transport/topology"
)

const hang = 2 * time.Minute

// fakeSession is one end of a session. Sent messages are put into sent, in order.
type fakeSession struct {
	id     handshake.SessionID
	local  string
	cable  string // of a neighbour
	peer   control.Peer
	mu     sync.Mutex
	over   bool
	silent time.Duration
	sent   chan handshake.Message
	unsent int    // messages for which there was no room
	before func() // called before each message is sent; may be nil
}

func (s *fakeSession) ID() handshake.SessionID { return s.id }
func (s *fakeSession) HopKey() handshake.Key {
	return handshake.Key(append(s.id[:], s.id[:]...)).HopKey()
}
func (s *fakeSession) Peer() control.Peer { return s.peer }
func (s *fakeSession) Cable() string      { return s.cable }
func (s *fakeSession) Name() string       { return s.peer.Hostname }
func (s *fakeSession) LocalName() string  { return s.local }

func (s *fakeSession) Send(m handshake.Message) error {
	if s.before != nil {
		s.before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return errors.New("the session is over")
	}
	body, err := handshake.AppendMessage(nil, m)
	if err != nil {
		return err
	}
	if m, err = handshake.DecodeMessage(m.Type(), body); err != nil {
		return err
	}
	select {
	case s.sent <- m:
	default:
		s.unsent++
	}
	return nil
}

func (s *fakeSession) Silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}

// silence makes the process at the other end owe a sign of life for that long.
func (s *fakeSession) silence(d time.Duration) {
	s.mu.Lock()
	s.silent = d
	s.mu.Unlock()
}

// end ends a session, as its relay sees it.
func (s *fakeSession) end(r *Relay) {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	r.sessionEnded(s)
}

func node(i int) handshake.NodeID       { return handshake.NodeID{byte(i)} }
func process(i int) handshake.ProcessID { return handshake.ProcessID{0xff, byte(i)} }
func host(i int) string                 { return "node-" + string(rune('a'+i)) }
func addr(i int) netip.Addr             { return netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}) }

// hostPort is a port of a node.
func hostPort(netdev string, at netip.Addr, kind lane.Kind, index uint8) lane.Port {
	raw := at.As16()
	p := tcp.NewPort(topology.Port{
		Netdev: netdev, Active: true, Carrier: true, Addrs: []netip.Prefix{netip.PrefixFrom(at, 8)},
		GIDs: []topology.Address{{Addr: netip.AddrFrom16(raw), Type: topology.GIDTypeNone, Netdev: netdev, PrefixLen: 8}},
	}, index, tcp.Options{})
	return kindPort{p, kind}
}

// kindPort is a port that claims to be of another kind.
type kindPort struct {
	*tcp.Port
	kind lane.Kind
}

func (p kindPort) Kind() lane.Kind { return p.kind }

// told is the description of a node's two ports for peers.
func told(i int) (all []handshake.Port) {
	for index := range 2 {
		all = append(all, handshake.Port{
			Index: uint8(index), Netdev: "lo",
			Addrs: []handshake.PortAddr{{Addr: netip.AddrFrom16(addr(i).As16()), GIDType: handshake.GIDTypeNone, PrefixLen: 8}},
		})
	}
	return all
}

// newSession returns node i's end of a session with node j.
func newSession(i, j int) *fakeSession {
	return &fakeSession{
		id: handshake.SessionID{byte(min(i, j)), byte(max(i, j))}, local: host(i),
		peer: control.Peer{Process: process(j), Node: node(j), Hostname: host(j), Ports: told(j)},
		sent: make(chan handshake.Message, 4*maxCircuits),
	}
}

// next returns the next message that was sent.
func (s *fakeSession) next(t *hosts.Test) handshake.Message {
	t.Helper()
	select {
	case m := <-s.sent:
		return m
	case <-time.After(hang):
		t.Fatal("waited too long for a message")
		return nil
	}
}

// quiet fails the test if another message was sent.
func (s *fakeSession) quiet(t *hosts.Test) {
	t.Helper()
	select {
	case m := <-s.sent:
		t.Errorf("%s also sent %s %v: %+v", s.local, s.peer.Hostname, m.Type(), m)
	default:
	}
}

// fakeMaker makes forwarding parts that record their calls.
type fakeMaker struct {
	beginErr, connectErr error
	hold                 chan struct{} // if not nil, Begin waits for it, and says that it does
	inside               chan bool
	made                 chan *fakeJoint
}

// panics is a Maker that panics.
type panics struct{}

func (panics) Begin(*handshake.CircuitOpen, HopPair) (Relayed, error) { panic("a maker") }

type fakeJoint struct {
	HopPair
	m       *fakeMaker
	ask     *handshake.CircuitOpen
	next    *handshake.CircuitOpened
	dropped chan error
}

func (m *fakeMaker) Begin(ask *handshake.CircuitOpen, j HopPair) (Relayed, error) {
	if m.hold != nil {
		m.inside <- true
		<-m.hold
	}
	if m.beginErr != nil {
		return nil, m.beginErr
	}
	f := &fakeJoint{HopPair: j, m: m, ask: ask, dropped: make(chan error, 8)}
	m.made <- f
	return f, nil
}

func (j *fakeJoint) Next() Offer {
	return Offer{Half: handshake.Lane{QPN: 77}, Write: handshake.Ring{Base: 1, Key: 2, Size: 3}, Read: handshake.Ring{Base: 4, Key: 5, Size: 6}, Room: 1 << 16}
}

func (j *fakeJoint) Connect(_ context.Context, next *handshake.CircuitOpened) error {
	j.next = next
	return j.m.connectErr
}

func (j *fakeJoint) Prev() Offer {
	return Offer{Half: handshake.Lane{QPN: 78}, Write: handshake.Ring{Base: 7, Key: 8, Size: 9}, Room: 1 << 15}
}

func (j *fakeJoint) Drop(why error) { j.dropped <- why }

// bench is relay B on a path A - B - C, with fake neighbours and makers.
type bench struct {
	*Relay
	a, c  *fakeSession
	maker *fakeMaker
	noC   error // why C cannot be reached
}

func newBench(t *hosts.Test, change ...func(*Config)) *bench {
	t.Helper()
	b := &bench{a: newSession(1, 0), c: newSession(1, 2), maker: &fakeMaker{made: make(chan *fakeJoint, 4*maxCircuits)}}
	p := t.Process("b")
	cfg := Config{
		Process: process(1), Node: node(1), Verbs: b.maker, Clock: p.Clock(), Random: p.Random(), GIDs: topology.AnyGID,
		Ports: []lane.Port{hostPort("lo", addr(1), lane.Verbs, 0), hostPort("lo", addr(1), lane.Verbs, 1), hostPort("wlan0", addr(1), lane.TCP, 2)},
	}
	for _, f := range change {
		f(&cfg)
	}
	b.Relay = New(cfg)
	b.makers[handshake.LaneTCP] = b.maker
	b.neighbour = func(_ context.Context, p handshake.ProcessID, _ uint8) (session, error) {
		if b.noC != nil {
			return nil, b.noC
		}
		return map[handshake.ProcessID]session{process(0): b.a, process(2): b.c}[p], nil
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// ask returns A's CircuitOpen: through B to C, which relays it to D or is the receiver.
func ask(n uint32, change ...func(*handshake.CircuitOpen)) *handshake.CircuitOpen {
	m := &handshake.CircuitOpen{
		Circuit: n, Kind: handshake.LaneVerbs, Half: handshake.Lane{Kind: handshake.LaneVerbs, Port: 1, Addr: netip.AddrFrom16(addr(0).As16())},
		Route: []handshake.Hop{{Process: process(1), Node: node(1), In: 0, Out: 1}, {Process: process(2), Node: node(2), In: 1, Out: 0}},
		Final: handshake.Final{Process: process(3), Node: node(3), Token: 99},
	}
	for _, f := range change {
		f(m)
	}
	return m
}

func toC(m *handshake.CircuitOpen) {
	m.Route = m.Route[:1]
	m.Final = handshake.Final{Process: process(2), Node: node(2), Token: 99, Port: 1}
}

func wait[T any](t *hosts.Test, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(hang):
		t.Fatalf("waited too long for %s", what)
		panic("not reached")
	}
}

func reasonSaid(t *hosts.Test, s *fakeSession, want handshake.CircuitClose) {
	t.Helper()
	d, ok := s.next(t).(*handshake.CircuitClose)
	if !ok || d.Circuit != want.Circuit || d.Asker != want.Asker || !strings.Contains(d.Reason, want.Reason) {
		t.Errorf("%s sent %s %+v, want a CircuitClose like %+v", s.local, s.peer.Hostname, d, want)
	}
}

// A wrong CircuitOpen is refused with the reason, and counted.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		change func(*handshake.CircuitOpen)
		config func(*Config)
		reason string
		says   string
	}{
		{"off", nil, func(c *Config) { c.Refuse = func() error { return errors.New("NCCL_MESH_RELAY is 0 there") } }, reasonOff, "node-b: relaying is off: NCCL_MESH_RELAY is 0 there"},
		{"another process", func(m *handshake.CircuitOpen) { m.Route[0].Process = process(7) }, nil, reasonSelf, "node-b: the relay named is another process"},
		{"another node", func(m *handshake.CircuitOpen) { m.Route[0].Node = node(7) }, nil, reasonSelf, "another process"},
		{"back to the asker", func(m *handshake.CircuitOpen) { m.Route[1].Node = node(0) }, nil, reasonLoop, "leads back"},
		{"ends at the asker", func(m *handshake.CircuitOpen) { m.Final.Node = node(0) }, nil, reasonLoop, "leads back"},
		{"no such port in", func(m *handshake.CircuitOpen) { m.Route[0].In = 3 }, nil, reasonPort, "port 3 for a queue pair"},
		{"no such port out", func(m *handshake.CircuitOpen) { m.Route[0].Out = 255 }, nil, reasonPort, "port 255"},
		{"a port of another kind", func(m *handshake.CircuitOpen) { m.Route[0].Out = 2 }, nil, reasonPort, "port 2 for a queue pair"},
		{"a kind that is not made", nil, func(c *Config) { c.Verbs = nil }, reasonKind, "queue pair"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				b := newBench(t, func(c *Config) {
					if tt.config != nil {
						tt.config(c)
					}
				})
				m := ask(5)
				if tt.change != nil {
					tt.change(m)
				}
				if !b.message(b.a, m) {
					t.Error("the message is no circuit's")
				}
				reasonSaid(t, b.a, handshake.CircuitClose{Circuit: 5, Reason: tt.says})
				b.a.quiet(t)
				if diff := cmp.Diff(Stats{Refused: map[string]uint64{tt.reason: 1}}, b.Stats()); diff != "" {
					t.Errorf("counters (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A circuit is requested from the next process, and then confirmed to the previous one, whether another relay or the
// receiver is next.
func TestSetUp(t *testing.T) {
	half := func(own, peer uint8, qpn uint32) handshake.Lane {
		return handshake.Lane{Kind: handshake.LaneVerbs, Port: own, PeerPort: peer, QPN: qpn, Addr: netip.AddrFrom16([16]byte{})}
	}
	tests := []struct {
		name   string
		change func(*handshake.CircuitOpen)
		onward handshake.Message
		joint  HopPair
	}{
		{"to a relay", func(*handshake.CircuitOpen) {}, &handshake.CircuitOpen{
			Circuit: 1, Kind: handshake.LaneVerbs, Room: 1 << 16, Half: half(1, 1, 77), Back: handshake.Ring{Base: 1, Key: 2, Size: 3},
			Route: ask(0).Route[1:], Final: ask(0).Final,
		}, HopPair{}},
		{"to the receiver", toC, &handshake.CircuitDeliver{
			Circuit: 1, Token: 99, Half: half(1, 1, 77), Write: handshake.Ring{Base: 1, Key: 2, Size: 3}, Read: handshake.Ring{Base: 4, Key: 5, Size: 6},
		}, HopPair{Last: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				b := newBench(t)
				b.message(b.a, ask(5, tt.change))
				j := wait(t, "a joint", b.maker.made)
				if diff := cmp.Diff(tt.onward, b.c.next(t), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
					t.Errorf("to the next (-want +got):\n%s", diff)
				}
				b.a.quiet(t) // before the next has answered
				answer := &handshake.CircuitOpened{Circuit: 1, Room: 1 << 14, Half: half(1, 1, 5)}
				b.message(b.c, answer)
				want := &handshake.CircuitOpened{Circuit: 5, Room: 1 << 15, Half: half(0, 1, 78), Write: handshake.Ring{Base: 7, Key: 8, Size: 9}}
				if diff := cmp.Diff(handshake.Message(want), b.a.next(t), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
					t.Errorf("to the asker (-want +got):\n%s", diff)
				}
				if j.next != answer {
					t.Errorf("the joint was told %+v, want the next one's answer", j.next)
				}
				type leg struct {
					from, to, name string
					peer           uint8
					hop            handshake.LaneName
				}
				view := func(l Leg) leg {
					return leg{l.From.Addr.Unmap().String(), l.To.Unmap().String(), l.Name, l.Peer, l.Hop}
				}
				name := func(s session, n uint32) handshake.LaneName {
					return handshake.LaneName{Session: s.ID(), Conn: n, Lane: handshake.HopLane}
				}
				wantLegs := []leg{{"10.0.0.2", "10.0.0.1", "node-a", 1, name(b.a, 5)}, {"10.0.0.2", "10.0.0.3", "node-c", 1, name(b.c, 1)}}
				if diff := cmp.Diff(wantLegs, []leg{view(j.In), view(j.Out)}, cmp.AllowUnexported(leg{})); diff != "" || j.Last != tt.joint.Last {
					t.Errorf("legs, last %v (-want +got):\n%s", j.Last, diff)
				}
				b.message(b.c, answer) // again: nobody waits for it
				if diff := cmp.Diff(Stats{Now: 1, Carried: 1, Strange: 1, Askers: []string{"node-a"}}, b.Stats()); diff != "" {
					t.Errorf("counters (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// If any process ends a circuit, in any state, the others are notified once, and it is removed.
func TestEnds(t *testing.T) {
	const (
		making  = "while it is made"
		asked   = "while the next is asked"
		standng = "once it stands"
	)
	type said struct{ a, c string } // reasons in Drops
	tests := []struct {
		who  string
		what func(b *bench, j *fakeJoint)
		at   map[string]said
	}{
		{"the asker drops it", func(b *bench, _ *fakeJoint) {
			b.message(b.a, &handshake.CircuitClose{Circuit: 5, Asker: true, Reason: "node-a: enough"})
		}, map[string]said{making: {}, asked: {c: "node-a: enough"}, standng: {c: "node-a: enough"}}},
		{"the next drops it", func(b *bench, _ *fakeJoint) {
			b.message(b.c, &handshake.CircuitClose{Circuit: 1, Reason: "node-d: broken"})
		},
			map[string]said{asked: {a: "node-d: broken"}, standng: {a: "node-d: broken"}}},
		{"the asker's session ends", func(b *bench, _ *fakeJoint) { b.a.end(b.Relay) },
			map[string]said{making: {}, asked: {c: "node-b: its session with node-a has ended"}, standng: {c: "node-b: its session with node-a"}}},
		{"the next one's session ends", func(b *bench, _ *fakeJoint) { b.c.end(b.Relay) },
			map[string]said{asked: {a: "node-b: its session with node-c has ended"}, standng: {a: "node-b: its session with node-c"}}},
		{"the joint fails", func(_ *bench, j *fakeJoint) { j.Ended(errors.New("socket broke")) },
			map[string]said{standng: {a: "node-b: socket broke", c: "node-b: socket broke"}}},
		{"the joint is done", func(_ *bench, j *fakeJoint) { j.Ended(nil) },
			map[string]said{standng: {a: "both ends have closed", c: "both ends have closed"}}},
		{"a port goes down", func(b *bench, _ *fakeJoint) { b.PortDown(1, errors.New("p1 has no carrier")) },
			map[string]said{making: {a: "node-b: p1 has no carrier"}, asked: {a: "p1 has no carrier", c: "p1 has no carrier"}, standng: {a: "p1 has no carrier", c: "node-b: p1 has no carrier"}}},
		{"the process ends", func(b *bench, _ *fakeJoint) { _ = b.Close() },
			map[string]said{asked: {a: "node-b: its process ends", c: "its process ends"}, standng: {a: "node-b: its process ends", c: "its process ends"}}},
		{"the asker uses the number again", func(b *bench, _ *fakeJoint) { b.message(b.a, ask(5)) },
			map[string]said{making: {a: reasonTwice}, asked: {a: reasonTwice, c: reasonTwice}, standng: {a: reasonTwice, c: reasonTwice}}},
	}
	for _, tt := range tests {
		for stage, want := range tt.at {
			t.Run(tt.who+" "+stage, func(t *testing.T) {
				hosts.Run(t, func(t *hosts.Test) {
					b := newBench(t)
					b.maker.hold, b.maker.inside = make(chan struct{}), make(chan bool, 1)
					b.message(b.a, ask(5))
					wait(t, "the maker", b.maker.inside)
					var j *fakeJoint
					if stage != making {
						close(b.maker.hold)
						j = wait(t, "a joint", b.maker.made)
						b.c.next(t)
					}
					if stage == standng {
						b.message(b.c, &handshake.CircuitOpened{Circuit: 1, Half: handshake.Lane{Kind: handshake.LaneVerbs}})
						b.a.next(t)
					}
					tt.what(b, j)
					if stage == making {
						close(b.maker.hold)
						j = wait(t, "a joint", b.maker.made)
					}
					wait(t, "the joint's end", j.dropped)
					if want.a != "" {
						reasonSaid(t, b.a, handshake.CircuitClose{Circuit: 5, Reason: want.a})
					}
					if want.c != "" {
						reasonSaid(t, b.c, handshake.CircuitClose{Circuit: 1, Asker: true, Reason: want.c})
					}
					t.Until("the slot", func() bool { return b.Stats().Now == 0 })
					for _, again := range []handshake.Message{&handshake.CircuitClose{Circuit: 5, Asker: true}, &handshake.CircuitClose{Circuit: 5}} {
						b.message(b.a, again) // changes nothing
					}
					b.message(b.c, &handshake.CircuitClose{Circuit: 1})
					b.a.quiet(t)
					b.c.quiet(t)
					if n := b.Stats().Strange; n != 3 {
						t.Errorf("%d strange messages, want 3", n)
					}
					if len(j.dropped) != 0 {
						t.Error("the joint was dropped twice")
					}
				})
			})
		}
	}
}

// Circuits in set-up when the process ends, or when new circuits are stopped, end with that reason, also if the set-up
// is cancelled before its circuit is ended.
func TestEndsWhileAsking(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(b *bench, noMore func())
	}{
		{"the process ends", func(b *bench, _ func()) { _ = b.Close() }},
		{"nothing more is to begin", func(_ *bench, noMore func()) { noMore() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				ctx, noMore := context.WithCancel(context.Background())
				defer noMore()
				b := newBench(t, func(c *Config) { c.Context = ctx })
				const circuits = 3
				for n := range circuits {
					b.message(b.a, ask(uint32(n+1)))
					b.c.next(t)
				}
				b.a.before = func() { t.Sleep(0) } // all that has been woken goes on before the next circuit is ended
				tt.end(b, noMore)
				for range circuits {
					d, ok := b.a.next(t).(*handshake.CircuitClose)
					if !ok || d.Reason != "node-b: its process ends" {
						t.Errorf("the asker heard %+v, want a CircuitClose because the process ends", d)
					}
				}
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// An error at this relay while a circuit is made is reported to the side that requested it.
func TestFailures(t *testing.T) {
	tests := []struct {
		name string
		do   func(b *bench)
		says string
		c    bool // C was asked, and hears of it
	}{
		{"the next cannot be reached", func(b *bench) { b.noC = errors.New("no way to node-c") }, "node-b: no way to node-c", false},
		{"nothing can be made", func(b *bench) { b.maker.beginErr = errors.New("no memory") }, "node-b: no memory", false},
		{"it cannot be connected", func(b *bench) { b.maker.connectErr = errors.New("no route") }, "node-b: no route", true},
		{"a panic", func(b *bench) { b.makers[handshake.LaneVerbs] = panics{} }, "node-b: panic: a maker", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				b := newBench(t)
				tt.do(b)
				b.message(b.a, ask(5))
				if tt.c {
					b.c.next(t)
					b.message(b.c, &handshake.CircuitOpened{Circuit: 1, Half: handshake.Lane{Kind: handshake.LaneVerbs}})
					reasonSaid(t, b.c, handshake.CircuitClose{Circuit: 1, Asker: true, Reason: tt.says})
				}
				reasonSaid(t, b.a, handshake.CircuitClose{Circuit: 5, Reason: tt.says})
				t.Until("the slot", func() bool { return b.Stats().Now == 0 })
				b.a.quiet(t)
				b.c.quiet(t)
			})
		})
	}
}

// One neighbour that requests a thousand circuits gets its share; another neighbour still gets some; and there is a
// total limit. Circuits that have ended make room.
func TestLimits(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newBench(t)
		for n := range 1000 {
			b.message(b.a, ask(uint32(n+1)))
		}
		var sessions []*fakeSession
		from := func(i int) func(*handshake.CircuitOpen) {
			return func(m *handshake.CircuitOpen) { m.Half.Addr = netip.AddrFrom16(addr(i).As16()) }
		}
		atOther := func(m *handshake.CircuitOpen) { m.Route[0].In, m.Route[0].Out = 1, 0 }
		for i := 10; i < 20; i++ {
			s := newSession(1, i)
			sessions = append(sessions, s)
			for n := range 100 {
				b.message(s, ask(uint32(n+1), from(i)))
			}
		}
		other := newSession(1, 20) // over another cable, where there is room
		sessions = append(sessions, other)
		for n := range maxCircuits - maxOfCable + 1 {
			b.message(other, ask(uint32(n+1), from(20), atOther))
		}
		third := newSession(1, 21)
		b.message(third, ask(1, from(21), atOther))
		s := b.Stats()
		want := Stats{Now: maxCircuits, Refused: map[string]uint64{
			reasonSession: 1000 - maxOfSession + 1, reasonCable: 10*100 - (maxOfCable - maxOfSession), reasonFull: 1,
		}}
		if diff := cmp.Diff(want, s); diff != "" {
			t.Errorf("counters (-want +got):\n%s", diff)
		}
		for range maxCircuits { // all of them are being asked for
			b.c.next(t)
		}
		b.a.end(b.Relay)
		t.Until("the slots", func() bool { return b.Stats().Now == maxCircuits-maxOfSession })
		b.message(sessions[9], ask(1000, from(19)))
		for range maxOfSession {
			d, ok := b.c.next(t).(*handshake.CircuitClose)
			if !ok || !d.Asker {
				t.Errorf("C hears %+v, want a CircuitClose of what A had", d)
			}
		}
		if m, ok := b.c.next(t).(*handshake.CircuitOpen); !ok {
			t.Errorf("C hears %+v, want the CircuitOpen for which there is room again", m)
		}
		if n := b.Stats().Now; n != maxCircuits-maxOfSession+1 {
			t.Errorf("%d circuits after another was asked for, want %d", n, maxCircuits-maxOfSession+1)
		}
		if len(b.inbound) != b.Stats().Now || len(b.slots) > maxCircuits || b.cables[cable{port: 0}]+b.cables[cable{port: 1}] != len(b.inbound) {
			t.Errorf("%d held, %d slots, of cables %v", len(b.inbound), len(b.slots), b.cables)
		}
	})
}

// A neighbour's circuits count for its cable, whichever port it names.
func TestCableIsTheNeighbours(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newBench(t)
		for i := range 4 {
			s := newSession(1, 10+i)
			s.cable = "p0"
			for n := range maxOfSession {
				b.message(s, ask(uint32(n+1), func(m *handshake.CircuitOpen) {
					m.Half.Addr = netip.AddrFrom16(addr(10 + i).As16())
					m.Route[0].In, m.Route[0].Out = uint8(n)&1, 1-uint8(n)&1
				}))
			}
		}
		want := Stats{Now: maxOfCable, Refused: map[string]uint64{reasonCable: 4*maxOfSession - maxOfCable}}
		if diff := cmp.Diff(want, b.Stats()); diff != "" {
			t.Errorf("counters (-want +got):\n%s", diff)
		}
	})
}

// The rate of set-ups for the neighbours of one cable is limited. Those of another cable do not wait, and set-ups that
// cannot be made in time are refused at once.
func TestPace(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newBench(t)
		b.maker.beginErr = errors.New("no queue pair")
		b.a.sent, b.c.sent = make(chan handshake.Message, 16*maxCircuits), make(chan handshake.Message, 16*maxCircuits)
		n := uint32(0)
		failed := func(want uint64) {
			t.Helper()
			t.Sleep(0)
			if got := b.Stats().Failed; got != want {
				t.Errorf("%d set-ups have been tried, want %d", got, want)
			}
		}
		began := time.Now()
		for n < setUpBurst {
			for range maxOfSession {
				n++
				b.message(b.a, ask(n))
			}
			t.Sleep(0)
		}
		failed(setUpBurst)
		if took := time.Since(began); took > time.Microsecond {
			t.Errorf("the first %d took %v", setUpBurst, took)
		}
		for range setUpRate {
			n++
			b.message(b.a, ask(n))
		}
		failed(setUpBurst)
		b.message(newSession(1, 20), ask(1, func(m *handshake.CircuitOpen) {
			m.Route[0].In, m.Route[0].Out, m.Half.Addr = 1, 0, netip.AddrFrom16(addr(20).As16())
		}))
		failed(setUpBurst + 1)
		time.Sleep(time.Second)
		failed(setUpBurst + setUpRate + 1)
		b.pace(cable{}).ReserveN(time.Now(), setUpBurst)
		b.pace(cable{}).ReserveN(time.Now(), setUpBurst)
		n++
		b.message(b.a, ask(n))
		failed(setUpBurst + setUpRate + 2)
		if got := b.Stats().Refused[reasonPace]; got != 1 {
			t.Errorf("%d were refused as too many, want 1", got)
		}
	})
}

// Messages about unknown circuits have no effect.
func TestStrange(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newBench(t)
		for n := range uint32(1000) {
			b.message(b.a, &handshake.CircuitOpened{Circuit: n})
			b.message(b.a, &handshake.CircuitClose{Circuit: n})
			b.message(b.a, &handshake.CircuitClose{Circuit: n, Asker: true})
			b.message(b.a, &handshake.CircuitDeliver{Circuit: n, Token: uint64(n)})
		}
		if b.message(b.a, &handshake.Bye{}) {
			t.Error("a Bye was taken")
		}
		want := Stats{Strange: 3000, Refused: map[string]uint64{reasonToken: 1000}}
		if diff := cmp.Diff(want, b.Stats()); diff != "" {
			t.Errorf("counters (-want +got):\n%s", diff)
		}
		if len(b.inbound)+len(b.requested)+len(b.slots) != 0 {
			t.Errorf("%d held, %d asked, %d slots", len(b.inbound), len(b.requested), len(b.slots))
		}
	})
}

// The process that requested a circuit is notified once of a refusal, of its end, and of the end of the session.
func TestAsking(t *testing.T) {
	tests := []struct {
		name   string
		answer bool
		end    func(b *bench, cancel func())
		says   string // in the error, or to dropped
		drop   string // what the relay hears
	}{
		{"refused", false, func(b *bench, _ func()) {
			b.message(b.c, &handshake.CircuitClose{Circuit: 1, Reason: "node-c: relaying is off"})
		}, "node-c: relaying is off", ""},
		{"session gone before", false, func(b *bench, _ func()) { b.c.end(b.Relay) }, "session with node-c has ended", ""},
		{"given up", false, func(_ *bench, cancel func()) { cancel() }, "node-c has not answered", "node-b: it did not wait any longer"},
		{"closed", false, func(b *bench, _ func()) { _ = b.Close() }, "", "its process ends"},
		{"dropped", true, func(b *bench, _ func()) {
			b.message(b.c, &handshake.CircuitClose{Circuit: 1, Reason: "node-d: broken"})
		}, "node-d: broken", ""},
		{"session gone", true, func(b *bench, _ func()) { b.c.end(b.Relay) }, "session with node-c has ended", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				b := newBench(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				dropped, failed, got := make(chan error, 8), make(chan error, 1), make(chan *lane.OpenedCircuit, 1)
				m := ask(0)
				m.Half, m.Route = handshake.Lane{Token: 4}, m.Route[1:]
				go func() {
					a, err := b.OpenCircuit(ctx, 1, m, func(err error) { dropped <- err }, nil)
					if err != nil {
						failed <- err
						return
					}
					got <- a
				}()
				c, ok := b.c.next(t).(*handshake.CircuitOpen)
				want := handshake.Lane{Kind: handshake.LaneVerbs, Port: 1, PeerPort: 1, Token: 4, Addr: netip.AddrFrom16(addr(1).As16())}
				if !ok || c.Half != want || c.Circuit != 1 {
					t.Fatalf("asked for %+v, want the half %+v", c, want)
				}
				var a *lane.OpenedCircuit
				if tt.answer {
					b.message(b.c, &handshake.CircuitOpened{Circuit: 1, Room: 7, Half: handshake.Lane{Kind: handshake.LaneVerbs}})
					a = wait(t, "the circuit", got)
					if a.Room != 7 || a.Hop != (handshake.LaneName{Session: b.c.id, Conn: 1, Lane: handshake.HopLane}) || a.Key != b.c.HopKey() || a.From.Addr.Unmap() != addr(1) {
						t.Errorf("the circuit is %+v", a)
					}
				}
				tt.end(b, cancel)
				from := failed
				if tt.answer {
					from = dropped
				}
				if err := wait(t, "the end", from); !strings.Contains(err.Error(), tt.says) {
					t.Errorf("the end is %v, want %q", err, tt.says)
				}
				if tt.drop != "" {
					reasonSaid(t, b.c, handshake.CircuitClose{Circuit: 1, Asker: true, Reason: tt.drop})
				}
				if a != nil {
					a.Drop("late")
				}
				b.c.quiet(t)
				if len(dropped) != 0 || len(b.requested) != 0 {
					t.Errorf("%d more drops, %d hops", len(dropped), len(b.requested))
				}
			})
		})
	}
}

// A circuit that is dropped by the process that requested it is not reported to that process as lost.
func TestDropOwn(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		b := newBench(t)
		m := ask(0)
		m.Route = m.Route[1:]
		got := make(chan *lane.OpenedCircuit, 1)
		go func() {
			a, err := b.OpenCircuit(t.Context(), 1, m, func(err error) { t.Errorf("dropped: %v", err) }, nil)
			if err != nil {
				t.Error(err)
			}
			got <- a
		}()
		b.c.next(t)
		b.message(b.c, &handshake.CircuitOpened{Circuit: 1, Half: handshake.Lane{Kind: handshake.LaneVerbs}})
		a := wait(t, "the circuit", got)
		a.Drop("node-b: done")
		a.Drop("again")
		reasonSaid(t, b.c, handshake.CircuitClose{Circuit: 1, Asker: true, Reason: "node-b: done"})
		b.c.end(b.Relay)
		b.c.quiet(t)
	})
}

// A circuit that ends here is accepted once, by the caller that expects it, and its end is reported to the other side.
func TestArrivals(t *testing.T) {
	tests := []struct {
		name    string
		fail    error
		end     func(b *bench, drop func(string))
		dropped string // what this side hears
		said    string // what the relay hears
	}{
		{"not taken", errors.New("no queue pair"), nil, "", "node-b: no queue pair"},
		{"dropped by the relay", nil, func(b *bench, _ func(string)) {
			b.message(b.a, &handshake.CircuitClose{Circuit: 5, Asker: true, Reason: "node-a: gone"})
		}, "node-a: gone", ""},
		{"its session ends", nil, func(b *bench, _ func(string)) { b.a.end(b.Relay) }, "session with node-a has ended", ""},
		{"dropped here", nil, func(_ *bench, drop func(string)) { drop("enough"); drop("again") }, "", "node-b: enough"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				b := newBench(t)
				dropped, drops := make(chan error, 8), make(chan func(string), 1)
				expect := func(token uint64) error {
					return b.Expect(token, func(_ context.Context, m *handshake.CircuitDeliver, drop func(string)) (*handshake.CircuitOpened, error) {
						drops <- drop
						return &handshake.CircuitOpened{Room: uint32(m.Token), Half: handshake.Lane{Kind: handshake.LaneVerbs}}, tt.fail
					}, func(err error) { dropped <- err })
				}
				if err := errors.Join(expect(9), expect(10)); err != nil {
					t.Fatal(err)
				}
				if err := expect(9); err == nil {
					t.Error("a token was expected twice")
				}
				b.Cancel(10)
				for _, token := range []uint64{10, 9, 9} {
					b.message(b.a, &handshake.CircuitDeliver{Circuit: uint32(token) - 4, Token: token, Half: handshake.Lane{Kind: handshake.LaneVerbs}})
					if token == 10 {
						reasonSaid(t, b.a, handshake.CircuitClose{Circuit: 6, Reason: reasonLate})
					}
				}
				refused := b.a.next(t) // of the second 9, which comes before or after the answer to the first
				if tt.fail == nil {
					answer, ok := refused.(*handshake.CircuitOpened)
					if !ok {
						answer, ok = b.a.next(t).(*handshake.CircuitOpened)
					} else {
						b.a.next(t)
					}
					if !ok || answer.Circuit != 5 || answer.Room != 9 {
						t.Errorf("the answer is %+v", answer)
					}
					tt.end(b, wait(t, "the arrival", drops))
				} else {
					d1, _ := refused.(*handshake.CircuitClose)
					d2, _ := b.a.next(t).(*handshake.CircuitClose)
					if d1 == nil || d2 == nil || !strings.Contains(d1.Reason+d2.Reason, tt.said) {
						t.Errorf("said %+v and %+v, want %q", d1, d2, tt.said)
					}
				}
				if tt.said != "" && tt.fail == nil {
					reasonSaid(t, b.a, handshake.CircuitClose{Circuit: 5, Reason: tt.said})
				}
				if tt.dropped != "" {
					if err := wait(t, "the end", dropped); !strings.Contains(err.Error(), tt.dropped) {
						t.Errorf("dropped: %v, want %q", err, tt.dropped)
					}
				}
				b.a.quiet(t)
				if diff := cmp.Diff(map[string]uint64{reasonLate: 1, reasonToken: 1}, b.Stats().Refused); diff != "" {
					t.Errorf("refused (-want +got):\n%s", diff)
				}
				if len(dropped) != 0 || len(b.inbound) != 0 {
					t.Errorf("%d more ends, %d held", len(dropped), len(b.inbound))
				}
			})
		})
	}
}

// Circuits that end together end in the order of their numbers, every time.
func TestEndInOrder(t *testing.T) {
	const circuits = 40
	for _, tt := range []struct {
		name string
		end  func(b *bench)
	}{
		{"a port goes down", func(b *bench) { b.PortDown(1, errors.New("p1 has no carrier")) }},
		{"the process ends", func(b *bench) { _ = b.Close() }},
		{"the next session ends", func(b *bench) { b.c.end(b.Relay) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				b := newBench(t)
				for n := range circuits {
					b.message(b.a, ask(uint32(n+1)))
					b.c.next(t)
					b.message(b.c, &handshake.CircuitOpened{Circuit: uint32(n + 1), Half: handshake.Lane{Kind: handshake.LaneVerbs}})
					b.a.next(t)
				}
				tt.end(b)
				var got, want []uint32
				for n := range circuits {
					m, ok := b.a.next(t).(*handshake.CircuitClose)
					if !ok {
						t.Fatalf("the asker heard %+v, want a CircuitClose", m)
					}
					got, want = append(got, m.Circuit), append(want, uint32(n+1))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("circuits that ended (-want +got):\n%s", diff)
				}
			})
		})
	}
}
