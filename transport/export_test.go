package transport

import (
	"ncclmesh/transport/control"
	"ncclmesh/transport/message"
)

// Sessions are the live sessions with the peers.
func (t *Transport) Sessions() []*control.Session { return t.ep.Sessions() }

// Dead says that a session's peer can be talked to no more.
func (t *Transport) Dead(s *control.Session, err error) { t.dead(s, err) }

// Up are the connections that wait for Accept.
func (l *Listener) Up() []*message.RecvConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*message.RecvConn(nil), l.up...)
}
