package control

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

// Every socket is marked while it is open, for forked children to close.

func withFD(c syscall.Conn, f func(int)) {
	if rc, err := c.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) { f(int(fd)) }) // fails only on a closed socket, which is not marked
	}
}

// connect opens a connection, from an interface if one is named: then to somebody on its link.
func (e *Endpoint) connect(ctx context.Context, netdev string, to netip.AddrPort) (*net.TCPConn, error) {
	f, err := forkfd.Dialer{Netdev: netdev, Ports: e.cfg.PortRange}.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	defer forkfd.Close(f)
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
	if netdev != "" {
		withFD(conn, func(fd int) { err = stayOnLink(fd, to.Addr(), false) })
		if err != nil {
			_ = forkfd.Close(conn)
			return nil, err
		}
	}
	return conn, nil
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

// addrOf is one end of a connection, without the zone of a link-local one: what is kept of it is compared.
func addrOf(a net.Addr) netip.AddrPort {
	ap := forkfd.AddrPort(a)
	return netip.AddrPortFrom(ap.Addr().WithZone(""), ap.Port())
}
