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

// Sessions are the live sessions with the peers.
func (t *Transport) Sessions() []*control.Session { return t.ep.Sessions() }

// Dead says that a session's peer can be talked to no more.
func (t *Transport) Dead(s *control.Session, err error) { t.dead(s, err) }

// Up are the connections that wait for Accept.
func (l *Listener) Up() []*conn.Receiver {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*conn.Receiver(nil), l.up...)
}

// DialSpoiled dials as Dial does, and has spoil change the plan that was proved.
func (t *Transport) DialSpoiled(h handshake.Handle, spoil func([]lane.Spec)) *Dialing {
	return t.dial(h, func(ctx context.Context, c *conn.Conn) ([]lane.Spec, error) {
		plan, err := t.paths.To(ctx, c.Session)
		spoil(plan)
		return plan, err
	})
}

// Page is where the process shows what it counts; nil where it shows nothing.
func (t *Transport) Page() *os.File { return t.page.File() }

// Window is the name of the socket where others are shown that.
func (t *Transport) Window() string { return window.Prefix + t.process.String() }

// Log is where the transport and all of its parts log.
func (t *Transport) Log() *slog.Logger { return t.log }

// Host is what the transport calls its node.
func (t *Transport) Host() string { return t.host }
