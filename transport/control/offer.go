package control

import (
	"net/netip"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
)

// maxOffers is how many offers are remembered at a time. A dialler beyond them has to start a new session.
const maxOffers = 256

// An offer is a session whose Welcome was sent to a dialler that has a handle, and whose first frame has not arrived.
// If the TCP connection breaks at that moment, the dialler may have the Welcome, and then it continues the session over
// another connection.
type offer struct {
	keys   handshake.Keys
	peer   Peer
	hello  *handshake.Hello
	source netip.Addr
	expiry *clock.Timer // removes the offer when it expires
}

// addOffer remembers an offer for as long as a peer tries to make another link.
func (e *Endpoint) addOffer(o *offer) {
	id := o.keys.Session
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || len(e.offers) >= maxOffers {
		return
	}
	o.expiry = e.cfg.Clock.AfterFunc(e.cfg.Clock.Scaled(e.cfg.LaneWait), func() { e.removeOffer(id) })
	e.offers[id] = o
}

// offerOf returns the offer of a session, or nil.
func (e *Endpoint) offerOf(id handshake.SessionID) *offer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.offers[id]
}

// removeOffer removes the offer of a session, and reports whether there was one. Only the caller that gets true may
// make the session.
func (e *Endpoint) removeOffer(id handshake.SessionID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	o := e.offers[id]
	if o == nil {
		return false
	}
	o.expiry.Stop()
	delete(e.offers, id)
	return true
}

// forgetOffers removes all offers, because the endpoint closes.
//
// Preconditions: e.mu is locked.
func (e *Endpoint) forgetOffers() {
	for _, o := range e.offers {
		o.expiry.Stop()
	}
	clear(e.offers)
}

// newAccepted makes the session of an offer that was removed. The session has no link yet.
func (e *Endpoint) newAccepted(o *offer, netdev string) (*Session, error) {
	s := e.newSession(o.keys, false, netdev, o.peer)
	s.pendingListen.Store(o.hello.Listen)
	s.addAddress(o.source, o.hello.Port, true)
	if !s.Neighbour() {
		for _, a := range o.hello.Addrs {
			s.addAddress(a, o.hello.Port, false)
		}
	}
	if err := e.add(s); err != nil {
		return nil, err
	}
	e.count.add(func(st *Stats) { st.Accepted++ })
	return s, nil
}
