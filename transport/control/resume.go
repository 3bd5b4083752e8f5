package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"ncclmesh/guard"
	"ncclmesh/handshake"
)

// addAddress remembers an address of the peer's listener, sure ones first. A neighbour's address may be link-local.
func (s *Session) addAddress(a netip.Addr, port uint16, sure bool) {
	if port == 0 || s.netdev == "" && handshake.Dialable(a) != nil {
		return
	}
	to := netip.AddrPortFrom(a.Unmap(), port)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.addrs, func(known address) bool { return known.AddrPort == to })
	switch {
	case i < 0 && sure:
		s.addrs = slices.Insert(s.addrs, 0, address{to, true})
	case i < 0:
		s.addrs = append(s.addrs, address{to, false})
	case sure:
		s.addrs[i].sure = true
	}
}

// redialLocked starts the goroutine that dials a new link. It needs Session.mu.
func (s *Session) redialLocked(cause error) {
	s.e.count.add(func(st *Stats) { st.Cut++ })
	s.e.log.Debug("control: a session's link broke", "session", s.id, "peer", s.peer.Hostname, "remote", s.remote, "error", cause)
	ctx, cancel := context.WithCancel(s.e.ctx)
	s.stopRedial = cancel
	if !s.e.spawn(func() { defer cancel(); guard.Run(func() { s.redial(ctx, cause) }, s.caught) }) {
		cancel()
	}
}

// Redial closes the current link and dials another at once, over all addresses of the peer. It is for a caller that
// knows before TCP does that the cable under the link has failed (see LocalAddr). No message is lost.
func (s *Session) Redial(cause error) {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		s.linkLost(l, cause)
	}
}

// errAbandoned reports that the session has a link again, or is over.
var errAbandoned = errors.New("no longer needed")

// redial dials the peer until the session has a link, the peer is known to be dead, or it has been silent for too long.
func (s *Session) redial(ctx context.Context, cause error) {
	e := s.e
	outage, moved := e.newOutage(ctx), s.moved()
	if !s.dialled && !s.e.cfg.Clock.Pause(ctx, e.cfg.Clock.Scaled(redialGrace)) {
		return
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		s.mu.Lock()
		addrs := slices.Clone(s.addrs)
		s.mu.Unlock()
		won, tries := e.round(ctx, &search{
			target:  target{s.peer.Process, s.netdev},
			addrs:   addrs,
			stagger: e.cfg.Clock.Scaled(redialStagger),
			known:   true,
			hello:   s.helloAgain,
			failed:  s.helloFailed,
		})
		if won != nil {
			s.redialled(won)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if slices.ContainsFunc(tries, func(t Try) bool { return t.final(true) }) {
			s.giveUp(&PeerError{Local: s.LocalName(), Peer: s.Name(), Process: s.peer.Process, Netdev: s.netdev, Cause: cause, Tries: tries, Dead: true})
			return
		}
		if now := s.moved(); now != moved {
			moved = now
			outage.restart()
		}
		limit := e.cfg.Clock.Scaled(e.cfg.LaneWait)
		if e.cfg.Busy != nil && !e.cfg.Busy(s) {
			limit = e.cfg.Clock.Scaled(replyTimeout)
		}
		if outage.duration() >= limit {
			if own := ownFault(tries); own != nil {
				s.end(fmt.Errorf("control: node %s cannot dial process %.8v on node %s: %w (after: %w)", s.LocalName(), s.peer.Process, s.Name(), own, cause))
				return
			}
			s.giveUp(&PeerError{Local: s.LocalName(), Peer: s.Name(), Process: s.peer.Process, Netdev: s.netdev, Cause: cause, Tries: tries})
			return
		}
		if !s.e.cfg.Clock.Pause(ctx, e.cfg.Clock.Scaled(pause)) {
			return
		}
	}
}

// moved returns Config.Moved of the session, or 0 if that is nil.
func (s *Session) moved() uint64 {
	if s.e.cfg.Moved == nil {
		return 0
	}
	return s.e.cfg.Moved(s)
}

// redialled makes a new link the session's link, unless the peer has resumed the session meanwhile.
func (s *Session) redialled(won *dialResult) {
	s.mu.Lock()
	var old *link
	var err error
	current := s.link == nil
	if current {
		old, err = s.resumeLocked(won.link, won.welcome.Received)
	} else {
		old = won.link
	}
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	if err != nil {
		s.end(err)
	} else if current {
		s.addAddress(won.addr.Addr(), won.addr.Port(), true)
	}
}

// helloAgain makes the Hello that resumes the session. While this side waits for the reply, it refuses the peer's own
// attempts if this side dialled the session; otherwise they win.
func (s *Session) helloAgain(x *handshake.Exchange) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil || s.life.At() == Over {
		return nil, errAbandoned
	}
	raw, err := x.SayHello(s.resume[:], &handshake.Hello{
		Process: s.e.cfg.Process, Node: s.e.cfg.Node, Hostname: s.e.cfg.Hostname,
		Port: s.e.port, Addrs: s.e.addrsFor(s.netdev),
		Session: s.id, Accepted: !s.dialled, Received: s.received,
	})
	s.helloSent = err == nil
	return raw, err
}

func (s *Session) helloFailed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.helloSent = false
}

// resumeLocked makes l the session's link. It counts the link before any message can arrive over it. It needs
// Session.mu.
func (s *Session) resumeLocked(l *link, received uint64) (old *link, err error) {
	if old, err = s.attachLocked(l, received); err == nil && s.link == l {
		s.e.count.add(func(st *Stats) { st.Resumed++ })
		s.e.log.Info("control: a session continues over another link", "session", s.id, "peer", s.peer.Hostname, "local", l.local, "remote", l.remote)
	}
	return old, err
}

// giveUp ends a session whose peer cannot be reached. That is an orderly end if only the confirmation of this side's
// Bye is missing.
func (s *Session) giveUp(err *PeerError) {
	s.mu.Lock()
	bye := s.byeSent && err.Dead
	s.mu.Unlock()
	if bye {
		s.end(nil)
		return
	}
	s.end(fmt.Errorf("control: %w", err))
}
