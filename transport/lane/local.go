package lane

import (
	"reflect"
	"sync/atomic"

	"ncclmesh/transport/topology"
)

// Local implements the methods that ports of all kinds share.
type Local struct {
	index     uint8
	seen      atomic.Pointer[topology.Port]
	noCarrier atomic.Bool
}

// Set initialises the port with its number and its first state.
func (p *Local) Set(index uint8, t topology.Port) {
	p.index = index
	p.seen.Store(&t)
	p.noCarrier.Store(t.NoCarrier())
}

// Index returns the number by which handshake messages name the port.
func (p *Local) Index() uint8 { return p.index }

// Now returns the port as it was last seen. The caller must not change it.
func (p *Local) Now() *topology.Port { return p.seen.Load() }

// See records the port's present state and reports whether it differs from the previous one.
func (p *Local) See(t topology.Port) (changed bool) {
	old := p.seen.Swap(&t)
	p.noCarrier.Store(t.NoCarrier())
	return !reflect.DeepEqual(*old, t)
}

// Carrier records that the port's network interface has gained or lost its carrier, before the port is seen
// again.
func (p *Local) Carrier(has bool) {
	t := *p.Now()
	t.Carrier = has
	p.noCarrier.Store(t.NoCarrier())
}

// NoCarrier returns [topology.Port.NoCarrier] by the latest report of the carrier.
func (p *Local) NoCarrier() bool { return p.noCarrier.Load() }

// String returns the port's name for logs.
func (p *Local) String() string { return p.Now().String() }
