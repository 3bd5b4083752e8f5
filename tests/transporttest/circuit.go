package transporttest

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/transport"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/circuit"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/relay"
	"ncclmesh/transport/relay/engine"
	"ncclmesh/transport/topology"
)

// Circuits makes circuits through relays of the test's own process, all on one port: what
// package relay does by messages it does by calls.
type Circuits struct {
	Engines []*engine.Forwarder // one a relay, in order
	port    lane.Port           // for queue pairs
	from    topology.Address
	to      netip.Addr // of the receiver
	sender  lane.Port  // for circuits

	mu       sync.Mutex
	expected map[uint64]expectation
	carried  []*Carried
}

type expectation struct {
	arrive  lane.Deliver
	dropped func(error)
}

// Carried is a circuit that was made.
type Carried struct {
	Joints []relay.Relayed

	once           sync.Once
	sender, arrive func(error) // dropped, of both ends
}

// NewCircuits makes relays, which end with the test. The transports whose ports they use are
// to be made before.
func NewCircuits(t *testing.T, relays int) *Circuits {
	t.Helper()
	c := &Circuits{expected: map[uint64]expectation{}}
	for range relays {
		config := engine.Config{Log: slog.New(slog.NewTextHandler(logWriter{t}, nil)), Memory: 256 << 20}
		if w := worldOf(t); w != nil {
			config.Clock = w.machine().Clock
		}
		e := engine.New(config)
		c.Engines = append(c.Engines, e)
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Errorf("close an engine: %v", err)
			}
		})
	}
	return c
}

// Made are the circuits so far.
func (c *Circuits) Made() []*Carried {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.carried)
}

// Drop ends a circuit at its relays, and tells both ends.
func (k *Carried) Drop(why error) {
	for _, j := range k.Joints {
		j.Drop(why)
	}
	k.once.Do(func() {
		k.sender(why)
		k.arrive(why)
	})
}

// silence ends a circuit for an end, which is not told.
func (k *Carried) silence(why string) {
	k.once.Do(func() {})
	for _, j := range k.Joints {
		j.Drop(errors.New(why))
	}
}

// Carry makes a circuit through all relays.
func (c *Circuits) OpenCircuit(ctx context.Context, _ uint8, m *handshake.CircuitOpen, dropped, _ func(error)) (*lane.OpenedCircuit, error) {
	k := &Carried{sender: dropped}
	answer, err := c.carry(ctx, k, m, 0)
	if err != nil {
		k.silence(err.Error())
		return nil, err
	}
	c.mu.Lock()
	c.carried = append(c.carried, k)
	c.mu.Unlock()
	return &lane.OpenedCircuit{CircuitOpened: answer, From: c.from, Drop: k.silence}, nil
}

// carry makes the part of a relay, and what is behind it.
func (c *Circuits) carry(ctx context.Context, k *Carried, m *handshake.CircuitOpen, i int) (*handshake.CircuitOpened, error) {
	last := i == len(c.Engines)-1
	leg := relay.Leg{Port: c.port, From: c.from, To: c.from.Addr, Name: "there"}
	out := leg
	if last {
		out.To = c.to
	}
	if m.Half.Addr == (netip.Addr{}) || m.Half.Addr.IsUnspecified() {
		m.Half.Addr = c.from.Addr
	}
	j, err := c.Engines[i].Begin(m, relay.HopPair{In: leg, Out: out, Last: last, Ended: func(err error) { go k.Drop(err) }})
	if err != nil {
		return nil, err
	}
	k.Joints = append(k.Joints, j)
	o := j.Next()
	var answer *handshake.CircuitOpened
	if last {
		c.mu.Lock()
		x := c.expected[m.Final.Token]
		delete(c.expected, m.Final.Token)
		c.mu.Unlock()
		if x.arrive == nil {
			return nil, errors.New("nobody expects the circuit")
		}
		k.arrive = x.dropped
		answer, err = x.arrive(ctx, &handshake.CircuitDeliver{Token: m.Final.Token, Half: o.Half, Read: o.Read, Write: o.Write}, k.silence)
	} else {
		answer, err = c.carry(ctx, k, &handshake.CircuitOpen{Kind: m.Kind, Room: o.Room, Half: o.Half, Back: o.Write, Final: m.Final}, i+1)
	}
	if err != nil {
		return nil, err
	}
	if err := j.Connect(ctx, answer); err != nil {
		return nil, err
	}
	p := j.Prev()
	return &handshake.CircuitOpened{Room: p.Room, Half: p.Half, Write: p.Write}, nil
}

// Expect notes who takes a circuit.
func (c *Circuits) Expect(token uint64, arrive lane.Deliver, dropped func(error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expected[token] = expectation{arrive, dropped}
	return nil
}

// Cancel withdraws that.
func (c *Circuits) Cancel(token uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.expected, token)
}

// plan makes the sender's half of a circuit of one over a queue pair, and has the receiver
// make the other.
func (c *Circuits) plan(p lane.Spec, to *transport.Transport, gids topology.GIDPolicy) lane.Spec {
	c.port, c.from, c.to = p.Port, p.From, p.To
	o := circuit.Options{Circuits: c, GIDs: gids}
	ports := map[lane.Port]lane.Port{}
	to.Paths().Circuits = func(p lane.Port) lane.Port {
		if v, ok := p.(*verbs.Port); ok && ports[p] == nil {
			ports[p] = circuit.NewPort(v, o)
		}
		return ports[p]
	}
	p.Port = c.own(p.Port.(*verbs.Port), o)
	p.Route = &lane.Route{Via: make([]handshake.Hop, len(c.Engines)), Names: slices.Repeat([]string{"relay"}, len(c.Engines))}
	return p
}

// own is the sender's port for circuits.
func (c *Circuits) own(p *verbs.Port, o circuit.Options) lane.Port {
	if c.sender == nil {
		c.sender = circuit.NewPort(p, o)
	}
	return c.sender
}

var _ lane.Circuits = (*Circuits)(nil)
