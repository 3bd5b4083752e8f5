package dataport

import (
	"time"

	"golang.org/x/sys/unix"
)

// Silence tells how long a socket's other end has acknowledged nothing of what waits for
// it, from what the kernel says now and then. One that acknowledges may be as slow as it
// likes. The zero Silence has begun with nothing.
type Silence struct{ since time.Time } // zero while the other end acknowledges

// Look returns how long it has lasted, if the kernel has also lost that many packets in a
// row: retransmissions, or, where there is no route any more, probes. Else it is 0.
func (s *Silence) Look(info *unix.TCPInfo, now time.Time, lost uint8) time.Duration {
	switch quiet := time.Duration(info.Last_ack_recv) * time.Millisecond; {
	case info.Unacked == 0 && info.Notsent_bytes == 0:
		s.since = time.Time{}
	case s.since.IsZero() || quiet < now.Sub(s.since):
		s.since = now
	case Unheard(info, lost):
		return now.Sub(s.since)
	}
	return 0
}

// Unheard reports whether the kernel has lost that many packets in a row.
func Unheard(info *unix.TCPInfo, lost uint8) bool { return max(info.Retransmits, info.Probes) >= lost }
