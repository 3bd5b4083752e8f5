package circuit

import (
	"slices"

	"ncclmesh/handshake"
	"ncclmesh/transport/board"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/lane/verbs"
	"ncclmesh/transport/topology"
)

// minPart is the least number of bytes that a part should have: four frames, so that several hops work at the
// same time.
const minPart = 64 << 10

// Options are the options of all circuits.
type Options struct {
	Circuits lane.Circuits
	GIDs     topology.GIDPolicy
}

// Port is an RDMA port at which circuits begin and end. It shares the device, the protection domain, the
// registrations and the number of the port for queue pairs.
type Port struct {
	*verbs.Port
	opts Options
}

var (
	_ lane.Port    = (*Port)(nil)
	_ lane.Domain  = (*domain)(nil)
	_ lane.Carrier = (*carrier)(nil)
)

// NewPort creates the port for circuits of an RDMA port, which must outlive it.
func NewPort(p *verbs.Port, o Options) *Port { return &Port{Port: p, opts: o} }

// Kind returns [lane.Circuit].
func (p *Port) Kind() lane.Kind { return lane.Circuit }

// Traits returns the properties of circuits, which move nothing between calls.
func (p *Port) Traits() lane.Traits { return lane.Traits{Polled: true, MinPart: minPart} }

// Open creates a domain.
func (p *Port) Open(c *lane.Shared, place int, _ []handshake.Port) (lane.Domain, error) {
	return &domain{port: p, conn: c, place: place}, nil
}

// Close does nothing: the RDMA port holds the resources.
func (p *Port) Close() error { return nil }

// answer returns the local address for a queue pair to a relay's address, or otherwise if no address fits. A
// relay selects its address by the same rule.
func (p *Port) answer(relay handshake.Lane, otherwise topology.Address) topology.Address {
	now := p.Now()
	for _, t := range []topology.GIDType{topology.GIDTypeRoCEv2, topology.GIDTypeIB, topology.GIDTypeRoCEv1} {
		if i, ok := now.Answer(handshake.PortAddr{Addr: relay.Addr, GIDType: uint8(t), PrefixLen: 1}, p.opts.GIDs); ok {
			return now.GIDs[i]
		}
	}
	return otherwise
}

// domain holds the circuits of a connection over one port.
type domain struct {
	port     *Port
	conn     *lane.Shared
	place    int // index among the connection's domains
	carriers []*carrier
	loop     verbs.Loopback // for GPU memory
}

func (d *domain) Key() uint32 { return 0 }

func (d *domain) Port() lane.Port { return d.port }

// HasRoom returns true, because circuits share no resource.
func (d *domain) HasRoom() bool { return true }

// NewLane creates this end of the circuit that carries l, not yet connected.
func (d *domain) NewLane(l *lane.Lane) (lane.Carrier, error) {
	if err := d.loop.Renew(); err != nil {
		return nil, err
	}
	c, err := newCarrier(d, l)
	if err != nil {
		return nil, err
	}
	d.carriers = append(d.carriers, c)
	return c, nil
}

// Poll polls every circuit.
func (d *domain) Poll(bool) {
	d.loop.Poll()
	for _, c := range d.carriers {
		c.poll()
	}
}

// Source returns nil, because C cannot handle the frames that arrive with the completions.
func (d *domain) Source() *board.Source { return nil }

// Flush does nothing, because Poll returns credits.
func (d *domain) Flush(bool) {}

// Register registers memory; queue pairs and circuits share the registration.
func (d *domain) Register(m lane.Memory) (lane.Registration, error) {
	return d.port.RegisterFor(d.conn, &d.loop, m)
}

// StartFlush and Flushed make what has arrived visible to a GPU.
func (d *domain) StartFlush(r *lane.Region, addr uintptr) (bool, error) {
	return d.loop.StartFlush(d.place, r, addr)
}
func (d *domain) Flushed() (bool, error) { return d.loop.Flushed() }

// Close destroys the loopback. The carriers have been closed.
func (d *domain) Close() error { return d.loop.Close() }

// remove removes a carrier from the domain.
func (d *domain) remove(c *carrier) {
	d.carriers = slices.DeleteFunc(d.carriers, func(o *carrier) bool { return o == c })
}
