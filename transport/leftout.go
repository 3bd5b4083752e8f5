package transport

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/topology"
)

// leftOut returns the settings that exclude ports or addresses of a node, with the names of those, first the settings
// that concern RDMA. They are sent to peers, and named in the error when no path is found.
func (o *Options) leftOut(n *topology.Node) []handshake.Setting {
	var all []handshake.Setting
	add := func(name, value string, ports []string) {
		if len(ports) > 0 {
			all = append(all, handshake.Setting{Name: name, Value: value, LeftOut: summary(ports)})
		}
	}
	rdma := n.Ports
	if o.Transport == TransportTCP {
		add("NCCL_MESH_TRANSPORT", TransportTCP, topology.Names(rdma))
		rdma = nil
	}
	selected := o.HCA.Select(rdma)
	add("NCCL_IB_HCA", o.HCA.String(), topology.Names(without(rdma, selected)))

	used := topology.IfFilter{}.Select(n.Plain)
	if o.Transport == TransportRDMA {
		used = nil
	}
	allowed := o.allowed(used)
	lanes := o.LaneIfs.Select(allowed)
	o.leftOutAddresses(slices.Concat(selected, lanes), add)

	if o.Transport == TransportRDMA {
		add("NCCL_MESH_TRANSPORT", TransportRDMA, []string{"TCP"})
	}
	add("NCCL_SOCKET_IFNAME", o.Interfaces.String(), topology.Names(without(used, allowed)))
	add("NCCL_MESH_IFNAME", o.LaneIfs.String(), topology.Names(without(allowed, lanes)))
	return all
}

// leftOutAddresses passes to add what the GID policy excludes from ports in use: whole ports, or addresses that rank
// above the one in use.
func (o *Options) leftOutAddresses(ports []topology.Port, add func(name, value string, ports []string)) {
	var byIndex, byRange []string
	for i := range ports {
		p := &ports[i]
		name := p.Short()
		kept := p.RankGIDs(o.GIDs)
		var lost []string
		for _, g := range p.RankGIDs(topology.AnyGID) {
			if a := g.Addr.Unmap().String(); g.PrefixLen >= 0 && !slices.Contains(lost, a) &&
				!slices.ContainsFunc(kept, func(k topology.Address) bool { return k.Addr == g.Addr }) {
				lost = append(lost, a)
			}
		}
		switch {
		case len(lost) == 0:
			continue
		case len(kept) > 0:
			name = strings.Join(lost, " and ") + " of " + name
		}
		if o.GIDs.Index >= 0 && p.Device != "" && p.LinkLayer == handshake.IBV_LINK_LAYER_ETHERNET {
			byIndex = append(byIndex, name)
		} else {
			byRange = append(byRange, name)
		}
	}
	add("NCCL_IB_GID_INDEX", fmt.Sprint(o.GIDs.Index), byIndex)
	add("NCCL_IB_ADDR_RANGE", o.GIDs.Range.String(), byRange)
}

// checkFilters returns an error for a filter that excludes every RDMA port, because that is surely a mistake. It logs a
// warning about a filter that names nothing that this node has.
func (t *Transport) checkFilters(n *topology.Node) error {
	hca, ifs := t.opts.HCA, t.opts.LaneIfs
	switch {
	case t.opts.Transport == TransportTCP || hca.String() == "":
	case len(n.Ports) > 0 && len(hca.Select(n.Ports)) == 0:
		return fmt.Errorf("%w: NCCL_IB_HCA=%v matches none of the RDMA ports of this node, which are %s: correct it, unset it to use all, or set NCCL_MESH_TRANSPORT=tcp to do without RDMA",
			fault.ErrUsage, hca, summary(topology.Names(n.Ports)))
	case len(n.Ports) == 0 && hca.Named():
		t.log.Warn(fmt.Sprintf("NCCL_IB_HCA=%v has no effect: this node has no RDMA port", hca))
	}
	if t.opts.Transport != TransportRDMA && ifs.Named() && !slices.ContainsFunc(n.Plain, func(p topology.Port) bool { return ifs.Match(p.Netdev) }) {
		t.log.Warn(fmt.Sprintf("NCCL_MESH_IFNAME=%v matches none of the interfaces of this node, which are %s: nothing goes over TCP", ifs, summary(topology.Names(n.Plain))))
	}
	return nil
}

// setUpAddrs returns the addresses of the control plane. mesh contains the interfaces of RDMA ports.
func (o *Options) setUpAddrs(n *topology.Node, mesh map[string]bool) ([]netip.Addr, error) {
	addrs := topology.BootstrapAddrs(n.Links, o.Interfaces, o.SocketFamily, mesh)
	if len(addrs) == 0 && o.Interfaces.String() != "" {
		return nil, fmt.Errorf("%w: NCCL_SOCKET_IFNAME=%v selects no interface that is up and has an address at which another node could reach this one; there are %s: correct it or unset it",
			fault.ErrUsage, o.Interfaces, summary(topology.Names(n.Plain)))
	}
	return addrs, nil
}

// noInterface returns the text of an error: no interface of the node can be used for TCP, with the settings that select
// among them.
func (o *Options) noInterface(plain []topology.Port) string {
	var by []string
	if s := o.Interfaces.String(); s != "" {
		by = append(by, "NCCL_SOCKET_IFNAME="+s)
	}
	if s := o.LaneIfs.String(); s != "" {
		by = append(by, "NCCL_MESH_IFNAME="+s)
	}
	none := "none of the network interfaces of this node (" + summary(topology.Names(plain)) + ") is up"
	if len(by) == 0 {
		return none + " and has an address"
	}
	return none + ", has an address and is selected by " + strings.Join(by, " and ")
}

// without returns the ports that are not in others.
func without(ports, others []topology.Port) (rest []topology.Port) {
	for _, p := range ports {
		if !slices.ContainsFunc(others, func(o topology.Port) bool { return o.String() == p.String() }) {
			rest = append(rest, p)
		}
	}
	return rest
}

// summary returns the names as one text: at most eight of them, and the number of the rest.
func summary(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
