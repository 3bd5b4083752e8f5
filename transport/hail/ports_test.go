package hail

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"ncclmesh/transport/sock"
)

// A port of the range is asked from, over either family, which a firewall lets answers pass to.
func TestAskedFromRange(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	first := uint16(20000 + os.Getpid()%600*20)
	ports := sock.PortRange{First: first, Last: first + 19}
	at := place{Port{Netdev: lo.Name}, lo.Index}
	for _, six := range []bool{false, true} {
		source := netip.MustParseAddr("127.0.0.1")
		if six {
			source = netip.Addr{}
		}
		h := &Hailer{network: sock.Kernel{}, cfg: Config{PortRange: ports}}
		s, err := h.openMouth(at, six, source)
		if err != nil {
			t.Fatal(err)
		}
		if port := s.packets.Local().Port(); port < ports.First || port > ports.Last {
			t.Errorf("IPv6 %v: port %d, want one of %v", six, port, ports)
		}
		s.close()
	}
}
