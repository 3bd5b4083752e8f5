package control

import (
	"bufio"
	"net/netip"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/sock"
)

// link is the TCP connection that a session uses at present. Its fields other than once are used only by its two
// goroutines, or with Session.mu held.
type link struct {
	conn   sock.Conn
	in     *bufio.Reader
	opener *handshake.Opener // used by the reader
	sealer *handshake.Sealer // used by the writer
	first  []byte            // bytes to send before any frame: a Welcome, or none
	early  *handshake.Frame  // first frame, if it was read before the link was attached
	local  netip.AddrPort
	remote netip.AddrPort

	next     uint64 // number of the next message to send; guarded by Session.mu
	acked    uint64 // number of the last message acknowledged to the peer; guarded by Session.mu
	mustSend bool   // this side must send a frame even if it has no message, because it has to send first; guarded by Session.mu

	wake chan struct{} // holds a token when the writer has work
	once sync.Once
	done chan struct{} // closed when the connection is
}

func newLink(c sock.Conn, in *bufio.Reader, keys handshake.Keys, first []byte) *link {
	return &link{
		conn:   c,
		in:     in,
		opener: handshake.NewOpener(keys.Recv),
		sealer: handshake.NewSealer(keys.Send),
		first:  first,
		local:  addrOf(c.Local()),
		remote: addrOf(c.Remote()),
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
}

// addrOf returns an address without its zone, because the result is compared.
func addrOf(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())
}

func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) close() {
	l.once.Do(func() {
		_ = l.conn.Close()
		close(l.done)
	})
}

// read is the goroutine that receives frames from a link.
func (s *Session) read(l *link) {
	f, err := l.early, error(nil)
	for ; ; f = nil {
		if f == nil {
			f, err = l.opener.Read(l.in)
		}
		if err != nil {
			if err == handshake.ErrFrameMAC {
				s.e.acceptor.Refuse(reasonFrame, l.remote, err)
			}
			s.linkLost(l, err)
			return
		}
		if s.cable != nil && !s.cable.wait(s.e.cfg.Clock, len(f.Body), l.done, s.paced) {
			return
		}
		if current, err := s.receiveFrame(l, f); err != nil {
			s.end(err)
			return
		} else if !current {
			return
		}
	}
}

// paced counts a frame of a neighbour that was delayed, and logs the first one for each cable.
func (s *Session) paced() {
	s.cable.paced.Do(func() {
		s.e.log.Warn("control: processes at the other end of a cable send more messages than this process accepts from one cable: the rest has to wait",
			"interface", s.netdev, "peer", s.Name(), "frames a second", cableRate)
	})
	s.e.count.add(func(st *Stats) { st.Paced++ })
}

// batch is the largest number of messages in one write.
const batch = 64

// write is the goroutine that sends frames on a link.
func (s *Session) write(l *link) {
	out := l.first
	for {
		var last bool
		var current bool
		out, last, current = s.nextFrames(l, out)
		if !current {
			return
		}
		if len(out) > 0 {
			if _, err := l.conn.Write(out); err != nil {
				s.linkLost(l, err)
				return
			}
			out = out[:0]
			continue
		}
		if last {
			// The peer has sent Bye and knows that this side received it. It closes the connection; wait for that, but
			// not for long.
			_ = l.conn.CloseWrite()
			_ = l.conn.SetReadDeadline(time.Now().Add(s.e.cfg.Clock.Scaled(byeWait)))
			return
		}
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
	}
}
