package transport

import (
	"context"
	"log/slog"
	"os"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/window"
)

// Sessions returns the live sessions.
func (t *Transport) Sessions() []*control.Session { return t.ep.Sessions() }

// Dead handles the end of a session.
func (t *Transport) Dead(s *control.Session, err error) { t.dead(s, err) }

// Up returns the connections that wait for Accept.
func (l *Listener) Up() []*conn.Receiver {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*conn.Receiver(nil), l.up...)
}

// DialSpoiled does what Dial does, and changes the validated plan with spoil.
func (t *Transport) DialSpoiled(h handshake.Handle, spoil func([]lane.Spec)) *Dialing {
	return t.dial(h, func(ctx context.Context, c *conn.Conn) ([]lane.Spec, error) {
		plan, err := t.paths.To(ctx, c.Session)
		spoil(plan)
		return plan, err
	})
}

// Page returns the page of counters, or nil if there is none.
func (t *Transport) Page() *os.File { return t.page.File() }

// Window returns the name of the socket through which other processes read the page.
func (t *Transport) Window() string { return window.Prefix + t.process.String() }

// Log returns the log of the transport and all its parts.
func (t *Transport) Log() *slog.Logger { return t.log }

// Host returns the transport's name of its node.
func (t *Transport) Host() string { return t.host }
