package relay

import (
	"fmt"
	"time"

	"ncclmesh/transport/sock"
)

const (
	ackInterval = time.Second // between two checks
	minLost     = 3           // consecutive lost packets before a peer counts as silent
)

// ackMonitor detects that a socket's peer acknowledges nothing. A peer that acknowledges may be as slow as it likes.
// Without this check the kernel would report a silent peer only after many minutes.
type ackMonitor struct {
	conn    sock.Conn
	who     string
	silence sock.Silence
}

// check returns an error if the peer has acknowledged nothing for the duration silence. 0 means no limit.
func (w *ackMonitor) check(silence time.Duration) error {
	if silence == 0 {
		return nil
	}
	info, err := w.conn.Info()
	if err != nil {
		return nil // the pumps report the error
	}
	if d := w.silence.Look(info, time.Now(), minLost); d > 0 && d >= silence {
		return fmt.Errorf("nothing was acknowledged by %s for %v; check the cable and both its ports", w.name(), d.Round(time.Second))
	}
	return nil
}

// name returns the name of the peer's node, or its address if the name is not known.
func (w *ackMonitor) name() string {
	if w.who != "" {
		return w.who
	}
	return w.conn.Remote().String()
}
