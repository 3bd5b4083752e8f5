package control

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"

	"ncclmesh/handshake"
)

// Listen is an invitation for one connection.
type Listen struct {
	ID     uint32
	Secret handshake.Secret

	e      *Endpoint
	handle [handshake.HandleSize]byte
}

// Listen makes an invitation. It stands until it is consumed or closed.
func (e *Endpoint) Listen() (*Listen, error) {
	l := &Listen{Secret: handshake.NewSecret(), e: e}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing {
		return nil, fmt.Errorf("control: listen: %w", net.ErrClosed)
	}
	for l.ID == 0 || e.listens[l.ID] != nil {
		var b [4]byte
		rand.Read(b[:])
		l.ID = binary.BigEndian.Uint32(b[:])
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

// Close withdraws the invitation, and reports whether it still stood: it may have been consumed, or closed before.
func (l *Listen) Close() (stood bool) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	stood = l.e.listens[l.ID] == l
	if stood {
		delete(l.e.listens, l.ID)
	}
	return stood
}

// Consume uses an invitation up for connection conn of the session, if the proof shows that the peer holds its handle.
func (e *Endpoint) Consume(listen uint32, s *Session, conn uint32, proof [32]byte) (*Listen, error) {
	e.mu.Lock()
	l := e.listens[listen]
	known := l != nil && handshake.CheckProof(l.Secret, s.id, listen, conn, proof)
	if known {
		delete(e.listens, listen)
	}
	e.mu.Unlock()
	if l == nil {
		e.count.refuse(reasonListen)
		return nil, fmt.Errorf("control: %v asks for listen %#x, which is closed, already used, or was never made here", s, listen)
	}
	if !known {
		e.count.refuse(reasonSecret)
		return nil, fmt.Errorf("control: %v asks for listen %#x without knowing its secret", s, listen)
	}
	return l, nil
}

// secret returns the secret of a listen that still stands.
func (e *Endpoint) secret(listen uint32) (handshake.Secret, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.listens[listen]
	if l == nil {
		return handshake.Secret{}, false
	}
	return l.Secret, true
}
