package transport

import (
	"errors"

	"ncclmesh/transport/relay"
)

// Relaying is what the process carries, and has carried, for others.
func (t *Transport) Relaying() relay.Stats {
	if t.relay == nil {
		return relay.Stats{}
	}
	return t.relay.Stats()
}

// RelayChanged has a token whenever a circuit that is carried for others stands or is
// gone. It is for one reader.
func (t *Transport) RelayChanged() <-chan struct{} { return t.carries }

// relayed leaves that token.
func (t *Transport) relayed() {
	select {
	case t.carries <- struct{}{}:
	default: // there is one, and who takes it sees this change too
	}
}

// Retire has nothing more carried for others than is: who asks at the other end of a
// cable is not answered any more, and a circuit is refused. Those that there are live on
// until their ends close them, or until Close.
func (t *Transport) Retire() error {
	t.retire.Store(true)
	if t.hail == nil {
		return nil
	}
	return t.hail.Close()
}

// retired is why nothing more is carried, or nil.
func (t *Transport) retired() error {
	switch {
	case t.retire.Load():
		return errRetired
	case t.opts.Observes:
		return errObserves
	}
	return nil
}

var (
	errRetired  = errors.New("this relay is about to end")
	errObserves = errors.New("this process only examines the mesh, and ends soon: it does not relay")
)
