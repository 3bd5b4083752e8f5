package control

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/stage"
)

const (
	maxQueue = 1 << 16 // messages that wait for the peer
	maxInbox = 1 << 10 // messages that wait for Config.Message; then the peer has to wait
)

// Peer is the process at the other end of a session, in its own words.
type Peer struct {
	Process  handshake.ProcessID
	Node     handshake.NodeID
	Hostname string
	Ports    []handshake.Port
	Settings []handshake.Setting
}

// Session is an authenticated channel to one process: its messages go over a link, and over another one when that is cut.
type Session struct {
	e       *Endpoint
	id      handshake.SessionID
	resume  handshake.Key
	dialled bool
	netdev  string        // of the cable to a neighbour; "" of a session that a handle made
	cable   *cable        // at netdev; nil of a session that a handle made
	owed    atomic.Uint32 // see Owed
	peer    Peer
	ended   chan struct{} // closed after Dead has returned
	life    stage.Stage[State]

	mu    sync.Mutex
	event sync.Cond // on mu: inbox and state have changed

	addrs []address // of the peer's listener

	link          *link // nil while unlinked
	local, remote netip.AddrPort
	stopRedial    func() // ends the goroutine that redials; nil when there is none
	helloSent     bool   // our attempt to resume awaits its Welcome

	queue []outgoing // messages that the peer does not yet have
	sent  uint64     // number of the last message queued
	acked uint64     // number of the last message that the peer has

	inbox    []handshake.Message
	received uint64 // number of the last message received
	handled  uint64 // number of the last message that Config.Message was done with: the one acknowledged

	byeSaid  bool
	byeHeard bool
	err      error // why it is over
}

// address is one address of a peer's listener. A sure one has proved to be the peer's own.
type address struct {
	netip.AddrPort
	sure bool
}

type outgoing struct {
	kind handshake.Type
	body []byte
	at   time.Time // when it was queued
}

func (e *Endpoint) newSession(keys handshake.Keys, dialled bool, netdev string, peer Peer) *Session {
	s := &Session{e: e, id: keys.Session, resume: keys.Resume, dialled: dialled, netdev: netdev, peer: peer, ended: make(chan struct{})}
	s.event.L = &s.mu
	if netdev != "" {
		e.mu.Lock()
		s.cable = e.cableLocked(netdev)
		e.mu.Unlock()
	}
	e.names.note(peer.Hostname, peer.Node)
	return s
}

// ID returns what both ends call the session.
func (s *Session) ID() handshake.SessionID { return s.id }

// LaneKey returns the key that authenticates the TCP connections of the session's lanes.
func (s *Session) LaneKey() handshake.Key { return s.resume.LaneKey() }

// HopKey returns the key that authenticates the TCP connections of hops between the session's two processes.
func (s *Session) HopKey() handshake.Key { return s.resume.HopKey() }

// Peer returns who is at the other end.
func (s *Session) Peer() Peer { return s.peer }

// Owed is the ID of the listen whose handle the peer dialled the session with, until it has asked for a connection there;
// then, and if this side dialled, 0.
func (s *Session) Owed() uint32 { return s.owed.Load() }

// Dialled reports whether this side dialled the session.
func (s *Session) Dialled() bool { return s.dialled }

// Neighbour reports whether the session is with a neighbour, as such: with whoever is at the other end of a cable, and
// knows the key if there is one. No handle has invited it.
func (s *Session) Neighbour() bool { return s.netdev != "" }

// Cable returns the interface at whose cable the neighbour is, or "" of a session that a handle has made.
func (s *Session) Cable() string { return s.netdev }

// String names the peer for people.
func (s *Session) String() string {
	return fmt.Sprintf("node %s (%v, process %.8v)", s.peer.Hostname, s.RemoteAddr(), s.peer.Process)
}

// LocalAddr returns this side's address of the link in use, or of the last one.
func (s *Session) LocalAddr() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// RemoteAddr returns the peer's address of the link in use, or of the last one.
func (s *Session) RemoteAddr() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remote
}

// Alive reports whether messages can still be sent. A session whose link is cut is alive until it is given up.
func (s *Session) Alive() bool { return s.life.At() == Open }

// Unanswered is how long the peer's process has owed the acknowledgement of a message, 0 when it owes none. It
// acknowledges what its Config.Message, which does not block, has returned from: a process that does not is stopped,
// starved or cut off, and what is acknowledged has had its effect there.
func (s *Session) Unanswered() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return 0
	}
	return max(1, time.Since(s.queue[0].at)) // also at the instant at which it was sent
}

// Silence is Unanswered; a peer that owes nothing is asked for a sign of life, so that the next call can tell.
func (s *Session) Silence() time.Duration {
	d := s.Unanswered()
	if d == 0 {
		_ = s.Send(&handshake.Ask{}) // a dead session needs none
	}
	return d
}

// Send queues a message. It arrives once, in order, unless the session dies. Send never blocks; it fails when the message
// does not fit the wire, and when the session is over.
func (s *Session) Send(m handshake.Message) error {
	body, err := m.AppendTo(nil)
	if err != nil {
		return fmt.Errorf("control: message to %v: %w", s, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return fmt.Errorf("control: %v to process %.8v on node %s: the session is over: %w", m.Type(), s.peer.Process, s.peer.Hostname, s.err)
	case !s.Alive():
		return fmt.Errorf("control: %v to node %s: the session is over: %w", m.Type(), s.peer.Hostname, net.ErrClosed)
	case len(s.queue) >= maxQueue:
		return fmt.Errorf("control: %v to node %s: %d messages already wait for it", m.Type(), s.peer.Hostname, len(s.queue))
	}
	s.queueLocked(m.Type(), body)
	return nil
}

func (s *Session) queueLocked(kind handshake.Type, body []byte) {
	s.sent++
	s.queue = append(s.queue, outgoing{kind, body, time.Now()})
	if s.link != nil {
		s.link.poke()
	}
}

// bye queues the last message of this side.
func (s *Session) bye() {
	body, err := (&handshake.Bye{}).AppendTo(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.life.Enter(Leaving) {
		s.byeSaid = true
		s.queueLocked(handshake.TypeBye, body)
	}
}

// say appends to out the frames that the link's writer has to send. last means that nothing will follow; current is false
// when the session no longer uses the link.
func (s *Session) say(l *link, out []byte) (_ []byte, last, current bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return nil, false, false
	}
	for n := 0; n < batch && l.next <= s.sent; n++ {
		m := s.queue[l.next-s.acked-1]
		out = l.sealer.Append(out, &handshake.Frame{Type: m.kind, Number: l.next, Ack: s.handled, Body: m.body})
		l.acked, l.quiet = s.handled, false
		l.next++
	}
	if l.acked != s.handled || l.quiet {
		out = l.sealer.Append(out, &handshake.Frame{Type: handshake.TypeAck, Number: l.next - 1, Ack: s.handled})
		l.acked, l.quiet = s.handled, false
	}
	return out, s.byeHeard && l.next > s.sent && s.handled == s.received, true
}

// hear takes one frame. current is false when the session no longer uses the link. The peer is authentic, so an error is
// a fault of the program at the other end, and the end of the session.
func (s *Session) hear(l *link, f *handshake.Frame) (current bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.link == l && len(s.inbox) >= maxInbox {
		s.event.Wait()
	}
	if s.link != l {
		return false, nil
	}
	if f.Ack > s.sent {
		return true, fmt.Errorf("%w: the peer acknowledges message %d, the last one sent is %d", ErrProtocol, f.Ack, s.sent)
	}
	s.ackLocked(f.Ack)
	if f.Type == handshake.TypeAck {
		if f.Number != s.received || len(f.Body) > 0 {
			return true, fmt.Errorf("%w: the peer has sent %d messages, %d have arrived", ErrProtocol, f.Number, s.received)
		}
		return true, nil
	}
	if f.Number != s.received+1 {
		return true, fmt.Errorf("%w: message %d follows message %d", ErrProtocol, f.Number, s.received)
	}
	m, err := handshake.DecodeMessage(f.Type, f.Body)
	if err != nil {
		return true, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	s.received++
	if b, ok := m.(*handshake.Bye); ok && b.Conn == 0 {
		s.byeHeard = true
		s.life.Enter(Leaving)
	} else if _, ask := m.(*handshake.Ask); !ask && !s.byeHeard {
		s.inbox = append(s.inbox, m)
	}
	s.event.Broadcast()
	return true, nil
}

func (s *Session) ackLocked(n uint64) {
	if n > s.acked {
		s.queue = slices.Delete(s.queue, 0, int(n-s.acked))
		s.acked = n
	}
	if len(s.queue) == 0 {
		s.queue = nil
	}
}

// dispatch is the goroutine that hands messages to Config.Message and lets them be acknowledged, and at last hands the end
// to Config.Dead.
func (s *Session) dispatch() {
	defer close(s.ended)
	var received uint64
	for {
		s.mu.Lock()
		if s.handled = received; s.link != nil {
			s.link.poke()
		}
		for s.handled == s.received && s.life.At() != Over {
			s.event.Wait()
		}
		messages, err := s.inbox, s.err
		received = s.received
		over := s.life.At() == Over && len(messages) == 0
		s.inbox = nil
		s.event.Broadcast()
		s.mu.Unlock()
		if over {
			s.e.remove(s) // before Dead, which may dial the peer anew
			if s.e.cfg.Dead != nil {
				s.e.cfg.Dead(s, err)
			}
			return
		}
		guard.Run(func() {
			for _, m := range messages {
				if s.e.cfg.Message != nil {
					s.e.cfg.Message(s, m)
				}
			}
		}, s.caught)
	}
}

// caught ends the session over a panic in one of its goroutines.
func (s *Session) caught(p *guard.Panic) {
	s.e.caught(p)
	s.end(fmt.Errorf("control: internal error: %w", p))
}

// attach makes l the session's link; received is the number of the last message that the peer has.
func (s *Session) attach(l *link, received uint64) {
	s.mu.Lock()
	old, err := s.attachLocked(l, received)
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	if err != nil {
		s.end(err)
	}
}

// attachLocked is attach; it returns the link that the caller has to close.
func (s *Session) attachLocked(l *link, received uint64) (old *link, err error) {
	if s.life.At() == Over {
		return l, nil
	}
	if received > s.sent || received < s.acked {
		return l, fmt.Errorf("%w: the peer has %d messages, %d were sent and %d acknowledged", ErrProtocol, received, s.sent, s.acked)
	}
	s.ackLocked(received)
	old, s.link = s.link, l
	s.local, s.remote = l.local, l.remote
	l.next, l.acked = received+1, s.received
	_ = l.conn.SetDeadline(time.Time{})
	_ = l.conn.SetPatience(s.e.patience())
	s.helloSent = false
	if s.stopRedial != nil {
		s.stopRedial()
		s.stopRedial = nil
	}
	s.event.Broadcast()
	read, write := func() { s.read(l) }, func() { s.write(l) }
	if !s.e.spawn(func() { guard.Run(read, s.caught) }) || !s.e.spawn(func() { guard.Run(write, s.caught) }) {
		return l, net.ErrClosed
	}
	return old, nil
}

// patience makes the network notice a peer that has vanished without a word.
func (e *Endpoint) patience() sock.Patience {
	probe := e.scaled(probeEvery)
	return sock.Patience{Idle: probe, Interval: probe, Count: 3, Silence: e.scaled(silenceWait)}
}

// readmit continues the session over a connection whose dialler has proved to be its peer.
func (s *Session) readmit(c sock.Conn, in *bufio.Reader, x *handshake.Exchange, received uint64) (handshake.RejectCode, error) {
	s.mu.Lock()
	if s.life.At() == Over || s.byeHeard {
		s.mu.Unlock()
		return handshake.RejectSession, errors.New("the session is over")
	}
	if s.dialled && s.helloSent {
		s.mu.Unlock()
		return handshake.RejectBusy, errors.New("the session is being resumed from this side")
	}
	if received < s.acked {
		s.mu.Unlock()
		return 0, errors.New("replaced by a later attempt to resume")
	}
	// From here on received does not move: frames of the old link are no longer taken.
	raw, keys, err := x.SayWelcome(&handshake.Welcome{
		Process: s.e.cfg.Process, Node: s.e.cfg.Node, Hostname: s.e.cfg.Hostname, Received: s.received,
	})
	if err != nil {
		s.mu.Unlock()
		return 0, err
	}
	l := newLink(c, in, keys, raw)
	old, err := s.resumeLocked(l, received)
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	if err != nil {
		s.end(err)
		return 0, err
	}
	return 0, nil
}

// lost is told that a link has failed.
func (s *Session) lost(l *link, cause error) {
	l.close()
	s.mu.Lock()
	if s.link != l {
		s.mu.Unlock()
		return
	}
	s.link = nil
	s.event.Broadcast()
	orderly := s.byeHeard || s.byeSaid && s.acked == s.sent
	if !orderly {
		s.redialLocked(cause)
	}
	s.mu.Unlock()
	if orderly {
		s.end(nil)
	}
}

// end ends the session; err is nil when that was agreed. Only the first call counts.
func (s *Session) end(err error) {
	s.mu.Lock()
	if !s.life.Enter(Over) {
		s.mu.Unlock()
		return
	}
	l := s.link
	s.err, s.link, s.queue = err, nil, nil
	if s.stopRedial != nil {
		s.stopRedial()
		s.stopRedial = nil
	}
	if err != nil {
		s.e.count.add(func(st *Stats) { st.Dead++ })
	}
	s.event.Broadcast()
	s.mu.Unlock()
	if l != nil {
		l.close()
	}
	s.e.remove(s)
}
