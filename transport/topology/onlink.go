package topology

import "net/netip"

// OnLink is an address at either end of an interface's cable as sockets want it: a
// link-local one of IPv6 has the interface for its zone.
func OnLink(a netip.Addr, netdev string) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() && a.IsLinkLocalUnicast() {
		return a.WithZone(netdev)
	}
	return a
}
