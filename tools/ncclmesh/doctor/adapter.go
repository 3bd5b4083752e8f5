package doctor

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/handshake"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// rdmaPorts are a node's RDMA ports; ok is false where nobody could look, which is said.
func rdmaPorts(n *facts.Node, v *verdict) (ports []topology.Port, ok bool) {
	found, ok := n.Topology.Get()
	if !ok {
		v.unknown(on(n), n.Topology.Because())
	}
	return found.Ports, ok
}

// roce are those on Ethernet that are up.
func roce(ports []topology.Port) (up []topology.Port) {
	for _, p := range ports {
		if p.Active && p.LinkLayer == handshake.IBV_LINK_LAYER_ETHERNET {
			up = append(up, p)
		}
	}
	return up
}

// portsOf are all ports of an RDMA device, by name.
func portsOf(n *facts.Node, device string) (names []string) {
	found, _ := n.Topology.Get()
	for _, p := range found.Ports {
		if p.Device == device {
			names = append(names, facts.PortName(&p))
		}
	}
	return names
}

func gbps(mbps int) string { return fmt.Sprintf("%.4g Gb/s", float64(mbps)/1000) }

func rdmaAbsent(n *facts.Node, v *verdict) {
	ports, ok := rdmaPorts(n, v)
	if !ok || len(ports) > 0 {
		return
	}
	modules, loaded := n.Modules.Get()
	functions, looked := n.Functions.Get()
	switch {
	case looked && len(functions) > 0 && loaded && !slices.Contains(modules, "mlx5_ib"):
		v.fail(on(n), "run modprobe mlx5_ib", "no RDMA device, although adapters that do RDMA are at %s: the module mlx5_ib is not loaded", strings.Join(functions, ", "))
	case looked && len(functions) > 0:
		v.fail(on(n), "read the kernel's log of mlx5_core and mlx5_ib: journalctl -k -g mlx5", "no RDMA device, although adapters that do RDMA are at %s", strings.Join(functions, ", "))
	case !looked && !loaded:
		v.unknown(on(n), fmt.Sprintf("%s; %s", n.Functions.Because(), n.Modules.Because()))
	default:
		v.info(on(n), "", "no RDMA device: TCP is used")
	}
}

// gb10Functions is how many functions a GB10's adapter has: two behind each of two cages.
const gb10Functions = 4

func nicUnplugged(n *facts.Node, v *verdict) {
	names, ok := n.DMI.Get()
	if !ok {
		v.unknown(on(n), n.DMI.Because())
		return
	}
	if !slices.ContainsFunc(names, isGB10) {
		return
	}
	functions, ok := n.Functions.Get()
	if !ok {
		v.unknown(on(n), n.Functions.Because())
	} else if len(functions) < gb10Functions {
		v.fail(on(n), "insert the cables, power the peer on, and wait; the adapter appears when a link does", "%d of the %d functions of a GB10's adapter are on the PCI bus", len(functions), gb10Functions)
	}
}

// isGB10 reports whether a maker's name of a machine is that of one with a GB10.
func isGB10(name string) bool {
	name = strings.ToUpper(strings.ReplaceAll(name, "_", " "))
	return strings.Contains(name, "GB10") || strings.Contains(name, "DGX SPARK")
}

func verbsMissing(n *facts.Node, v *verdict) {
	ports, ok := rdmaPorts(n, v)
	if !ok || len(ports) == 0 {
		return
	}
	if _, loaded := n.Library.Get(); !loaded {
		v.fail(on(n), "install libibverbs1 and ibverbs-providers, in the container too", "%s", n.Library.Because())
	}
}

func uverbsDenied(n *facts.Node, v *verdict) {
	if _, ok := rdmaPorts(n, v); !ok {
		return
	}
	for _, a := range n.Adapters {
		at := on(n, portsOf(n, a.Device)...)
		switch {
		case a.Open.Failed():
			v.fail(at, "start a container with --device=/dev/infiniband; elsewhere give the user the right to open /dev/infiniband/uverbs*", "%s: %s", a.Device, a.Open.Error)
		case !a.Open.Done:
			v.unknown(at, a.Open.Why)
		}
	}
}

// portDown knows a port that should be up by its twin, or by an address that somebody gave it.
func portDown(v *verdict) {
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if ports, ok := rdmaPorts(n, v); ok {
			v.rdmaDown(n, ports)
			v.wiredDown(n)
		}
	}
}

// rdmaDown looks at RDMA ports.
func (v *verdict) rdmaDown(n *facts.Node, ports []topology.Port) {
	anyUp := slices.ContainsFunc(ports, func(p topology.Port) bool { return p.Active })
	for i, p := range ports {
		at, state := on(n, facts.PortName(&p)), p.State
		if what, remedy := p.Absent(); what != "" {
			v.fail(at, remedy+"; without a container, move it back (ip link set "+p.Outside+" netns 1, in its namespace)", "%s", what)
			continue
		}
		if p.Active && (p.Carrier || p.Netdev == "") {
			continue
		}
		if p.State == "" {
			v.unknown(at, p.String()+" does not say its state")
			continue
		}
		if p.Active {
			state = "without a carrier"
		}
		twinUp := false
		for k, t := range ports {
			twinUp = twinUp || k != i && t.Active && (t.Carrier || t.Netdev == "") && t.Cage() == p.Cage()
		}
		what := fmt.Sprintf("%s%s is %s", p.String(), cage(&p), state)
		switch link, other := linkOf(n, p.Netdev), v.otherEnd(n, &p); {
		case link != nil && !link.Up:
			v.fail(at, "run ip link set "+p.Netdev+" up, and find out what switched it off", "%s: the interface is switched off", what)
		case other != "":
			v.fail(at, "switch on the interface at the other end, "+other, "%s", what)
		case v.outsideEnd(n, &p) != "":
			v.fail(at, "move the interface at the other end back: "+v.outsideEnd(n, &p)+" is in another network namespace", "%s", what)
		case twinUp:
			v.fail(at, "reseat the cable at both ends; the other half of the cage is up", "%s", what)
		case configured(p.Addrs) || !anyUp:
			v.fail(at, "reseat the cable at both ends, and check that the node at the other end is on", "%s", what)
		default:
			v.info(at, "", "%s, and seems unused: it has no address, and no half of its cage is up", what)
		}
	}
}

// wiredDown looks at interfaces without an RDMA device that have an address. Where no other node has one in the same subnet, it
// may be of use to nobody.
func (v *verdict) wiredDown(n *facts.Node) {
	for _, p := range wired(n) {
		link := linkOf(n, p.Netdev)
		if p.Active || !configured(p.Addrs) {
			continue
		}
		at, severity := on(n, p.Netdev), Info
		for _, h := range v.pairs(func(*topology.Port) bool { return true }) {
			if e := (facts.End{Node: n.Name, Port: p.Netdev}); h.a == e || h.b == e {
				severity = Fail
				if v.hasRDMA(n.Name) { // it may be no cable of the mesh
					severity = Warn
				}
			}
		}
		switch other := v.otherEnd(n, &p); {
		case !link.Up:
			v.add(severity, at, "run ip link set "+p.Netdev+" up, and find out what switched it off", "%s is switched off", p.Netdev)
		case other != "":
			v.add(severity, at, "switch on the interface at the other end, "+other, "%s has no carrier", p.Netdev)
		default:
			v.add(severity, at, "reseat the cable at both ends, and check that the node at the other end is on", "%s has no carrier", p.Netdev)
		}
	}
}

// otherEnd is the port at the other end of a port's cable by their addresses, where that is switched off; "" where it is not, or
// is not known.
func (v *verdict) otherEnd(n *facts.Node, p *topology.Port) string {
	for _, h := range v.pairs(func(*topology.Port) bool { return true }) {
		for _, e := range [][2]facts.End{{h.a, h.b}, {h.b, h.a}} {
			if e[0] != (facts.End{Node: n.Name, Port: facts.PortName(p)}) {
				continue
			}
			if l := linkOf(v.node(e[1].Node), e[1].Port); l != nil && !l.Up {
				return e[1].Port + " on " + e[1].Node
			}
		}
	}
	return ""
}

// outsideEnd is the port at the other end of a port's cable whose interface is in another network namespace; "" where there is none. The
// cable is known by its other half.
func (v *verdict) outsideEnd(n *facts.Node, p *topology.Port) string {
	m, _ := v.Map.Get()
	for _, h := range halves(&m) {
		for _, e := range [][2]facts.End{{h.a, h.b}, {h.b, h.a}} {
			if e[0] != (facts.End{Node: n.Name, Port: facts.PortName(p)}) {
				continue
			}
			other := v.node(e[1].Node)
			if other == nil {
				continue
			}
			found, _ := other.Topology.Get()
			for i := range found.Ports {
				name := facts.PortName(&found.Ports[i])
				if what, _ := found.Ports[i].Absent(); what != "" && (e[1].Port == "" || e[1].Port == name) {
					return name + " on " + other.Name
				}
			}
		}
	}
	return ""
}

// cage is how people find a port's connector.
func cage(p *topology.Port) string {
	if p.PhysPort == "" {
		return ""
	}
	return " in cage " + p.PhysPort
}

// linkOf is an interface of a node, nil where it is not known.
func linkOf(n *facts.Node, netdev string) *topology.Link {
	found, _ := n.Topology.Get()
	for i := range found.Links {
		if found.Links[i].Name == netdev {
			return &found.Links[i]
		}
	}
	return nil
}

func pcieFatal(n *facts.Node, v *verdict) {
	if _, ok := rdmaPorts(n, v); !ok {
		return
	}
	for _, a := range n.Adapters {
		if count, ok := a.Fatal.Get(); !ok {
			v.unknown(on(n, portsOf(n, a.Device)...), a.Fatal.Because())
		} else if count > 0 {
			v.fail(on(n, portsOf(n, a.Device)...), "stop the jobs, and switch the node off and on; if the errors return, ask the maker of the node", "%s: %d fatal errors of its PCIe link since boot", a.Device, count)
		}
	}
}

func pcieNarrow(n *facts.Node, v *verdict) {
	if _, ok := rdmaPorts(n, v); !ok {
		return
	}
	for _, a := range n.Adapters {
		p, ok := a.PCIe.Get()
		switch {
		case !ok:
			v.unknown(on(n, portsOf(n, a.Device)...), a.PCIe.Because())
		case p.Width < p.MaxWidth || p.GTs < p.MaxGTs:
			v.warn(on(n, portsOf(n, a.Device)...), "switch the node off and on; then look for firmware: fwupdmgr get-updates",
				"%s: the PCIe link of %s runs at %g GT/s x%d; both of its ends can do %g GT/s x%d", a.Device, p.Function, p.GTs, p.Width, p.MaxGTs, p.MaxWidth)
		}
	}
}

// speedLow holds the links of all nodes beside the fastest of the same make.
func speedLow(v *verdict) {
	fastest := map[string]int{}
	type seen struct {
		n     *facts.Node
		a     *facts.Adapter
		board string
		mbps  int
	}
	var all []seen
	for i := range v.Nodes {
		n := &v.Nodes[i]
		ports, ok := rdmaPorts(n, v)
		if !ok {
			continue
		}
		for j := range n.Adapters {
			a := &n.Adapters[j]
			if !slices.ContainsFunc(ports, func(p topology.Port) bool { return p.Device == a.Device && p.Active }) {
				continue
			}
			mbps, ok := a.Speed.Get()
			if !ok {
				v.unknown(on(n, portsOf(n, a.Device)...), a.Speed.Because())
				continue
			}
			board, _ := a.Board.Get()
			all = append(all, seen{n, a, board, mbps})
			fastest[board] = max(fastest[board], mbps)
		}
	}
	for _, s := range all {
		if most := fastest[s.board]; s.mbps < most {
			v.warn(on(s.n, portsOf(s.n, s.a.Device)...), "check the cable or module: it may be made for a lower speed", "%s: link of %s, others of its kind have %s", s.a.Device, gbps(s.mbps), gbps(most))
		}
	}
}

func mstLoaded(n *facts.Node, v *verdict) {
	modules, ok := n.Modules.Get()
	if !ok {
		v.unknown(on(n), n.Modules.Because())
		return
	}
	for _, m := range []string{"mst_pciconf", "mst_pci", "mstflint_access"} {
		if slices.Contains(modules, m) {
			v.warn(on(n), "unload it (rmmod "+m+"), and do not use mst or flint after a cable was plugged", "the kernel module %s is loaded", m)
		}
	}
}
