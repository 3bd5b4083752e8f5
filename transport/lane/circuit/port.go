package circuit

import (
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/board"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/topology"
)

// cut is how many bytes a part should have at least: four frames that keep hops busy.
const minPart = 64 << 10

// Options are those of all circuits.
type Options struct {
	Circuits lane.Circuits
	GIDs     topology.GIDPolicy
}

// Port is an RDMA port at which circuits begin and end. Its device, its protection domain
// and its registrations are those of the port's queue pairs, and so is its number.
type Port struct {
	*verbs.Port
	opts Options
}

var _ lane.Port = (*Port)(nil)

// NewPort makes a port for circuits of one for queue pairs, which outlives it.
func NewPort(p *verbs.Port, o Options) *Port { return &Port{Port: p, opts: o} }

// Kind is [lane.Circuit].
func (p *Port) Kind() lane.Kind { return lane.Circuit }

// Traits: nothing moves between calls.
func (p *Port) Traits() lane.Traits { return lane.Traits{Polled: true, MinPart: minPart} }

// Open makes a domain.
func (p *Port) Open(c *lane.Shared, place int, _ []handshake.Port) (lane.Domain, error) {
	return &domain{port: p, conn: c, place: place}, nil
}

// Close has nothing to give back.
func (p *Port) Close() error { return nil }

// answer is the address with which to answer a relay at another; a relay chooses alike.
func (p *Port) answer(relay handshake.Lane, otherwise topology.Address) topology.Address {
	now := p.Now()
	for _, t := range []topology.GIDType{topology.GIDTypeRoCEv2, topology.GIDTypeIB, topology.GIDTypeRoCEv1} {
		if i, ok := now.Answer(handshake.PortAddr{Addr: relay.Addr, GIDType: uint8(t), PrefixLen: 1}, p.opts.GIDs); ok {
			return now.GIDs[i]
		}
	}
	return otherwise
}

// domain is the circuits of a connection over one port.
type domain struct {
	port     *Port
	conn     *lane.Shared
	place    int // among the connection's domains
	carriers []*carrier
}

func (d *domain) Key() uint32 { return 0 }

func (d *domain) Port() lane.Port { return d.port }

// HasRoom is true: circuits share nothing.
func (d *domain) HasRoom() bool { return true }

// NewLane makes this end of the circuit that carries l, to be connected.
func (d *domain) NewLane(l *lane.Lane) (lane.Carrier, error) {
	c, err := newCarrier(d, l)
	if err != nil {
		return nil, err
	}
	d.carriers = append(d.carriers, c)
	return c, nil
}

// Poll moves what can be moved.
func (d *domain) Poll(bool) {
	for _, c := range d.carriers {
		c.poll()
	}
}

// Source is none: frames come too, in rings.
func (d *domain) Source() *board.Source { return nil }

// Flush does nothing: Poll has told of what has arrived.
func (d *domain) Flush(bool) {}

// Register registers host memory, for queue pairs and circuits alike.
func (d *domain) Register(addr, length uintptr) (lane.Registration, error) {
	return d.port.Register(addr, length)
}

// RegisterDmaBuf registers the memory of a DMA-BUF.
func (d *domain) RegisterDmaBuf(addr, length uintptr, offset uint64, fd int) (lane.Registration, error) {
	return d.port.RegisterDmaBuf(addr, length, offset, fd)
}

// Close has nothing to give back: the carriers have been closed.
func (d *domain) Close() error { return nil }

// forget takes a carrier out.
func (d *domain) remove(c *carrier) {
	d.carriers = slices.DeleteFunc(d.carriers, func(o *carrier) bool { return o == c })
}
