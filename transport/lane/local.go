package lane

import (
	"reflect"
	"sync/atomic"

	"ncclmesh/transport/topology"
)

// Local is what ports of all kinds have in common.
type Local struct {
	index uint8
	seen  atomic.Pointer[topology.Port]
}

// Set gives the port its number and what was first seen of it.
func (p *Local) Set(index uint8, t topology.Port) {
	p.index = index
	p.seen.Store(&t)
}

// Index is the port's number in what peers are told.
func (p *Local) Index() uint8 { return p.index }

// Now is the port as it was last seen; not to be changed.
func (p *Local) Now() *topology.Port { return p.seen.Load() }

// See takes note of the port's present state and reports whether it has changed.
func (p *Local) See(t topology.Port) (changed bool) {
	old := p.seen.Swap(&t)
	return !reflect.DeepEqual(*old, t)
}

// String names the port.
func (p *Local) String() string { return p.Now().String() }
