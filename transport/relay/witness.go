package relay

import (
	"fmt"
	"time"

	"ncclmesh/transport/sock"
)

const (
	lookEvery = time.Second // at what a socket's other end acknowledges
	minLost   = 3           // packets in a row, for it to be silent
)

// witness tells whether a socket's other end acknowledges anything. One that does may be
// as slow as it likes; of one that does not the kernel would say so after many minutes.
type witness struct {
	conn    sock.Conn
	who     string
	silence sock.Silence
}

// look returns an error when that has lasted as long as it may; 0 is for ever.
func (w *witness) look(silence time.Duration) error {
	if silence == 0 {
		return nil
	}
	info, err := w.conn.Info()
	if err != nil {
		return nil // the pumps hear of it
	}
	if d := w.silence.Look(info, time.Now(), minLost); d > 0 && d >= silence {
		return fmt.Errorf("nothing was acknowledged by %s for %v; check the cable and both its ports", w.name(), d.Round(time.Second))
	}
	return nil
}

// name is the node at the other end, or its address where that is not known.
func (w *witness) name() string {
	if w.who != "" {
		return w.who
	}
	return w.conn.Remote().String()
}
