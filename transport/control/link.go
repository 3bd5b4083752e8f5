package control

import (
	"bufio"
	"net/netip"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/sock"
)

// link is the TCP connection that a session uses at present. Its fields other than the once are used by its two
// goroutines only, or with Session.mu held.
type link struct {
	conn   sock.Conn
	in     *bufio.Reader
	opener *handshake.Opener // reader's
	sealer *handshake.Sealer // writer's
	first  []byte            // what the writer sends before any frame: a Welcome, or nothing
	early  *handshake.Frame  // what the reader has already: the first frame, or nothing
	local  netip.AddrPort
	remote netip.AddrPort

	next  uint64 // number of the next message to send; guarded by Session.mu
	acked uint64 // number of the last message acknowledged to the peer; guarded by Session.mu
	quiet bool   // this side has not spoken yet, and is to speak first; guarded by Session.mu

	wake chan struct{} // holds a token when the writer has to look
	once sync.Once
	done chan struct{} // closed with the connection
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

// addrOf is one end of a connection, without the zone of a link-local one: what is kept of it is compared.
func addrOf(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port())
}

func (l *link) poke() {
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

// read is the goroutine that takes frames from a link.
func (s *Session) read(l *link) {
	f, err := l.early, error(nil)
	for ; ; f = nil {
		if f == nil {
			f, err = l.opener.Read(l.in)
		}
		if err != nil {
			if err == handshake.ErrFrameMAC {
				s.e.refuse(reasonFrame, l.remote, err)
			}
			s.lost(l, err)
			return
		}
		if s.cable != nil && !s.cable.wait(s.e.cfg.Clock, len(f.Body), l.done, s.paced) {
			return
		}
		if current, err := s.hear(l, f); err != nil {
			s.end(err)
			return
		} else if !current {
			return
		}
	}
}

// paced counts a frame of a neighbour that has to wait, and logs the first one over each cable.
func (s *Session) paced() {
	if first, _ := s.e.count.first(refusal{"paced over " + s.netdev, netip.Addr{}}); first {
		s.e.log.Warn("control: processes at the other end of a cable send more messages than this process accepts from one cable: the rest has to wait",
			"interface", s.netdev, "peer", s.Name(), "frames a second", cableRate)
	}
	s.e.count.add(func(st *Stats) { st.Paced++ })
}

// batch is how many messages go into one write.
const batch = 64

// write is the goroutine that puts frames on a link.
func (s *Session) write(l *link) {
	out := l.first
	for {
		var last bool
		var current bool
		out, last, current = s.say(l, out)
		if !current {
			return
		}
		if len(out) > 0 {
			if _, err := l.conn.Write(out); err != nil {
				s.lost(l, err)
				return
			}
			out = out[:0]
			continue
		}
		if last {
			// The peer has said Bye and knows that we heard it. It closes; we wait for that, but not for long.
			_ = l.conn.CloseWrite()
			_ = l.conn.SetReadDeadline(time.Now().Add(s.e.scaled(byeWait)))
			return
		}
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
	}
}
