package path_test

import (
	"net/netip"
	"slices"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/tests/transporttest"
)

// A change of an address reaches the peers, and the paths are validated again.
func TestAddressChange(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		a, b := transporttest.New(t), transporttest.New(t)
		s, r := transporttest.Connect(t, a, b)
		transporttest.CloseBoth(t, s, r)
		address := netip.MustParsePrefix("192.168.2.2/24")
		has := func(ports []handshake.Port) bool {
			return slices.ContainsFunc(ports[1].Addrs, func(x handshake.PortAddr) bool {
				return x.Addr.Unmap() == address.Addr() && int(x.PrefixLen) == address.Bits()
			})
		}
		sess := s.Session
		if !has(a.Paths().PortsOf(sess)) {
			t.Fatalf("the peer does not tell of %v: %+v", address, a.Paths().PortsOf(sess))
		}
		for _, prefixes := range [][]netip.Prefix{nil, {address}} {
			transporttest.WorldOf(t).Cables[1].SetPrefixes(1, prefixes...)
			transporttest.Await(t, "the peer to tell of the change", func() bool { return has(a.Paths().PortsOf(sess)) == (prefixes != nil) })
			if a.Paths().Knows(sess.Peer().Process) {
				t.Error("paths from before the change are still trusted")
			}
			s, r := transporttest.Connect(t, a, b)
			transporttest.CloseBoth(t, s, r)
		}
	})
}
