package control

import (
	"fmt"
	"net"

	"ncclmesh/handshake"
)

// Listen is an invitation for connections, which every peer that is given its handle may ask for.
type Listen struct {
	ID     uint32
	Secret handshake.Secret

	e      *Endpoint
	handle [handshake.HandleSize]byte
	used   map[[32]byte]struct{} // proofs that were accepted; guarded by Endpoint.mu
}

// Listen makes an invitation. It stands until it is closed.
func (e *Endpoint) Listen() (*Listen, error) {
	l := &Listen{Secret: handshake.NewSecret(e.cfg.Random), e: e, used: make(map[[32]byte]struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, fmt.Errorf("control: listen: %w", net.ErrClosed)
	}
	for l.ID == neighbourListen || e.listens[l.ID] != nil {
		e.made++
		l.ID = e.firstListen + e.made
	}
	h := handshake.Handle{Port: e.port, Listen: l.ID, Process: e.cfg.Process, Secret: l.Secret, Addrs: e.addrs}
	var err error
	if l.handle, err = h.Encode(); err != nil {
		return nil, fmt.Errorf("control: listen: %w", err)
	}
	e.listens[l.ID] = l
	return l, nil
}

// Handle returns what the connecting side must be given.
func (l *Listen) Handle() [handshake.HandleSize]byte { return l.handle }

// Close withdraws the invitation. Connections that it has brought are not touched.
func (l *Listen) Close() {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if l.e.listens[l.ID] == l {
		delete(l.e.listens, l.ID)
	}
}

// Redeem checks that the peer of a session holds the handle of a listen and may have its connection conn for it. A proof
// holds for one session, listen and connection, and once.
func (e *Endpoint) Redeem(listen uint32, s *Session, conn uint32, proof [32]byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, reason, err := e.standingLocked(listen)
	if err == nil {
		switch _, again := l.used[proof]; {
		case !handshake.CheckProof(l.Secret, s.id, listen, conn, proof):
			reason, err = reasonSecret, fmt.Errorf("its MAC for listen %#x is not made with that listen's secret", listen)
		case again:
			reason, err = reasonAgain, fmt.Errorf("it has already requested connection %d of listen %#x", conn, listen)
		}
	}
	if err != nil {
		e.count.refuse(reason)
		return fmt.Errorf("control: %v asks for a connection: %w", s, err)
	}
	l.used[proof] = struct{}{}
	s.owed.CompareAndSwap(listen, 0)
	return nil
}

// standingLocked returns a listen that stands, or the reason to count and an error that tells what has become of it.
func (e *Endpoint) standingLocked(listen uint32) (l *Listen, reason string, err error) {
	if l = e.listens[listen]; l != nil {
		return l, "", nil
	}
	if n := listen - e.firstListen; n != 0 && n <= e.made { // they are numbered in turn
		return nil, reasonClosed, fmt.Errorf("listen %#x has been closed here", listen)
	}
	return nil, reasonListen, fmt.Errorf("listen %#x was never made here", listen)
}

// secret returns the secret of a listen that stands, or what to count, and to tell the peer.
func (e *Endpoint) secret(listen uint32) (_ handshake.Secret, reason string, code handshake.RejectCode, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, reason, err := e.standingLocked(listen)
	switch {
	case err == nil:
		return l.Secret, "", 0, nil
	case reason == reasonClosed:
		return handshake.Secret{}, reason, handshake.RejectClosed, err
	}
	return handshake.Secret{}, reason, handshake.RejectListen, err
}
