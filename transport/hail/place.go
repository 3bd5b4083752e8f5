package hail

import (
	"net/netip"

	"ncclmesh/transport/sock"
)

// place is a port's interface, as the network has it.
type place struct {
	Port
	index int
}

// on is the interface.
func (at place) on() sock.Interface { return sock.Interface{Name: at.Netdev, Index: at.index} }

// places returns the ports whose interface there is, and of which of these somebody may be heard now.
func (h *Hailer) places() (all, running []place) {
	interfaces, err := h.network.Interfaces()
	if err != nil {
		if h.count.first("", "interfaces") {
			h.log.Warn("neighbour discovery: cannot list the interfaces of this node: no queries are sent or answered", "error", err)
		}
		return nil, nil
	}
	byName := make(map[string]sock.Interface)
	for _, i := range interfaces {
		byName[i.Name] = i
	}
	ports := make(map[string]Port)
	var order []string
	for _, p := range h.cfg.Ports() {
		old, again := ports[p.Netdev]
		if !again {
			order = append(order, p.Netdev)
		}
		if !again || p.RDMA && !old.RDMA {
			ports[p.Netdev] = p
		}
	}
	for _, name := range order {
		i, ok := byName[name]
		if !ok {
			continue
		}
		at := place{ports[name], i.Index}
		all = append(all, at)
		if i.Running {
			running = append(running, at)
		}
	}
	return all, running
}

// source is the IPv4 address of a place to speak to an address from; to none, the first. It is invalid where there is
// none.
func (h *Hailer) source(at place, to netip.Addr) netip.Addr {
	var first netip.Addr
	for _, p := range h.network.Prefixes(at.index) {
		switch {
		case !p.Addr().Is4():
		case p.Contains(to):
			return p.Addr()
		case !first.IsValid():
			first = p.Addr()
		}
	}
	return first
}
