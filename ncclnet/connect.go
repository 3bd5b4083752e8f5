package ncclnet

import (
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/clock"
)

// HandleSize is the number of bytes that NCCL passes from listen to connect.
const HandleSize = handshake.HandleSize

// A listenComm waits for one connection.
type listenComm struct {
	ctx      Handle
	attempt  uint64
	listener listener
	noPeer   *clock.Timer // runs until a connection has arrived
}

func (l *listenComm) close() error {
	l.noPeer.Stop()
	return l.listener.Close()
}

// A dial is a connect that has not finished. NCCL calls connect again with the same handle buffer, in which the
// listener has left room for the dial's key.
type dial struct {
	ctx     Handle
	attempt uint64
	dialing dialing
}

// Listen returns a listener, and the handle for the peer's connect.
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
	lc := &listenComm{ctx, n.attempts.begin(), l, n.noPeer.watch(n, c.settings)}
	h, err := n.listens.put(lc)
	if err != nil {
		_ = lc.close()
		return 0, none, err
	}
	return h, l.Handle(), nil
}

// Connect starts or continues a connection to the listener that made the handle wire. Zero means: call again with the
// same buffer.
func (n *Net) Connect(ctx Handle, dev int, wire *[HandleSize]byte) (Handle, Result) {
	d, key, err := n.dial(ctx, dev, wire)
	if err != nil {
		return 0, n.notSetUp("connect", 0, err)
	}
	h, err := n.connect(d, key)
	return h, n.notSetUp("connect", d.attempt, err)
}

func (n *Net) connect(d *dial, key Handle) (Handle, error) {
	conn, err := d.dialing.Poll()
	if conn == nil && err == nil {
		return 0, nil
	}
	if _, rerr := n.dials.remove(key); rerr != nil {
		return 0, rerr
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
	n.activate(&c.comm)
	return c.handle, nil
}

// dial returns the connect in progress for the buffer wire, and its key. It starts one if there is none.
func (n *Net) dial(ctx Handle, dev int, wire *[HandleSize]byte) (*dial, Handle, error) {
	if wire == nil {
		return nil, 0, fmt.Errorf("%w: the handle is NULL", errArgument)
	}
	if key := Handle(handshake.ConnectorState(wire)); key != 0 {
		d, err := n.dials.find(key)
		return d, key, err
	}
	ctx, c, err := n.context(ctx)
	if err != nil {
		return nil, 0, err
	}
	if err := checkDevice(dev, c.devices); err != nil {
		return nil, 0, err
	}
	target, err := handshake.DecodeHandle(wire)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: the handle to connect to: %w", errArgument, err)
	}
	d := &dial{ctx, n.attempts.begin(), c.net.Dial(target)}
	key, err := n.dials.put(d)
	if err != nil {
		_ = d.dialing.Close()
		return nil, 0, err
	}
	handshake.SetConnectorState(wire, uint64(key))
	return d, key, nil
}

// Accept returns the connection that arrived at a listener. Zero means: call again.
func (n *Net) Accept(listen Handle) (Handle, Result) {
	l, err := n.listens.find(listen)
	if err != nil {
		return 0, n.notSetUp("accept", 0, err)
	}
	h, err := n.accept(l)
	return h, n.notSetUp("accept", l.attempt, err)
}

func (n *Net) accept(l *listenComm) (Handle, error) {
	conn, err := l.listener.Accept()
	if conn == nil || err != nil {
		return 0, err
	}
	l.noPeer.Stop()
	c := &recvComm{comm: comm{ctx: l.ctx, memory: conn}, conn: conn}
	if c.handle, err = n.recvs.put(c); err != nil {
		_ = conn.Close()
		return 0, err
	}
	n.activate(&c.comm)
	return c.handle, nil
}

// CloseListen closes a listener, with or without an accepted connection. It accepts NULL, and a listener that was
// closed before: see table.close.
func (n *Net) CloseListen(h Handle) Result {
	l, err := n.listens.close(h)
	if l != nil {
		err = l.close()
	}
	return n.result("closeListen", err)
}
