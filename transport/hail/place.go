package hail

import (
	"net"
	"net/netip"
)

// place is a port's interface, as the kernel has it.
type place struct {
	Port
	index int
}

// places returns the ports whose interface there is, and of which of these somebody may be heard now.
func (h *Hailer) places() (all, running []place) {
	interfaces, err := net.Interfaces()
	if err != nil {
		if h.count.first("", "interfaces") {
			h.log.Warn("neighbour discovery: cannot list the interfaces of this node: no queries are sent or answered", "error", err)
		}
		return nil, nil
	}
	byName := make(map[string]net.Interface)
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
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0 {
			running = append(running, at)
		}
	}
	return all, running
}

// source is the IPv4 address of the place to speak to an address from; to none, the first. It is invalid where there is
// none.
func (p place) source(to netip.Addr) netip.Addr {
	i, err := net.InterfaceByIndex(p.index)
	if err != nil {
		return netip.Addr{}
	}
	addrs, err := i.Addrs()
	if err != nil {
		return netip.Addr{}
	}
	var first netip.Addr
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || !prefix.Addr().Is4() {
			continue
		}
		if prefix.Contains(to) {
			return prefix.Addr()
		}
		if !first.IsValid() {
			first = prefix.Addr()
		}
	}
	return first
}
