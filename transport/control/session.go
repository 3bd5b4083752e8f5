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
	maxQueue = 1 << 16 // messages that the peer has not acknowledged
	maxInbox = 1 << 10 // messages that wait for Config.Message; above that, this side stops reading
)

// Peer is the process at the other end of a session, as it describes itself.
type Peer struct {
	Process  handshake.ProcessID
	Node     handshake.NodeID
	Hostname string
	Ports    []handshake.Port
	Settings []handshake.Setting
}

// Session is an authenticated message channel to one process. It uses one link at a time, and a new one after a link
// breaks.
type Session struct {
	e             *Endpoint
	id            handshake.SessionID
	resume        handshake.Key
	dialled       bool
	netdev        string        // interface of the cable to a neighbour; "" if dialled by a handle
	cable         *cable        // the cable at netdev; nil if dialled by a handle
	pendingListen atomic.Uint32 // see PendingListen
	peer          Peer
	ended         chan struct{} // closed after Config.Dead has returned
	life          stage.Stage[State]

	mu    sync.Mutex
	event sync.Cond // on mu: inbox or state has changed

	addrs []address // of the peer's listener

	link          *link // nil while there is none
	local, remote netip.AddrPort
	stopRedial    func() // ends the goroutine that redials; nil if there is none
	helloSent     bool   // this side's attempt to resume waits for its Welcome

	queue []outgoing // messages that the peer has not acknowledged
	sent  uint64     // number of the last message queued
	acked uint64     // number of the last message that the peer has acknowledged

	inbox    []handshake.Message
	received uint64 // number of the last message received
	handled  uint64 // number of the last message that Config.Message has handled; it is sent as the acknowledgement

	byeSent     bool
	byeReceived bool
	err         error // reason of the end; nil after an orderly one
}

// address is one address of a peer's listener. At a sure one the peer has authenticated before.
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
	e.names.add(peer.Hostname, peer.Node)
	return s
}

// ID returns the session's ID, which is the same at both ends.
func (s *Session) ID() handshake.SessionID { return s.id }

// LaneKey returns the key that authenticates the TCP connections of the session's lanes.
func (s *Session) LaneKey() handshake.Key { return s.resume.LaneKey() }

// HopKey returns the key that authenticates the TCP connections of hops between the session's two processes.
func (s *Session) HopKey() handshake.Key { return s.resume.HopKey() }

// Peer returns the process at the other end.
func (s *Session) Peer() Peer { return s.peer }

// PendingListen returns the ID of the listen whose handle the peer used to dial the session, until the peer has
// requested a connection there. After that, or if this side dialled, it returns 0.
func (s *Session) PendingListen() uint32 { return s.pendingListen.Load() }

// Dialled reports whether this side dialled the session.
func (s *Session) Dialled() bool { return s.dialled }

// Neighbour reports whether the session was made without a handle, with a process at the other end of a cable that
// knows the key if there is one.
func (s *Session) Neighbour() bool { return s.netdev != "" }

// Cable returns the interface of the cable that leads to the neighbour, or "" if the session was dialled by a handle.
func (s *Session) Cable() string { return s.netdev }

// String returns the peer's name and address for log lines and errors.
func (s *Session) String() string {
	return fmt.Sprintf("node %s (%v, process %.8v)", s.peer.Hostname, s.RemoteAddr(), s.peer.Process)
}

// LocalAddr returns this side's address of the current link, or of the last one.
func (s *Session) LocalAddr() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local
}

// RemoteAddr returns the peer's address of the current link, or of the last one.
func (s *Session) RemoteAddr() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remote
}

// Alive reports whether messages can still be sent. A session whose link broke stays alive until it is given up.
func (s *Session) Alive() bool { return s.life.At() == Open }

// Unanswered returns how long the oldest unacknowledged message has waited, or 0 if there is none. A process
// acknowledges a message after its Config.Message, which does not block, has returned. Therefore a process that does
// not acknowledge is stopped, starved or cut off, and an acknowledged message has had its effect there.
func (s *Session) Unanswered() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return 0
	}
	return max(1, time.Since(s.queue[0].at)) // not 0 even at the instant of the sending
}

// Silence returns Unanswered. If that is 0, it sends an Ask message, so that the next call has a result.
func (s *Session) Silence() time.Duration {
	d := s.Unanswered()
	if d == 0 {
		_ = s.Send(&handshake.Ask{}) // the error means that the session has ended
	}
	return d
}

// Send queues a message. The message arrives once and in order, unless the session ends before. Send never blocks. It
// fails if the message does not fit the wire format, if too many messages wait, or if the session is over.
func (s *Session) Send(m handshake.Message) error {
	body, err := handshake.AppendMessage(nil, m)
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
		s.link.signal()
	}
}

// bye queues the last message of this side.
func (s *Session) bye() {
	body, err := handshake.AppendMessage(nil, &handshake.Bye{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.life.Enter(Leaving) {
		s.byeSent = true
		s.queueLocked(handshake.TypeBye, body)
	}
}

// nextFrames appends to out the frames that the link's writer has to send. last reports that no frame will follow.
// current is false if the session does not use the link any more.
func (s *Session) nextFrames(l *link, out []byte) (_ []byte, last, current bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return nil, false, false
	}
	for n := 0; n < batch && l.next <= s.sent; n++ {
		m := s.queue[l.next-s.acked-1]
		out = l.sealer.Append(out, &handshake.Frame{Type: m.kind, Number: l.next, Ack: s.handled, Body: m.body})
		l.acked, l.mustSend = s.handled, false
		l.next++
	}
	if l.acked != s.handled || l.mustSend {
		out = l.sealer.Append(out, &handshake.Frame{Type: handshake.TypeAck, Number: l.next - 1, Ack: s.handled})
		l.acked, l.mustSend = s.handled, false
	}
	return out, s.byeReceived && l.next > s.sent && s.handled == s.received, true
}

// receiveFrame handles one frame. current is false if the session does not use the link any more. An error ends the
// session: because the peer is authenticated, it is a fault of the program at the other end.
func (s *Session) receiveFrame(l *link, f *handshake.Frame) (current bool, err error) {
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
		s.byeReceived = true
		s.life.Enter(Leaving)
	} else if _, ask := m.(*handshake.Ask); !ask && !s.byeReceived {
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

// dispatch is the goroutine that passes messages to Config.Message and lets them be acknowledged. At the end it calls
// Config.Dead.
func (s *Session) dispatch() {
	defer close(s.ended)
	var received uint64
	for {
		s.mu.Lock()
		if s.handled = received; s.link != nil {
			s.link.signal()
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
			s.e.remove(s) // before Dead, because Dead may dial the peer again
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

// caught ends the session after a panic in one of its goroutines.
func (s *Session) caught(p *guard.Panic) {
	s.e.caught(p)
	s.end(fmt.Errorf("control: internal error: %w", p))
}

// attach makes l the session's link. received is the number of the last message that the peer has received.
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

// attachLocked does what attach does, and returns the link that the caller has to close. It needs Session.mu.
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

// patience returns the TCP timeouts that detect a peer that has vanished without closing the connection.
func (e *Endpoint) patience() sock.Patience {
	probe := e.cfg.Clock.Scaled(keepAliveInterval)
	return sock.Patience{Idle: probe, Interval: probe, Count: 3, Silence: e.cfg.Clock.Scaled(ackTimeout)}
}

// readmit continues the session over a connection whose dialler has authenticated as its peer.
func (s *Session) readmit(c sock.Conn, in *bufio.Reader, x *handshake.Exchange, received uint64) error {
	s.mu.Lock()
	if s.life.At() == Over || s.byeReceived {
		s.mu.Unlock()
		return refusal("", handshake.RejectSession, errors.New("the session is over"))
	}
	if s.dialled && s.helloSent {
		s.mu.Unlock()
		return refusal("", handshake.RejectBusy, errors.New("the session is being resumed from this side"))
	}
	if received < s.acked {
		s.mu.Unlock()
		return errors.New("replaced by a later attempt to resume")
	}
	// From here on received does not change, because frames of the old link are not accepted any more.
	raw, keys, err := x.SayWelcome(&handshake.Welcome{
		Process: s.e.cfg.Process, Node: s.e.cfg.Node, Hostname: s.e.cfg.Hostname, Received: s.received,
	})
	if err != nil {
		s.mu.Unlock()
		return err
	}
	l := newLink(c, in, keys, raw)
	old, err := s.resumeLocked(l, received)
	s.mu.Unlock()
	if old != nil {
		old.close()
	}
	if err != nil {
		s.end(err)
		return err
	}
	return nil
}

// linkLost handles the failure of a link: it starts to redial, or ends the session if its end was agreed.
func (s *Session) linkLost(l *link, cause error) {
	l.close()
	s.mu.Lock()
	if s.link != l {
		s.mu.Unlock()
		return
	}
	s.link = nil
	s.event.Broadcast()
	orderly := s.byeReceived || s.byeSent && s.acked == s.sent
	if !orderly {
		s.redialLocked(cause)
	}
	s.mu.Unlock()
	if orderly {
		s.end(nil)
	}
}

// end ends the session. err is nil if the end was agreed. Only the first call has an effect.
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
