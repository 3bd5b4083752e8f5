package sock

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDial(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	open := ln.Addr().(*net.TCPAddr).AddrPort()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := gone.Addr().(*net.TCPAddr).AddrPort()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	lo := netip.MustParseAddr("127.0.0.1")
	tests := []struct {
		name   string
		from   From
		to     netip.AddrPort
		want   error // that it wraps
		saying string
	}{
		{"from anywhere", From{}, open, nil, ""},
		{"from an address on an interface", From{Addr: lo, Netdev: "lo"}, open, nil, ""},
		{"nobody listens", From{}, closed, syscall.ECONNREFUSED, "connect: "},
		{"a foreign address", From{Addr: netip.MustParseAddr("192.0.2.1")}, open, syscall.EADDRNOTAVAIL, "bind to 192.0.2.1: "},
		{"no such interface", From{Netdev: "nosuchif0"}, open, syscall.ENODEV, "bind to interface nosuchif0: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Kernel{}.Dial(t.Context(), tt.from, tt.to)
			if err == nil {
				if n := len(marked()); n != 1 {
					t.Errorf("%d descriptors are marked while it is open", n)
				}
				err = c.Close()
			}
			if !errors.Is(err, tt.want) || err != nil && !strings.HasPrefix(err.Error(), tt.saying) {
				t.Errorf("error %v; want %q and %v", err, tt.saying, tt.want)
			}
			if n := len(marked()); n != 0 {
				t.Errorf("%d descriptors are marked at the end", n)
			}
		})
	}
}

// Another socket of this host that goes to the same listener does not get the port of one that is bound to an interface: the kernel takes
// the two for different ones, the other end cannot, and resets the first.
func TestDialsOwnPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	lo, to := netip.MustParseAddr("127.0.0.1"), ln.Addr().(*net.TCPAddr).AddrPort()
	c, err := Kernel{}.Dial(t.Context(), From{Addr: lo, Netdev: "lo"}, to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	port := int(in.RemoteAddr().(*net.TCPAddr).Port)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, port|port<<16); err != nil {
		t.Skipf("an older kernel, on which no socket can be given a certain port but by chance: %v", err)
	}
	if err := unix.Connect(fd, sockaddr(to)); err != unix.EADDRNOTAVAIL {
		t.Errorf("another socket connects from port %d too: %v", port, err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := in.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}
