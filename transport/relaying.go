package transport

import "ncclmesh/transport/relay"

// Relaying returns the statistics of the circuits that this process relays for others.
func (t *Transport) Relaying() relay.Stats { return t.overlay.Relaying() }

// RelayChanged returns a channel that holds a token after a relayed circuit has been set up or has ended. It is for one
// reader.
func (t *Transport) RelayChanged() <-chan struct{} { return t.overlay.RelayChanged() }

// Retire stops this process from relaying new circuits: it stops answering neighbour discovery, and refuses requests
// for circuits. Existing circuits continue until their endpoints close them, or until Close.
func (t *Transport) Retire() error { return t.overlay.Retire() }
