package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
)

func cableLoop(n *facts.Node, v *verdict) {
	loops, ok := n.Loops.Get()
	if !ok {
		v.unknown(on(n), n.Loops.Because())
		return
	}
	for _, l := range loops {
		v.fail(on(n, l[0], l[1]), "move one end of the cable to another node", "what %s sends comes in at %s: a cable joins two cages of the node, or both are at one switch", l[0], l[1])
	}
}

func cablingDiffers(v *verdict) {
	if v.Expected == nil {
		return
	}
	m, ok := proved(v)
	if !ok {
		return
	}
	d, err := m.Compare(v.Expected)
	if err != nil {
		v.unknown(spot{}, err.Error())
		return
	}
	if d.None() {
		return
	}
	remedy := strings.Join(d.Steps(), "; ")
	for _, c := range d.Missing {
		v.fail(v.between(c), remedy, "expected, and not there")
	}
	for _, c := range d.Unexpected {
		v.fail(v.between(c), remedy, "there, and not expected")
	}
}

// between is a cable as a whole.
func (v *verdict) between(ends [2]topo.End) spot {
	return spot{append(v.portsIn(ends[0]), v.portsIn(ends[1])...), cableName(ends)}
}

// portsIn are the functions behind a cage, as places.
func (v *verdict) portsIn(e topo.End) (at []Place) {
	for i := range v.Nodes {
		found, _ := v.Nodes[i].Topology.Get()
		for _, p := range found.Ports {
			if v.Nodes[i].Name == e.Node && (p.PhysPort == e.Cage || facts.PortName(&p) == e.Cage) {
				at = append(at, Place{e.Node, facts.PortName(&p)})
			}
		}
	}
	if at == nil {
		at = []Place{{e.Node, e.Cage}}
	}
	return at
}

func cablingSamePort(v *verdict) {
	m, _ := proved(v)
	for i := range m.Cables {
		c := &m.Cables[i]
		if c.Ends[0].Cage == c.Ends[1].Cage && v.named(c.Ends[0]) {
			v.info(v.between(c.Ends), "", "both ends are in cages of the same name: this plugin does not mind, NCCL's own transport wants p0 with p1")
		}
	}
}

// named reports whether a cage's name is the driver's.
func (v *verdict) named(e topo.End) bool {
	for _, at := range v.portsIn(e) {
		if p := v.port(facts.End(at)); p != nil && p.PhysPort == e.Cage {
			return true
		}
	}
	return false
}

func noCommonCable(v *verdict) {
	m, _ := proved(v)
	for _, a := range m.Apart {
		if len(a.Through) == 0 {
			if v.apart(a.Nodes[0], a.Nodes[1]) {
				continue // which port-left-out reports
			}
			v.fail(both(a.Nodes[:]...), fmt.Sprintf("put a cable between %s and %s, or between one of them and a node with a cable to the other", a.Nodes[0], a.Nodes[1]), "no cable leads from %s to %s, not even through other nodes", a.Nodes[0], a.Nodes[1])
			continue
		}
		var ways []string
		for _, w := range a.Through {
			ways = append(ways, strings.Join(w, " and "))
		}
		v.info(both(a.Nodes[:]...), "", "they share no cable, and talk through %s", strings.Join(ways, ", or "))
	}
}

// cableDead looks at ports that are up, and alone in a subnet with a port of another node, when
// nothing passes between the two, nor anything else over either.
func cableDead(v *verdict) {
	m, ok := proved(v)
	if !ok {
		return
	}
	alive := map[facts.End]bool{}
	for _, h := range halves(&m) {
		if h.state != topo.None {
			alive[h.a], alive[h.b] = true, true
		}
	}
	for _, n := range m.Networks {
		for _, e := range n.Ends {
			for _, at := range v.portsIn(e) {
				alive[facts.End(at)] = true
			}
		}
	}
	in := map[netip.Prefix][]facts.End{}
	for i := range v.Nodes {
		found, _ := v.Nodes[i].Topology.Get()
		for _, p := range roce(found.Ports) {
			for _, a := range given(p.Addrs) {
				in[a.Masked()] = append(in[a.Masked()], facts.End{Node: v.Nodes[i].Name, Port: facts.PortName(&p)})
			}
		}
	}
	for _, subnet := range slices.SortedFunc(maps.Keys(in), comparePrefix) {
		ends := in[subnet]
		if len(ends) != 2 || ends[0].Node == ends[1].Node || alive[ends[0]] || alive[ends[1]] {
			continue
		}
		a, b := ends[0], ends[1]
		alive[a] = true // which is said once
		v.fail(spot{[]Place{Place(a), Place(b)}, a.String() + " ═ " + b.String()},
			fmt.Sprintf("switch one off (ip link set %s down on %s) and see whether the other goes down: if not, they are not the ends of one cable; else reseat or replace the cable", a.Port, a.Node),
			"both are up and in %s, and no packet passes between them, over RDMA or TCP", subnet)
	}
}

// rdmaOneEnd looks at halves that carry TCP where one of the two ports has no RDMA device.
func rdmaOneEnd(v *verdict) {
	m, _ := proved(v)
	for _, h := range halves(&m) {
		a, b := v.port(h.a), v.port(h.b)
		if h.state != topo.TCP || a == nil || b == nil || (a.Device == "") == (b.Device == "") {
			continue
		}
		with, without := h.a, h.b
		if a.Device == "" {
			with, without = h.b, h.a
		}
		v.warn(h.spot(), fmt.Sprintf("load the RDMA driver of %s (mlx5_ib), or use an adapter with RDMA there", without), "the cable carries TCP only: %s has an RDMA device, and %s has none", with, without)
	}
}

// roceFiltered looks at halves that carry TCP, between RDMA ports that are up.
func roceFiltered(v *verdict) {
	m, _ := proved(v)
	for _, h := range halves(&m) {
		if h.state != topo.TCP || !v.isRDMA(h.a) || !v.isRDMA(h.b) {
			continue
		}
		if _, by, _ := v.notOverRDMA(h); by[0] != none && by[1] != none {
			continue // the settings of both nodes ask for it
		}
		why := h.cable.Why
		if why == "" {
			why = "the reason is not known"
		}
		v.warn(h.spot(), "let UDP port 4791 pass on both nodes (nft list ruleset); without a firewall, go by the reason", "TCP passes between %s and %s, and RDMA does not: %s", h.a, h.b, why)
	}
}

// halfUnused looks at a way over one half of a cable, and none over the other.
func halfUnused(v *verdict) {
	m, _ := proved(v)
	for i := range m.Cables {
		c := &m.Cables[i]
		var used []string
		var at []Place
		var idle []string
		for _, h := range halvesOf(c) {
			if h.state == topo.RDMA {
				used = append(used, h.a.Port)
				continue
			}
			for _, e := range []facts.End{h.a, h.b} {
				if p := v.port(e); p != nil && p.Device != "" {
					at, idle = append(at, Place(e)), append(idle, e.String())
				}
			}
		}
		if len(used) > 0 && len(at) > 0 {
			slices.Sort(idle)
			v.warn(spot{at, cableName(c.Ends)}, "configure the idle half as the other; ncclmesh topo shows both", "RDMA passes over %s, and not over %s in the same cage: %s", strings.Join(used, ", "), strings.Join(idle, ", "), c.Why)
		}
	}
}
