package relay

import (
	"net/netip"
	"testing"

	"ncclmesh/transport/topology"
)

// TCP reaches an address from one in its subnet, or else from one of its scope. It never reaches another machine from a
// loopback address.
func TestNear(t *testing.T) {
	tests := []struct {
		name string
		own  []string
		to   string
		want string // "" for none
	}{
		{"its subnet", []string{"10.1.0.1/24", "10.0.0.1/24", "fe80::1/64"}, "10.0.0.2", "10.0.0.1"},
		{"no subnet of ours", []string{"fe80::1/64", "10.1.0.1/24"}, "10.0.0.2", "10.1.0.1"},
		{"link-local", []string{"2001:db8::1/64", "fe80::1/64"}, "fe80::2", "fe80::1"},
		{"another family", []string{"fe80::1/64"}, "10.0.0.2", ""},
		{"a routed address beside loopback", []string{"127.0.0.1/8", "10.10.10.1/32"}, "10.10.10.2", "10.10.10.1"},
		{"loopback alone", []string{"127.0.0.1/8"}, "10.10.10.2", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := topology.Port{Netdev: "p0"}
			for _, s := range tt.own {
				a := netip.MustParsePrefix(s)
				p.GIDs = append(p.GIDs, topology.Address{Addr: netip.AddrFrom16(a.Addr().As16()), Type: topology.GIDTypeNone, Netdev: "p0", PrefixLen: a.Bits()})
			}
			got := ""
			if a, ok := nearestAddr(&p, netip.MustParseAddr(tt.to)); ok {
				got = a.String()
			}
			if got != tt.want {
				t.Errorf("from %q, want %q", got, tt.want)
			}
		})
	}
}
