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

// Options are the options of all sockets.
type Options struct {
	Check   string        // CheckAuto, CheckOff or CheckOn
	Silence time.Duration // how long the peer's kernel may acknowledge nothing before the lane fails
	Data    *dataport.Endpoint
	Clock   clock.Clock   // makes the timers
	Random  random.Source // source of the tokens by which the two ends authenticate each other

	Circuits lane.Circuits // makes circuits through relays; nil: not supported
}

// Port is a network interface. Sockets need no device.
type Port struct {
	lane.Local
	opts Options
}

var (
	_ lane.Port         = (*Port)(nil)
	_ lane.Domain       = (*domain)(nil)
	_ lane.Carrier      = (*socket)(nil)
	_ lane.EagerMatcher = (*socket)(nil)
)

// NewPort creates the port of an interface; index is its number among the node's ports.
func NewPort(t topology.Port, index uint8, o Options) *Port {
	p := &Port{opts: o}
	p.Set(index, t)
	return p
}

// Kind returns [lane.TCP].
func (p *Port) Kind() lane.Kind { return lane.TCP }

// Traits returns the properties of sockets. A part should have as many bytes as one poll moves.
func (p *Port) Traits() lane.Traits {
	return lane.Traits{Polled: true, NoRKeys: true, Eager: true, HostOnly: true, MinPart: pollBytes}
}

// See records the interface's present state and reports whether it has changed.
func (p *Port) See(t topology.Port) (changed bool, err error) { return p.Local.See(t), nil }

// Describe does nothing: sockets have no further fields.
func (p *Port) Describe(*handshake.Port) {}

// Open creates a domain.
func (p *Port) Open(c *lane.Shared, _ int, _ []handshake.Port) (lane.Domain, error) {
	return &domain{port: p, conn: c}, nil
}

// Close does nothing: a TCP port holds no resources.
func (p *Port) Close() error { return nil }

// domain holds the sockets of a connection over one interface.
type domain struct {
	port    *Port
	conn    *lane.Shared
	sockets []*socket
}

func (d *domain) Key() uint32 { return 0 }

func (d *domain) Port() lane.Port { return d.port }

// HasRoom returns true, because sockets share no resource.
func (d *domain) HasRoom() bool { return true }

// NewLane creates the socket that carries l, not yet connected.
func (d *domain) NewLane(l *lane.Lane) (lane.Carrier, error) {
	k, err := newSocket(d, l)
	if err != nil {
		return nil, err
	}
	d.sockets = append(d.sockets, k)
	return k, nil
}

// Source returns nil, because sockets have no completion queue.
func (d *domain) Source() *board.Source { return nil }

// Poll sends and receives on every socket, at most pollBytes in each direction.
func (d *domain) Poll(receiving bool) {
	for _, k := range d.sockets {
		if err := k.poll(receiving); err != nil {
			k.lane.Break(err)
		}
	}
}

// Flush acknowledges parts that have arrived.
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

// Register does nothing, because the kernel copies.
func (d *domain) Register(lane.Memory) (lane.Registration, error) { return nil, nil }

// StartFlush returns an error, because sockets do not write GPU memory. Flushed returns true.
func (d *domain) StartFlush(r *lane.Region, _ uintptr) (bool, error) {
	return false, fmt.Errorf("%w: %v: a flush of %v, which arrived over a socket", fault.ErrInternal, d.conn, r.Memory)
}
func (d *domain) Flushed() (bool, error) { return true, nil }

// Close does nothing: the sockets have been closed.
func (d *domain) Close() error { return nil }
