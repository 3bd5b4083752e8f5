package topology

import "net/netip"

// OnLink returns an address at either end of an interface's cable in the form that sockets need: a link-local IPv6
// address gets the interface as its zone.
func OnLink(a netip.Addr, netdev string) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() && a.IsLinkLocalUnicast() {
		return a.WithZone(netdev)
	}
	return a
}
