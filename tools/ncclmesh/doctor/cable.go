package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport/topology"
)

// cableLoop looks at ports of one node that hear each other. Interfaces without RDMA may be at a switch, where other nodes are
// heard, too.
func cableLoop(n *facts.Node, v *verdict) {
	loops, ok := n.Loops.Get()
	if !ok {
		v.unknown(on(n), n.Loops.Because())
		return
	}
	m, tried := v.Map.Get()
	alive := v.alive(&m)
	found, _ := n.Topology.Get()
	for _, l := range loops {
		severity := Fail
		for _, name := range l {
			is := func(p topology.Port) bool { return p.Netdev == name }
			switch {
			case slices.ContainsFunc(found.Ports, is):
			case !slices.ContainsFunc(wired(n), is), alive[facts.End{Node: n.Name, Port: name}]:
				severity = "" // of another network
			case severity == Fail && !tried:
				severity = Info
			}
		}
		if severity != "" {
			v.add(severity, on(n, l[0], l[1]), "move one end of the cable to another node", "what %s sends comes in at %s: a cable joins two cages of the node, or both are at one switch", l[0], l[1])
		}
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

// pluginFails looks at nodes on which the plugin does not start, or lacks something, for another reason than its ports.
func pluginFails(v *verdict) {
	m, _ := proved(v)
	for _, n := range m.Nodes {
		if n.NoProcess != "" {
			v.fail(both(n.Name), "do what the message says: jobs fail on "+n.Name+" in the same way, and it relays nothing", "the plugin fails there: %s", n.NoProcess)
		}
	}
}

// nodeSilent looks at nodes all of whose cables fail together.
func nodeSilent(v *verdict) {
	m, ok := proved(v)
	if !ok {
		return
	}
	for _, c := range v.culprits(v.dead(&m), passes(&m, topo.RDMA, topo.TCP)) {
		at := both(c.nodes...)
		where := strings.Join(c.nodes, " or ")
		remedy := fmt.Sprintf("look for what drops packets on %s: nft list ruleset, iptables -S; the cables are the last to suspect", where)
		if len(c.nodes) == 1 {
			v.fail(at, remedy, "no packet passes over any of the %d cables of %s, to %s, although the ports at both ends are up: what they share is %s", c.cables, where, strings.Join(c.peers, " and "), where)
		} else {
			v.fail(at, remedy, "no packet passes over any of the %d cables of %s, although the ports at both ends are up", c.cables, strings.Join(c.nodes, " and "))
		}
	}
}

// cableDead looks at ports that are up, and alone in a subnet with a port of another node, when
// nothing passes between the two, nor anything else over either.
func cableDead(v *verdict) {
	m, ok := proved(v)
	if !ok {
		return
	}
	for _, h := range v.dead(&m) {
		v.fail(h.spot(),
			fmt.Sprintf("look for a firewall on both nodes (nft list ruleset); then switch one port off (ip link set %s down on %s) and see whether the other goes down: if not, they are not the ends of one cable; else reseat or replace the cable", h.a.Port, h.a.Node),
			"both are up and in %s, and no packet passes between them, over RDMA or TCP", h.subnet)
	}
}

// tcpFiltered looks at halves whose ends hear each other, while no path works over them.
func tcpFiltered(v *verdict) {
	m, ok := proved(v)
	if !ok {
		return
	}
	var failed []half
	joined := joined(&m)
	for _, h := range halves(&m) {
		carries := slices.ContainsFunc(halvesOf(h.cable), func(t half) bool { return t.state == topo.RDMA || t.state == topo.TCP })
		if h.state == topo.Heard && !carries { // half-unused reports one of two
			failed = append(failed, h)
		}
	}
	culprits := v.culprits(failed, passes(&m, topo.RDMA, topo.TCP))
	for _, h := range failed {
		remedy := fmt.Sprintf("let TCP pass over %s on %s and %s on %s (nft list ruleset)", h.a.Port, h.a.Node, h.b.Port, h.b.Node)
		if nodes := shared(culprits, h); nodes != "" {
			remedy = fmt.Sprintf("let TCP pass on %s, whose cables all fail so (nft list ruleset)", nodes)
		}
		why := ""
		if v.isRDMA(h.a) && v.isRDMA(h.b) && h.cable.Why != "" { // else it is why RDMA was not tried
			why = ": " + h.cable.Why
		}
		severity := Fail
		if joined(h.a.Node, h.b.Node) && !(v.isRDMA(h.a) && v.isRDMA(h.b)) { // it may be no cable of the mesh
			severity = Warn
		}
		v.add(severity, h.spot(), remedy, "%s and %s hear each other, and neither TCP nor RDMA passes%s", h.a, h.b, why)
		if v.unreached(h.a.Node, h.b.Node) {
			v.found[len(v.found)-1].Cause = "bootstrap-reach"
		}
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
	var failed []half
	for _, h := range halves(&m) {
		if h.state != topo.TCP || !v.isRDMA(h.a) || !v.isRDMA(h.b) {
			continue
		}
		if _, by, _ := v.notOverRDMA(h); by[0] != none && by[1] != none {
			continue // the settings of both nodes ask for it
		}
		failed = append(failed, h)
	}
	culprits := v.culprits(failed, passes(&m, topo.RDMA))
	for _, h := range failed {
		where := "both nodes"
		if nodes := shared(culprits, h); nodes != "" {
			where = nodes + ", whose cables all fail so"
		}
		v.warn(h.spot(), fmt.Sprintf("let UDP port 4791 pass on %s (nft list ruleset); without a firewall, go by the reason", where), "TCP passes between %s and %s, and RDMA does not: %s", h.a, h.b, cmp.Or(h.cable.Why, "the reason is not known"))
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
