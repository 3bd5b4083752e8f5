package internet

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/transport/sock"
)

// A conn is a process's descriptor of an end, whose calls wait. It is guarded by the internet's mutex.
type conn struct {
	*end
	owner         *Process
	fd            int
	closed        bool
	reads, writes deadline
}

var _ sock.Conn = (*conn)(nil)

// newConn makes a connection of an end that the process has been given.
func newConn(e *end, p *Process, fd int) *conn { return &conn{end: e, owner: p, fd: fd} }

// A deadline is when calls that wait end.
type deadline struct {
	passed bool
	event  *bus.Event
}

// set sets a deadline at a time, the zero time for none.
// Preconditions: n.mu is locked.
func (d *deadline) set(e *end, t time.Time) {
	if d.event != nil {
		d.event.Stop()
		d.event = nil
	}
	left := time.Until(t)
	d.passed = !t.IsZero() && left <= 0
	if t.IsZero() || d.passed {
		e.wake()
		return
	}
	d.event = e.net().after(e.source, left, e.name+" deadline", func() {
		d.event = nil
		d.passed = true
		e.wake()
	})
}

func (c *conn) Local() netip.AddrPort  { return c.local }
func (c *conn) Remote() netip.AddrPort { return c.remote }

// lock locks the internet's mutex, and returns what unlocks it.
func (c *conn) lock() func() {
	c.net().mu.Lock()
	return c.net().mu.Unlock
}

// gone reports whether the connection was closed, or its process killed.
func (c *conn) gone() bool { return c.closed || c.owner.dead }

// wrap makes an error name the connection, as package sock does.
func (c *conn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: net.TCPAddrFromAddrPort(c.local), Addr: net.TCPAddrFromAddrPort(c.remote), Err: err}
}

func (c *conn) Read(b []byte) (int, error) {
	defer c.lock()()
	if len(b) == 0 {
		return 0, nil
	}
	n, err := c.waitRead(b)
	return n, c.wrap("read", err)
}

// waitRead waits for bytes. The error is not wrapped.
func (c *conn) waitRead(b []byte) (int, error) {
	for {
		switch {
		case c.gone():
			return 0, net.ErrClosed
		case c.reads.passed:
			return 0, os.ErrDeadlineExceeded
		case len(c.in) > 0:
			return c.read(b), nil
		case c.errno != 0:
			return 0, c.takeError()
		case c.ended || c.state == stateGone:
			return 0, io.EOF
		}
		c.owner.wait(c.readable)
	}
}

func (c *conn) Write(b []byte) (int, error) {
	defer c.lock()()
	n, err := c.waitWrite(b)
	return n, c.wrap("write", err)
}

// waitWrite waits until all bytes are taken. The error is not wrapped.
func (c *conn) waitWrite(b []byte) (written int, _ error) {
	for written < len(b) {
		switch {
		case c.gone():
			return written, net.ErrClosed
		case c.writes.passed:
			return written, os.ErrDeadlineExceeded
		case c.errno != 0:
			return written, c.takeError()
		case c.fin || c.state != stateOpen:
			return written, unix.EPIPE
		}
		n := c.put(b[written:])
		if written += n; n == 0 {
			c.owner.wait(c.writable)
		}
	}
	return written, nil
}

func (c *conn) SetDeadline(t time.Time) error {
	defer c.lock()()
	if c.gone() {
		return c.wrap("set deadline", net.ErrClosed)
	}
	c.reads.set(c.end, t)
	c.writes.set(c.end, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	defer c.lock()()
	if c.gone() {
		return c.wrap("set deadline", net.ErrClosed)
	}
	c.reads.set(c.end, t)
	return nil
}

func (c *conn) CloseWrite() error {
	defer c.lock()()
	switch {
	case c.gone():
		return c.wrap("close", net.ErrClosed)
	case c.state == stateGone:
		return c.wrap("close", os.NewSyscallError("shutdown", unix.ENOTCONN))
	case c.state == stateOpen && !c.fin:
		c.fin = true
		c.wantStep()
	}
	return nil
}

func (c *conn) Close() error {
	defer c.lock()()
	return c.wrap("close", c.close())
}

// close gives the descriptor back.
// Preconditions: n.mu is locked.
func (c *conn) close() error {
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.reads.set(c.end, time.Time{})
	c.writes.set(c.end, time.Time{})
	if !c.owner.dead {
		c.owner.shut(c.fd)
		c.release()
	}
	c.wake()
	return nil
}

func (c *conn) Reset() error {
	defer c.lock()()
	if !c.gone() {
		c.abort = true
	}
	return c.wrap("close", c.close())
}

func (c *conn) SetPatience(p sock.Patience) error {
	defer c.lock()()
	if c.gone() {
		return net.ErrClosed
	}
	if errno := c.owner.refused("setsockopt"); errno != 0 {
		return fmt.Errorf("set SO_KEEPALIVE to 1: %w", errno)
	}
	c.setPatience(p)
	return nil
}

func (c *conn) Tie(netdev string) error {
	defer c.lock()()
	if c.gone() {
		return net.ErrClosed
	}
	if c.local.Addr().Zone() == "" {
		on := c.host.named(netdev)
		if on == nil {
			return os.NewSyscallError("setsockopt SO_BINDTODEVICE", unix.ENODEV)
		}
		c.on = on
	}
	c.hops, c.minHops = 255, 255
	return nil
}

func (c *conn) Info() (sock.Info, error) {
	defer c.lock()()
	if c.gone() {
		return sock.Info{}, net.ErrClosed
	}
	return c.info(), nil
}

// Pump moves bytes from end to end, through a pipe that holds as much as a kernel's. Where the process can have no pipe it
// copies them.
func (c *conn) Pump(to sock.Conn, moved func(n int)) error {
	out := to.(*conn)
	defer c.lock()()
	pipe, in, failed := c.owner.openPipe()
	size := 1 << 20
	if failed {
		size = 64 << 10
	} else {
		defer func() {
			if !c.owner.dead {
				c.owner.shut(pipe)
				c.owner.shut(in)
			}
		}()
	}
	b := make([]byte, size)
	for {
		n, err := c.waitRead(b)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return c.wrap("splice", err)
		}
		if _, err := out.waitWrite(b[:n]); err != nil {
			return out.wrap("splice", err)
		}
		c.net().mu.Unlock()
		moved(n)
		c.net().mu.Lock()
	}
}

// openPipe takes the two descriptors of a pipe.
// Preconditions: n.mu is locked.
func (p *Process) openPipe() (r, w int, failed bool) {
	r, errno := p.open("pipe2", "pipe")
	if errno != 0 {
		return -1, -1, true
	}
	if w, errno = p.number("pipe"); errno != 0 {
		p.shut(r)
		return -1, -1, true
	}
	return r, w, false
}

// Stream makes a second descriptor of the end.
func (c *conn) Stream() (*sock.Stream, error) {
	defer c.lock()()
	if c.gone() {
		return nil, fmt.Errorf("duplicate the descriptor: %w", net.ErrClosed)
	}
	fd, errno := c.owner.open("fcntl", "lane")
	if errno != 0 {
		return nil, fmt.Errorf("duplicate the descriptor: %w", os.NewSyscallError("fcntl", errno))
	}
	c.refs++
	if c.bites == nil {
		c.bites = c.net().bus.Source(c.name + " bites")
	}
	return sock.Simulated(&stream{end: c.end, owner: c.owner, fd: fd}), nil
}
