package transport

import (
	"errors"

	"ncclmesh/transport/relay"
)

// Relaying returns the statistics of the circuits that this process relays for others.
func (t *Transport) Relaying() relay.Stats {
	if t.relay == nil {
		return relay.Stats{}
	}
	return t.relay.Stats()
}

// RelayChanged returns a channel that holds a token after a relayed circuit has been set up or has ended. It is for one
// reader.
func (t *Transport) RelayChanged() <-chan struct{} { return t.relayChanged }

// noteRelayChange puts a token into the channel of RelayChanged.
func (t *Transport) noteRelayChange() {
	select {
	case t.relayChanged <- struct{}{}:
	default: // the reader of the token in the channel will see this change too
	}
}

// Retire stops this process from relaying new circuits: it stops answering neighbour discovery, and refuses requests
// for circuits. Existing circuits continue until their endpoints close them, or until Close.
func (t *Transport) Retire() error {
	t.retiring.Store(true)
	if t.discovery == nil {
		return nil
	}
	return t.discovery.Close()
}

// refuseCircuits returns the reason why this process relays no new circuits, or nil.
func (t *Transport) refuseCircuits() error {
	switch {
	case t.retiring.Load():
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
