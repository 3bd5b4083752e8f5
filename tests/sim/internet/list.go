package internet

import (
	"net/netip"
	"slices"
)

// Interfaces returns the interfaces of the host, the loopback interface first.
func (h *Host) Interfaces() []*Interface {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return slices.Clone(h.interfaces)
}

// Status returns what a host tells of the interface: whether it is up, has a carrier, and its addresses.
func (i *Interface) Status() (up, carrier bool, addrs []netip.Prefix) {
	i.host.net.mu.Lock()
	defer i.host.net.mu.Unlock()
	return !i.down, i.running(), slices.Clone(i.addresses())
}
