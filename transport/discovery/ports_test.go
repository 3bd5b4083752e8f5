package discovery

import (
	"net/netip"
	"testing"

	"ncclmesh/tests/sim/hosts"
	"ncclmesh/transport/sock"
)

// Queries are sent from a port of the range, over either family, so that a firewall can let the replies pass.
func TestAskedFromRange(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		ports := sock.PortRange{First: 20000, Last: 20019}
		disc, _ := newDiscoveryOn(t, "a", func(c *Config) { c.PortRange = ports })
		at := iface{next, t.Host("a").Interface("next").Index()}
		for _, six := range []bool{false, true} {
			source := netip.MustParseAddr("192.168.1.1")
			if six {
				source = netip.Addr{}
			}
			s, err := disc.openQuery(at, six, source)
			if err != nil {
				t.Fatal(err)
			}
			if port := s.packets.Local().Port(); port < ports.First || port > ports.Last {
				t.Errorf("IPv6 %v: port %d, want one of %v", six, port, ports)
			}
			s.close()
		}
	})
}
