package tcp

import (
	"fmt"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/board"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// Options are those of all sockets.
type Options struct {
	Check   string        // CheckAuto, CheckOff or CheckOn
	Silence time.Duration // how long the peer's kernel may acknowledge nothing
	Data    *dataport.Endpoint
	Clock   clock.Clock   // makes the timers
	Random  random.Source // of what the two ends prove themselves with

	Circuits lane.Circuits // who is asked for lanes through other nodes; nil: nobody
}

// Port is a network interface. Open is all that it takes: sockets need no device.
type Port struct {
	lane.Local
	opts Options
}

var _ lane.Port = (*Port)(nil)

// NewPort makes a port of an interface, with that number among the node's.
func NewPort(t topology.Port, index uint8, o Options) *Port {
	p := &Port{opts: o}
	p.Set(index, t)
	return p
}

// Kind is [lane.TCP].
func (p *Port) Kind() lane.Kind { return lane.TCP }

// Traits: a part should be what a system call moves.
func (p *Port) Traits() lane.Traits {
	return lane.Traits{Polled: true, NoRKeys: true, Eager: true, MinPart: pollBytes}
}

// See takes note of the interface's present state.
func (p *Port) See(t topology.Port) (changed bool, err error) { return p.Local.See(t), nil }

// Describe has nothing to add.
func (p *Port) Describe(*handshake.Port) {}

// Open makes a domain.
func (p *Port) Open(c *lane.Shared, _ int, _ []handshake.Port) (lane.Domain, error) {
	return &domain{port: p, conn: c}, nil
}

// Close has nothing to give back.
func (p *Port) Close() error { return nil }

// domain is the sockets of a connection over one interface.
type domain struct {
	port    *Port
	conn    *lane.Shared
	sockets []*socket
}

func (d *domain) Key() uint32 { return 0 }

func (d *domain) Port() lane.Port { return d.port }

// HasRoom is true: sockets share nothing.
func (d *domain) HasRoom() bool { return true }

// NewLane makes the socket that carries l, to be connected.
func (d *domain) NewLane(l *lane.Lane) (lane.Carrier, error) {
	k, err := newSocket(d, l)
	if err != nil {
		return nil, err
	}
	d.sockets = append(d.sockets, k)
	return k, nil
}

// Source is none: sockets have to be read.
func (d *domain) Source() *board.Source { return nil }

// Poll moves what can be moved over every socket, at most pollBytes each way.
func (d *domain) Poll(receiving bool) {
	for _, k := range d.sockets {
		if err := k.poll(receiving); err != nil {
			k.lane.Break(err)
		}
	}
}

// Flush acknowledges what has arrived.
func (d *domain) Flush(idle bool) {
	if d.conn.Sending {
		return
	}
	for _, k := range d.sockets {
		if err := k.acknowledge(idle); err != nil {
			k.lane.Break(err)
		}
	}
}

// Register needs to do nothing: the kernel copies.
func (d *domain) Register(_, _ uintptr) (lane.Registration, error) { return nil, nil }

// RegisterDmaBuf refuses: the kernel does not copy from a GPU.
func (d *domain) RegisterDmaBuf(_, _ uintptr, _ uint64, _ int) (lane.Registration, error) {
	return nil, fmt.Errorf("%w: a connection over TCP takes host memory only", fault.ErrUsage)
}

// Close has nothing to give back: the sockets have been closed.
func (d *domain) Close() error { return nil }
