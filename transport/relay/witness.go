package relay

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/dataport"
)

const (
	lookEvery = time.Second // at what a socket's other end acknowledges
	minLost   = 3           // packets in a row, for it to be silent
)

// witness tells whether a socket's other end acknowledges anything. One that does may be
// as slow as it likes; of one that does not the kernel would say so after many minutes.
type witness struct {
	conn    *net.TCPConn
	who     string
	silence dataport.Silence
}

// look returns an error when that has lasted as long as it may; 0 is for ever.
func (w *witness) look(silence time.Duration) error {
	raw, err := w.conn.SyscallConn()
	if err != nil || silence == 0 {
		return nil // closed, or not to be judged
	}
	var info *unix.TCPInfo
	cerr := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if cerr != nil || err != nil {
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
	return w.conn.RemoteAddr().String()
}
