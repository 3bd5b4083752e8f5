package control

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

// Every socket is marked while it is open, for forked children to close.

func withFD(c syscall.Conn, f func(int)) {
	if rc, err := c.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { f(int(fd)) }) // fails only on a closed socket, which is not marked
	}
}

// listen opens a listener; on all interfaces it hears both families where the kernel has both.
func listen(at *net.TCPAddr) (*forkfd.Listener, error) {
	return forkfd.Listen(context.Background(), &net.ListenConfig{}, "tcp", at.String())
}

// connect opens a connection. It does by hand what net.Dialer does, since that gives no chance to clear the mark of a
// socket that fails to connect before it is closed.
func connect(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Unmap().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().Unmap().As4()}
	}
	var fd int
	var err error
	forkfd.Do(func() {
		if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP); err == nil {
			forkfd.Mark(fd)
		}
	})
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = unix.Connect(fd, sa)
	f := os.NewFile(uintptr(fd), "tcp")
	defer forkfd.Do(func() {
		forkfd.Clear(fd)
		_ = f.Close()
	})
	if err == unix.EINPROGRESS || err == unix.EINTR {
		err = connected(ctx, f)
	}
	if err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	var conn *net.TCPConn
	forkfd.Do(func() {
		var c net.Conn
		if c, err = net.FileConn(f); err == nil {
			conn = c.(*net.TCPConn)
			forkfd.MarkConn(conn)
		}
	})
	if err != nil {
		return nil, err
	}
	if conn.LocalAddr() == nil || conn.RemoteAddr() == nil {
		// Reset since: the kernel no longer knows the addresses.
		_ = forkfd.Close(conn)
		return nil, os.NewSyscallError("connect", unix.ECONNRESET)
	}
	if conn.LocalAddr().String() == conn.RemoteAddr().String() {
		// Nobody listens on an ephemeral port of this host, and the kernel chose the same one for us.
		_ = forkfd.Close(conn)
		return nil, os.NewSyscallError("connect", unix.ECONNREFUSED)
	}
	return conn, nil
}

// connected waits until a connection attempt has succeeded or failed.
func connected(ctx context.Context, f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var result error
	err = rc.Write(func(fd uintptr) bool {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			result = err
		case errno != 0:
			result = unix.Errno(errno)
		default:
			_, err := unix.Getpeername(int(fd))
			if err == unix.ENOTCONN {
				return false
			}
			result = err
		}
		return true
	})
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, result)
}

// keepAlive makes the kernel notice a peer that has vanished without a word.
func (e *Endpoint) keepAlive(c *net.TCPConn) {
	probe := e.scaled(probeEvery)
	_ = c.SetNoDelay(true)
	_ = c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probe, Interval: probe, Count: 3})
	withFD(c, func(fd int) {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(e.scaled(silenceWait).Milliseconds()))
	})
}

func unmap(a net.Addr) netip.AddrPort {
	ap := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}
