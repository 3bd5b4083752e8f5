package discovery

import (
	"net/netip"

	"ncclmesh/transport/sock"
)

// iface is a port and its network interface.
type iface struct {
	Port
	index int // index of the network interface
}

// sock returns the interface in the form that sockets need.
func (at iface) sock() sock.Interface { return sock.Interface{Name: at.Netdev, Index: at.index} }

// ifaces returns the ports whose interface exists, and those among them whose interface is up with a carrier. If
// several ports share an interface, it returns the port of an RDMA device.
func (disc *Discovery) ifaces() (all, running []iface) {
	interfaces, err := disc.network.Interfaces()
	if err != nil {
		if disc.count.first("", "interfaces") {
			disc.log.Warn("neighbour discovery: cannot list the interfaces of this node: no queries are sent or answered", "error", err)
		}
		return nil, nil
	}
	byName := make(map[string]sock.Interface)
	for _, i := range interfaces {
		byName[i.Name] = i
	}
	ports := make(map[string]Port)
	var order []string
	for _, p := range disc.cfg.Ports() {
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
		at := iface{ports[name], i.Index}
		all = append(all, at)
		if i.Running {
			running = append(running, at)
		}
	}
	return all, running
}

// source returns the IPv4 source address on an interface for a destination, or the first address if none is in the
// destination's subnet. It is invalid if the interface has no IPv4 address.
func (disc *Discovery) source(at iface, to netip.Addr) netip.Addr {
	var first netip.Addr
	for _, p := range disc.network.Prefixes(at.index) {
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
