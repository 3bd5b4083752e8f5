package hail

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/forkfd"
)

// A port of the range is asked from, over either family, which a firewall lets answers pass to.
func TestAskedFromRange(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	first := uint16(20000 + os.Getpid()%600*20)
	ports := forkfd.PortRange{First: first, Last: first + 19}
	at := place{Port{Netdev: lo.Name}, lo.Index}
	for _, six := range []bool{false, true} {
		s, err := openMouth(at, six, netip.MustParseAddr("127.0.0.1"), ports)
		if err != nil {
			t.Fatal(err)
		}
		name, err := unix.Getsockname(int(s.f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		if port := forkfd.SockaddrPort(name).Port(); port < ports.First || port > ports.Last {
			t.Errorf("IPv6 %v: port %d, want one of %v", six, port, ports)
		}
		s.close()
	}
}
