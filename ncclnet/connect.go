package ncclnet

import (
	"fmt"
	"time"

	"ncclmesh/handshake"
)

// HandleSize is how many bytes NCCL carries from listen to connect.
const HandleSize = handshake.HandleSize

// A listenComm waits for one connection.
type listenComm struct {
	ctx      Handle
	listener listener
	alone    *time.Timer // until a connection has come
}

func (l *listenComm) close() error {
	l.alone.Stop()
	return l.listener.Close()
}

// A dial is a connect that has not finished. NCCL calls connect again with the
// same handle buffer, in which the listener left room for our key.
type dial struct {
	ctx     Handle
	dialing dialing
}

// Listen returns a listener and the handle that the peer connects to.
func (n *Net) Listen(ctx Handle, dev int) (Handle, [HandleSize]byte, Result) {
	h, wire, err := n.listen(ctx, dev)
	return h, wire, n.result("listen", err)
}

func (n *Net) listen(ctx Handle, dev int) (Handle, [HandleSize]byte, error) {
	var none [HandleSize]byte
	ctx, c, err := n.context(ctx)
	if err != nil {
		return 0, none, err
	}
	if err := checkDevice(dev, c.devices); err != nil {
		return 0, none, err
	}
	l, err := c.net.Listen()
	if err != nil {
		return 0, none, err
	}
	lc := &listenComm{ctx, l, n.alone.watch(n, c.told)}
	h, err := n.listens.put(lc)
	if err != nil {
		_ = lc.close()
		return 0, none, err
	}
	return h, l.Handle(), nil
}

// Connect starts or continues a connection to the listener that wire came from.
// Zero means: call again with the same buffer.
func (n *Net) Connect(ctx Handle, dev int, wire *[HandleSize]byte) (Handle, Result) {
	h, err := n.connect(ctx, dev, wire)
	return h, n.setUp("connect", h, err)
}

func (n *Net) connect(ctx Handle, dev int, wire *[HandleSize]byte) (Handle, error) {
	if wire == nil {
		return 0, fmt.Errorf("%w: the handle is NULL", errArgument)
	}
	key := Handle(handshake.ConnectorState(wire))
	if key == 0 {
		var err error
		if key, err = n.dial(ctx, dev, wire); err != nil {
			return 0, err
		}
		handshake.SetConnectorState(wire, uint64(key))
	}
	d, err := n.dials.find(key)
	if err != nil {
		return 0, err
	}
	conn, err := d.dialing.Poll()
	if conn == nil && err == nil {
		return 0, nil
	}
	if _, gone := n.dials.remove(key); gone != nil {
		return 0, gone
	}
	if err != nil {
		_ = d.dialing.Close()
		return 0, err
	}
	c := &sendComm{comm: comm{ctx: d.ctx, memory: conn}, conn: conn}
	if c.handle, err = n.sends.put(c); err != nil {
		_ = conn.Close()
		return 0, err
	}
	n.opened(&c.comm)
	return c.handle, nil
}

// dial starts a connection and returns the key to it.
func (n *Net) dial(ctx Handle, dev int, wire *[HandleSize]byte) (Handle, error) {
	ctx, c, err := n.context(ctx)
	if err != nil {
		return 0, err
	}
	if err := checkDevice(dev, c.devices); err != nil {
		return 0, err
	}
	target, err := handshake.DecodeHandle(wire)
	if err != nil {
		return 0, fmt.Errorf("%w: the handle to connect to: %w", errArgument, err)
	}
	d := &dial{ctx, c.net.Dial(target)}
	key, err := n.dials.put(d)
	if err != nil {
		_ = d.dialing.Close()
	}
	return key, err
}

// Accept returns the connection that arrived at a listener, or zero: call again.
func (n *Net) Accept(listen Handle) (Handle, Result) {
	h, err := n.accept(listen)
	return h, n.setUp("accept", h, err)
}

func (n *Net) accept(listen Handle) (Handle, error) {
	l, err := n.listens.find(listen)
	if err != nil {
		return 0, err
	}
	conn, err := l.listener.Accept()
	if conn == nil || err != nil {
		return 0, err
	}
	l.alone.Stop()
	c := &recvComm{comm: comm{ctx: l.ctx, memory: conn}, conn: conn}
	if c.handle, err = n.recvs.put(c); err != nil {
		_ = conn.Close()
		return 0, err
	}
	n.opened(&c.comm)
	return c.handle, nil
}

// CloseListen closes a listener, accepted from or not.
func (n *Net) CloseListen(h Handle) Result {
	l, err := n.listens.remove(h)
	if err == nil {
		err = l.close()
	}
	return n.result("closeListen", err)
}
