package conn

import (
	"context"
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/fault"
)

// expect returns the peer's next set-up message, which must be an M. It handles LaneDown messages that come
// before it.
func expect[M handshake.Message](ctx context.Context, s *setup) (M, error) {
	var none M
	s.clock.Start()
	for {
		m, err := s.next(ctx)
		if err != nil {
			return none, err
		}
		if down, ok := m.(*handshake.LaneDown); ok {
			s.laneFailed(down.Lane, handshake.CausePath, down.Reason)
			continue
		}
		if m, ok := m.(M); ok {
			return m, nil
		}
		return none, s.c.unexpectedMessage(m, none.Type())
	}
}

// next returns the peer's next set-up message. A message that came before the end of the connection is
// returned before the connection's error.
func (s *setup) next(ctx context.Context) (handshake.Message, error) {
	tick := s.c.env.Clock.NewTicker(clock.LookEvery)
	defer tick.Stop()
	for {
		select {
		case m := <-s.inbox:
			return m, nil
		default:
		}
		if err := s.c.Ended(); err != nil {
			return nil, err
		}
		select {
		case m := <-s.inbox:
			return m, nil
		case <-tick.C:
			s.checkClock()
		case <-s.c.peerDone:
		case <-ctx.Done():
			return nil, s.c.abandoned()
		}
	}
}

// unexpectedMessage returns the error for a message that the protocol does not allow at this point.
func (c *Conn) unexpectedMessage(m handshake.Message, want handshake.Type) error {
	return fmt.Errorf("%w: %v: %v instead of %v", fault.ErrProtocol, c, m.Type(), want)
}

// put adds a message to the set-up's inbox. It does not block: a full inbox fails the connection.
func (s *setup) put(m handshake.Message) {
	select {
	case s.inbox <- m:
	default:
		s.c.Fail(fmt.Errorf("%w: %v: more messages than the protocol allows", fault.ErrProtocol, s.c))
	}
}

// abandoned returns the error of a set-up that was cancelled.
func (c *Conn) abandoned() error {
	return fmt.Errorf("%w: %v: given up during set-up", fault.ErrUsage, c)
}

// sendOrFail sends the peer a message, or fails the connection if the live session does not take it. It does
// not block. The session reports its own end, so that a dead session is ignored here.
func (c *Conn) sendOrFail(m handshake.Message) {
	if err := c.Session.Send(m); err != nil && c.Session.Alive() {
		c.Fail(fmt.Errorf("%w: %v: %w", fault.ErrInternal, c, err))
	}
}
