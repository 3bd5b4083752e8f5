package sock

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Info is what the network knows of the other end of a stream: struct tcp_info of linux/tcp.h, in part.
type Info struct {
	Waiting bool          // something that was sent is not acknowledged, or waits to be sent
	LastAck time.Duration // since the last acknowledgement
	Lost    uint8         // packets lost in a row: retransmissions, or, where there is no route any more, probes
}

// Unheard reports whether the network has lost that many packets in a row.
func (i Info) Unheard(lost uint8) bool { return i.Lost >= lost }

// infoOf asks the kernel about a TCP socket.
func infoOf(fd int) (Info, error) {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return Info{}, os.NewSyscallError("getsockopt(TCP_INFO)", err)
	}
	return Info{
		Waiting: i.Unacked != 0 || i.Notsent_bytes != 0,
		LastAck: time.Duration(i.Last_ack_recv) * time.Millisecond,
		Lost:    max(i.Retransmits, i.Probes),
	}, nil
}

// Silence tells how long the other end of a stream has acknowledged nothing of what waits for it, from what the network
// says now and then. One that acknowledges may be as slow as it likes. The zero Silence has begun with nothing.
type Silence struct{ since time.Time } // zero while the other end acknowledges

// Look returns how long it has lasted, if the network has also lost that many packets in a row. Else it is 0.
func (s *Silence) Look(info Info, now time.Time, lost uint8) time.Duration {
	switch {
	case !info.Waiting:
		s.since = time.Time{}
	case s.since.IsZero() || info.LastAck < now.Sub(s.since):
		s.since = now
	case info.Unheard(lost):
		return now.Sub(s.since)
	}
	return 0
}
