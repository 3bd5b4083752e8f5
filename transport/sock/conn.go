package sock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

// conn is a connection of the kernel's.
type conn struct {
	*socket
	local, remote netip.AddrPort
}

var _ Conn = (*conn)(nil)

// newConn makes a connection of a marked, connected socket. On an error the caller still has the socket.
func newConn(s *socket) (*conn, error) {
	c := &conn{socket: s}
	err := s.control(func(fd int) error {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // else it is slower, and no less right
		own, err := unix.Getsockname(fd)
		if err != nil {
			return os.NewSyscallError("getsockname", err)
		}
		other, err := unix.Getpeername(fd)
		if err != nil { // reset since: the kernel no longer knows the address
			return os.NewSyscallError("connect", unix.ECONNRESET)
		}
		c.local, c.remote = addrPort(own), addrPort(other)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *conn) Local() netip.AddrPort  { return c.local }
func (c *conn) Remote() netip.AddrPort { return c.remote }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.f.Read(b)
	return n, c.wrap("read", err)
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.f.Write(b)
	return n, c.wrap("write", err)
}

// wrap makes an error name the connection, as those of package net do.
func (c *conn) wrap(op string, err error) error {
	var path *os.PathError
	switch {
	case err == nil || err == io.EOF:
		return err
	case c.closed.Load():
		err = net.ErrClosed
	case errors.As(err, &path):
		err = path.Err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: net.TCPAddrFromAddrPort(c.local), Addr: net.TCPAddrFromAddrPort(c.remote), Err: err}
}

func (c *conn) SetDeadline(t time.Time) error { return c.wrap("set deadline", c.f.SetDeadline(t)) }

func (c *conn) SetReadDeadline(t time.Time) error {
	return c.wrap("set deadline", c.f.SetReadDeadline(t))
}

func (c *conn) CloseWrite() error {
	return c.wrap("close", c.control(func(fd int) error { return os.NewSyscallError("shutdown", unix.Shutdown(fd, unix.SHUT_WR)) }))
}

func (c *conn) Close() error { return c.wrap("close", c.socket.Close()) }

func (c *conn) Reset() error {
	_ = c.control(func(fd int) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	return c.Close()
}

// seconds rounds a duration up, to one second at least.
func seconds(d time.Duration) int { return max(1, int((d+time.Second-1)/time.Second)) }

func (c *conn) SetPatience(p Patience) error {
	return c.control(func(fd int) error {
		for _, o := range []struct {
			name              string
			level, opt, value int
		}{
			{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(p.Idle)},
			{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(p.Interval)},
			{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, p.Count},
			{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int((p.Silence + time.Millisecond - 1) / time.Millisecond)},
		} {
			if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
				return fmt.Errorf("set %s to %d: %w", o.name, o.value, err)
			}
		}
		return nil
	})
}

// hopLimit is the highest: what arrives with it has come through no router.
const hopLimit = 255

// Tie ties the connection: from now on the kernel takes nothing for it that came by another interface, or through a router.
// What the other end says only after that shows that it is on the link.
func (c *conn) Tie(netdev string) error {
	return c.control(func(fd int) error {
		if c.local.Addr().Zone() == "" { // else the kernel has tied it already
			if err := unix.BindToDevice(fd, netdev); err != nil {
				return os.NewSyscallError("setsockopt SO_BINDTODEVICE", err)
			}
		}
		return stayOnLink(fd, c.local.Addr(), true)
	})
}

// stayOnLink sends what follows with the highest hop limit, and accepts, if asked to, nothing that comes with less. The
// address tells the family.
func stayOnLink(fd int, addr netip.Addr, accept bool) error {
	level, send, least := unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_MINHOPCOUNT
	if addr.Unmap().Is4() {
		level, send, least = unix.IPPROTO_IP, unix.IP_TTL, unix.IP_MINTTL
	}
	err := unix.SetsockoptInt(fd, level, send, hopLimit)
	if err == nil && accept {
		err = unix.SetsockoptInt(fd, level, least, hopLimit)
	}
	return os.NewSyscallError("setsockopt hop limit", err)
}

func (c *conn) Info() (i Info, err error) {
	err = c.control(func(fd int) error {
		i, err = infoOf(fd)
		return err
	})
	return i, err
}

// Stream duplicates the descriptor, because a descriptor cannot be taken out of Go's poller.
func (c *conn) Stream() (*Stream, error) {
	s := &Stream{fd: -1}
	err := c.control(func(old int) (err error) {
		s.fd, err = forkfd.Copy(old)
		return os.NewSyscallError("fcntl", err)
	})
	if err != nil {
		return nil, fmt.Errorf("duplicate the descriptor: %w", err)
	}
	return s, nil
}
