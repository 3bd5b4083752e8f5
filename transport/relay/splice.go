package relay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"ncclmesh/guard"
	"ncclmesh/handshake"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/topology"
)

// splicer makes circuits of sockets: two of them at each relay, between which the kernel moves the bytes.
type splicer struct {
	r    *Relay
	data *dataport.Endpoint
}

// splice is a relay's part of a circuit of sockets.
//
//	made ──Connect──► waits for the previous socket ──► dials the next ──► forwards ──► over
//
// One goroutine goes through all states; Drop only cancels its context. If an end of the circuit or another
// relay has dropped it, data in flight gets the time flushWait to arrive.
type splice struct {
	HopPair
	m         *splicer
	ask       *handshake.CircuitOpen
	port      uint16 // where the previous process connects
	tokens    [2]uint64
	call      *dataport.Call
	ctx       context.Context
	cancel    context.CancelFunc
	connected chan struct{} // closed by Connect
	arrived   chan struct{} // closed when the previous process has connected

	mu            sync.Mutex // a leaf lock
	in            sock.Conn  // socket of the previous process; nil: none
	over          bool
	droppedByPeer bool                     // another node has dropped the circuit
	next          *handshake.CircuitOpened // written before connected is closed
}

var _ Maker = (*splicer)(nil)

// Begin listens for the socket of the previous process.
func (m *splicer) Begin(ask *handshake.CircuitOpen, j HopPair) (Relayed, error) {
	s := &splice{HopPair: j, m: m, ask: ask, connected: make(chan struct{}), arrived: make(chan struct{})}
	for i := range s.tokens {
		s.tokens[i] = m.r.cfg.Random.For(j.In.Hop).Uint64(fmt.Sprint("token ", i))
	}
	netdev := j.In.Port.Now().Netdev
	end := dataport.End{
		Name: j.In.Hop, Key: j.In.Key, Tokens: handshake.LaneTokens{Dialler: ask.Half.Token, Listener: s.tokens[0]},
		Addr: topology.OnLink(j.In.From.Addr, netdev), Netdev: netdev,
	}
	var err error
	if s.port, err = m.data.Listen(end.Addr, netdev); err != nil {
		return nil, err
	}
	if s.call, err = m.data.ExpectHop(end, s.accepted); err != nil {
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(m.r.ctx)
	m.r.splices.Add(1)
	run := func() {
		defer s.finish()
		s.reportEnd(s.run())
	}
	if !m.r.spawn(run, func(p *guard.Panic) { s.reportEnd(p) }) {
		s.finish()
		return nil, errClosed
	}
	return s, nil
}

// Next returns the address that this relay dials from.
func (s *splice) Next() Offer {
	return Offer{Half: handshake.Lane{Addr: s.Out.From.Addr, GIDIndex: uint16(s.Out.From.Index), Token: s.tokens[1]}}
}

// Connect stores the address to dial once the previous process has connected. The last relay dials only an address of
// the receiver's port as the receiver described it, because the sender, which is unknown here, must not choose what
// this node connects to.
func (s *splice) Connect(_ context.Context, next *handshake.CircuitOpened) (err error) {
	if s.Last {
		own := slices.ContainsFunc(s.Out.Told.Addrs, func(a handshake.PortAddr) bool { return a.Addr == next.Half.Addr })
		if !own || next.Half.TCPPort == 0 {
			return fmt.Errorf("%s wants the lane at %v, TCP port %d, but its port %d has no such address, or no lane", s.Out.Name, next.Half.Addr.Unmap(), next.Half.TCPPort, s.Out.Peer)
		}
		if s.Out.From, s.Out.To, err = s.m.r.hopAddrs(s.Out.Port.Index(), s.Out.Told, next.Half.Addr); err != nil {
			return err
		}
	}
	s.next = next
	close(s.connected)
	return nil
}

// Prev returns the address that the previous process has to dial.
func (s *splice) Prev() Offer {
	return Offer{Half: handshake.Lane{Addr: s.In.From.Addr, GIDIndex: uint16(s.In.From.Index), Token: s.tokens[0], TCPPort: s.port}}
}

// Drop ends the splice.
func (s *splice) Drop(why error) {
	var peer *peerError
	s.mu.Lock()
	s.droppedByPeer = s.droppedByPeer || errors.As(why, &peer)
	s.mu.Unlock()
	s.cancel()
}

// deadline returns the time at which data in flight is given up after a Drop.
func (s *splice) deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.droppedByPeer || s.m.r.ctx.Err() != nil {
		return time.Unix(1, 0)
	}
	return time.Now().Add(s.m.r.cfg.Clock.Scaled(flushWait))
}

// reportEnd reports the end, except after a Drop. It waits briefly, because a Drop that also broke the sockets may
// arrive later, and it contains the reason.
func (s *splice) reportEnd(err error) {
	if err != nil {
		wait := s.m.r.cfg.Clock.NewTimer(s.m.r.cfg.Clock.Scaled(reasonWait))
		defer wait.Stop()
		select {
		case <-s.ctx.Done():
		case <-wait.C:
		}
	}
	if s.ctx.Err() == nil {
		s.Ended(err)
	}
}

// accepted stores the socket of the previous process.
func (s *splice) accepted(c sock.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		_ = c.Close()
		return
	}
	s.in = c
	close(s.arrived)
}

// finish releases the remaining resources.
func (s *splice) finish() {
	s.cancel()
	s.m.data.Cancel(s.call)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.in != nil {
		_ = s.in.Close()
		s.in = nil
	}
	s.m.r.splices.Add(-1)
	s.m.r.cfg.Changed()
}

// run goes through the circuit's states, from the wait for the previous process to the end.
func (s *splice) run() (err error) {
	select {
	case <-s.connected:
	case <-s.ctx.Done():
		return nil
	}
	late := s.m.r.cfg.Clock.NewTimer(s.m.r.cfg.Clock.Scaled(connectWait))
	defer late.Stop()
	select {
	case <-s.arrived:
	case <-s.ctx.Done():
		return nil
	case <-late.C:
		return s.notConnected()
	}
	s.mu.Lock()
	in := s.in
	s.in = nil
	s.mu.Unlock()
	defer func() { closeConn(in, err) }()
	out, err := s.dial()
	if err != nil {
		return err
	}
	defer func() { closeConn(out, err) }()
	return s.forward(in, out)
}

// notConnected returns the error if the previous process has not connected.
func (s *splice) notConnected() error {
	err := fmt.Errorf("%s asked for the circuit and has not connected to %s", s.In.Name, netip.AddrPortFrom(s.In.From.Addr.Unmap(), s.port))
	if why := s.m.data.Why(s.call); why != nil {
		return fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// dial connects the next hop: to another relay, or to the receiver. The receiver then authenticates the sender over the
// circuit.
func (s *splice) dial() (sock.Conn, error) {
	ctx, cancel := s.m.r.cfg.Clock.WithTimeout(s.ctx, s.m.r.cfg.Clock.Scaled(setUpWait))
	defer cancel()
	netdev := s.Out.Port.Now().Netdev
	from := topology.OnLink(s.Out.From.Addr, netdev)
	to := netip.AddrPortFrom(topology.OnLink(s.next.Half.Addr, netdev), s.next.Half.TCPPort)
	end := dataport.End{Addr: from, Netdev: netdev}
	if !s.Last {
		end.Name, end.Key = s.Out.Hop, s.Out.Key
		end.Tokens = handshake.LaneTokens{Dialler: s.tokens[1], Listener: s.next.Half.Token}
	}
	return s.m.data.DialHop(ctx, end, to)
}

// forward forwards both directions until both have ended, one has failed, or the circuit is dropped.
func (s *splice) forward(in, out sock.Conn) error {
	over := make(chan error, 2)
	for _, way := range []struct {
		to, from sock.Conn
		moved    func(uint64)
	}{
		{out, in, func(n uint64) { s.Moved(n, 0) }},
		{in, out, func(n uint64) { s.Moved(0, n) }},
	} {
		pumpOne := func() {
			err := pump(way.to, way.from, way.moved)
			if err != nil {
				err = fmt.Errorf("a socket broke between %v and %v: %w", way.from.Remote(), way.to.Remote(), errnoOf(err))
			}
			over <- err
		}
		go guard.Run(pumpOne, func(p *guard.Panic) { over <- p })
	}
	return s.wait(in, out, over)
}

// wait waits until both directions have ended.
func (s *splice) wait(in, out sock.Conn, over <-chan error) (err error) {
	look := s.m.r.cfg.Clock.NewTicker(s.m.r.cfg.Clock.Scaled(ackInterval))
	defer look.Stop()
	dropped := s.ctx.Done()
	ends := []ackMonitor{{conn: in, who: s.In.Name}, {conn: out, who: s.Out.Name}}
	for left := 2; left > 0; {
		var failed error
		select {
		case failed = <-over:
			left--
		case <-look.C:
			for i := range ends {
				failed = errors.Join(failed, ends[i].check(s.m.r.cfg.Silence))
			}
		case <-dropped:
			dropped = nil
			last := s.deadline()
			_, _ = in.SetDeadline(last), out.SetDeadline(last)
		}
		if failed != nil && err == nil {
			err = failed
			_, _ = in.Reset(), out.Reset()
		}
	}
	return err
}

// pump forwards one direction until its end, and then closes the write side of to.
func pump(to, from sock.Conn, moved func(uint64)) error {
	if err := from.Pump(to, func(n int) { moved(uint64(n)) }); err != nil {
		return err
	}
	return to.CloseWrite()
}

// errnoOf returns the kernel's error without the names of the calls that failed.
func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// closeConn closes a connection, with a reset if the circuit failed.
func closeConn(c sock.Conn, err error) {
	if err != nil {
		_ = c.Reset()
		return
	}
	_ = c.Close()
}
