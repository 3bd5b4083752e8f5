package ncclnet

import (
	"fmt"

	"ncclmesh/transport"
	"ncclmesh/transport/conn"
)

// SendEnd returns the transport's sender behind a sendComm, for one-sided operations in place of messages. It stays the
// sendComm's: CloseSend closes it.
func (n *Net) SendEnd(h Handle) (*conn.Sender, error) {
	c, err := n.sends.find(h)
	if err != nil {
		return nil, err
	}
	s, ok := c.conn.(meshSender)
	if !ok {
		return nil, fmt.Errorf("%w: %s %s has no sender", errArgument, kindSend, h)
	}
	return s.Sender, nil
}

// RecvEnd returns the transport's receiver behind a recvComm. It stays the recvComm's: CloseRecv closes it.
func (n *Net) RecvEnd(h Handle) (*conn.Receiver, error) {
	c, err := n.recvs.find(h)
	if err != nil {
		return nil, err
	}
	r, ok := c.conn.(meshReceiver)
	if !ok {
		return nil, fmt.Errorf("%w: %s %s has no receiver", errArgument, kindRecv, h)
	}
	return r.Receiver, nil
}

// Transport returns the transport of a context, which stays the context's; 0 is the shared context.
func (n *Net) Transport(ctx Handle) (*transport.Transport, error) {
	_, c, err := n.context(ctx)
	if err != nil {
		return nil, err
	}
	t, ok := c.net.(meshNetwork)
	if !ok {
		return nil, fmt.Errorf("%w: the network has no transport", errArgument)
	}
	return t.Transport, nil
}
