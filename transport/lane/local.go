package lane

import (
	"reflect"
	"sync/atomic"

	"ncclmesh/transport/topology"
)

// Local is what ports of all kinds have in common.
type Local struct {
	index     uint8
	seen      atomic.Pointer[topology.Port]
	noCarrier atomic.Bool
}

// Set gives the port its number and what was first seen of it.
func (p *Local) Set(index uint8, t topology.Port) {
	p.index = index
	p.seen.Store(&t)
	p.noCarrier.Store(t.NoCarrier())
}

// Index is the port's number in what peers are told.
func (p *Local) Index() uint8 { return p.index }

// Now is the port as it was last seen; not to be changed.
func (p *Local) Now() *topology.Port { return p.seen.Load() }

// See takes note of the port's present state and reports whether it has changed.
func (p *Local) See(t topology.Port) (changed bool) {
	old := p.seen.Swap(&t)
	p.noCarrier.Store(t.NoCarrier())
	return !reflect.DeepEqual(*old, t)
}

// Carrier takes note, before the port is seen again, that its network interface has a
// carrier or has none.
func (p *Local) Carrier(has bool) {
	t := *p.Now()
	t.Carrier = has
	p.noCarrier.Store(t.NoCarrier())
}

// NoCarrier is [topology.Port.Dark] by the latest news.
func (p *Local) NoCarrier() bool { return p.noCarrier.Load() }

// String names the port.
func (p *Local) String() string { return p.Now().String() }
