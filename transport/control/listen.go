package control

import (
	"fmt"
	"net"

	"ncclmesh/handshake"
)

// Listen is a permission to request connections. Each peer that has its handle may use it.
type Listen struct {
	ID     uint32
	Secret handshake.Secret

	e      *Endpoint
	handle [handshake.HandleSize]byte
	used   map[[32]byte]struct{} // proofs that were accepted; guarded by Endpoint.mu
}

// Listen makes a Listen. It is valid until it is closed.
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

// Handle returns the bytes that the connecting side needs.
func (l *Listen) Handle() [handshake.HandleSize]byte { return l.handle }

// Close invalidates the Listen. Connections that were made with it stay open.
func (l *Listen) Close() {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if l.e.listens[l.ID] == l {
		delete(l.e.listens, l.ID)
	}
}

// Redeem checks that the peer of a session has the handle of a listen, and may have its connection conn for it. A proof
// is valid once, for one session, listen and connection.
func (e *Endpoint) Redeem(listen uint32, s *Session, conn uint32, proof [32]byte) error {
	if err := e.redeem(listen, s, conn, proof); err != nil {
		return fmt.Errorf("control: %v asks for a connection: %w", s, err) // s.String locks Session.mu, so Endpoint.mu must not be held
	}
	return nil
}

// redeem does what Redeem does. Its error does not name the session.
func (e *Endpoint) redeem(listen uint32, s *Session, conn uint32, proof [32]byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, reason, err := e.listenLocked(listen)
	if err == nil {
		switch _, again := l.used[proof]; {
		case !handshake.CheckProof(l.Secret, s.id, listen, conn, proof):
			reason, err = reasonSecret, fmt.Errorf("its MAC for listen %#x is not made with that listen's secret", listen)
		case again:
			reason, err = reasonAgain, fmt.Errorf("it has already requested connection %d of listen %#x", conn, listen)
		}
	}
	if err != nil {
		e.acceptor.Count(reason)
		return err
	}
	l.used[proof] = struct{}{}
	s.pendingListen.CompareAndSwap(listen, 0)
	return nil
}

// listenLocked returns an open listen, or the reason to count and an error that tells why it is not open. It needs
// Endpoint.mu.
func (e *Endpoint) listenLocked(listen uint32) (l *Listen, reason string, err error) {
	if l = e.listens[listen]; l != nil {
		return l, "", nil
	}
	if n := listen - e.firstListen; n != 0 && n <= e.made { // because their IDs count up
		return nil, reasonClosed, fmt.Errorf("listen %#x has been closed here", listen)
	}
	return nil, reasonListen, fmt.Errorf("listen %#x was never made here", listen)
}

// secret returns the secret of an open listen. The error is a *accept.Refusal.
func (e *Endpoint) secret(listen uint32) (handshake.Secret, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, reason, err := e.listenLocked(listen)
	switch {
	case err == nil:
		return l.Secret, nil
	case reason == reasonClosed:
		return handshake.Secret{}, refusal(reason, handshake.RejectClosed, err)
	}
	return handshake.Secret{}, refusal(reason, handshake.RejectListen, err)
}
