package internet

import (
	"net/netip"
	"slices"
)

// Interfaces returns the interfaces of the host, the loopback interface first.
func (h *Host) Interfaces() []*Interface {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.present()
}

// present returns the interfaces that were not removed.
// Preconditions: n.mu is locked.
func (h *Host) present() []*Interface {
	return slices.DeleteFunc(slices.Clone(h.interfaces), func(i *Interface) bool { return i.removed })
}

// Rename gives the interface another name. What is bound to it stays bound.
func (i *Interface) Rename(name string) {
	i.host.net.change([]*Interface{i}, func() { i.name = name })
}

// Remove removes the interface from its host. The other end of a cable loses its carrier. No other interface gets its number.
func (i *Interface) Remove() {
	i.host.net.change(i.linked(), func() { i.removed, i.down, i.prefixes = true, true, nil })
}

// Status returns what a host tells of the interface: whether it is up, has a carrier, and its addresses.
func (i *Interface) Status() (up, carrier bool, addrs []netip.Prefix) {
	i.host.net.mu.Lock()
	defer i.host.net.mu.Unlock()
	return !i.down, i.running(), slices.Clone(i.addresses())
}
