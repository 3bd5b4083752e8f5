package doctor

import (
	"fmt"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport/topology"
)

// choice is what the judged environment of a node selects among its ports.
type choice struct {
	transport    string
	hca          topology.HCAFilter
	setUp, lanes topology.IfFilter
	origin       map[string]string // see facts.Process
}

// choice returns what a node selects. A value that the plugin does not accept selects everything here: env-invalid reports it.
func (v *verdict) choice(node string) choice {
	if n := v.node(node); n != nil {
		return choiceOf(n)
	}
	return choice{}
}

func choiceOf(n *facts.Node) choice {
	env, _ := n.Process.Env.Get()
	c := choice{origin: n.Process.Origin, transport: strings.ToLower(strings.TrimSpace(env["NCCL_MESH_TRANSPORT"]))}
	c.hca, _ = topology.ParseHCA(env["NCCL_IB_HCA"])
	c.setUp, _ = topology.ParseInterfaces(env["NCCL_SOCKET_IFNAME"])
	c.lanes, _ = topology.ParseInterfaces(env["NCCL_MESH_IFNAME"])
	return c
}

// setting is a variable with its value, and the file that it is set in; "" for the environment.
type setting struct{ name, value, file string }

func (s setting) String() string { return s.name + "=" + s.value + in(s.file) }

// in names the file that a variable is set in, where it is one.
func in(file string) string {
	if file == "" {
		return ""
	}
	return " (in " + file + ")"
}

// unset says how to get rid of a setting of a node.
func (s setting) unset(node string) string {
	if s.file != "" {
		return fmt.Sprintf("remove %s from %s on %s", s.name, s.file, node)
	}
	return fmt.Sprintf("unset %s on %s", s.name, node)
}

func (c choice) setting(name, value string) setting { return setting{name, value, c.origin[name]} }

// blamed is a variable of a node that a finding is about.
type blamed struct{ node, name string }

// none is that nothing leaves a port out.
var none setting

// overRDMA returns the setting by which a node does not use an RDMA port.
func (c choice) overRDMA(p *topology.Port) setting {
	switch {
	case c.transport == "tcp":
		return c.setting("NCCL_MESH_TRANSPORT", c.transport)
	case !c.hca.Match(p.Device, p.Num):
		return c.setting("NCCL_IB_HCA", c.hca.String())
	}
	return none
}

// overTCP returns the setting by which a node sends no TCP over the interface of a port. Names in NCCL_SOCKET_IFNAME are
// preferences for the bootstrap alone, while an interface that it excludes is excluded from everything.
func (c choice) overTCP(p *topology.Port) setting {
	switch {
	case c.transport == "rdma":
		return c.setting("NCCL_MESH_TRANSPORT", c.transport)
	case !c.setUp.Named() && !c.setUp.Match(p.Netdev):
		return c.setting("NCCL_SOCKET_IFNAME", c.setUp.String())
	case !c.lanes.Match(p.Netdev):
		return c.setting("NCCL_MESH_IFNAME", c.lanes.String())
	}
	return none
}

// remedy says what to do about a setting of a node that leaves ports out. It is the same for all of them, so that people read it once.
func (s setting) remedy(node string) string {
	switch {
	case s.name == "NCCL_MESH_TRANSPORT" && s.value == "tcp":
		return s.unset(node) + ", or set it to tcp on all nodes"
	case s.name == "NCCL_MESH_TRANSPORT":
		return s.unset(node)
	}
	return s.unset(node) + ", or let it select all ports of the node that have a cable"
}

// portLeftOut looks at halves of cables that a setting of one node leaves out and the other node uses.
func portLeftOut(v *verdict) {
	m, ok := proved(v)
	if !ok {
		return
	}
	for i := range v.Nodes {
		told(&v.Nodes[i], v)
	}
	for _, h := range append(halves(&m), v.silent(&m)...) {
		v.leftOverRDMA(h)
		v.leftOverTCP(h)
	}
}

// leftOverRDMA looks at a half of a cable between two RDMA ports that carries no RDMA.
func (v *verdict) leftOverRDMA(h half) {
	at, by, ok := v.notOverRDMA(h)
	if !ok {
		return
	}
	carries := slices.ContainsFunc(halvesOf(h.cable), func(t half) bool { return t.state == topo.RDMA })
	for i, s := range by {
		twoEnds := by[1-i] != none
		if s == none || twoEnds && !carries {
			continue // with both ends left out, nobody expects RDMA on the cable
		}
		p, other := v.port(at[i]), "which is used at "+at[1-i].String()
		if twoEnds {
			other = "as " + by[1-i].String() + " does at " + at[1-i].String()
		}
		severity, effect := consequence(h)
		v.add(severity, h.spot(), s.remedy(at[i].Node), "%s on %s leaves out %s, %s: %s", s, at[i].Node, p.String(), other, effect)
		v.found[len(v.found)-1].setting = blamed{at[i].Node, s.name}
	}
}

// notOverRDMA returns the ends of a half between two RDMA ports that carries no RDMA, and the settings that leave them out;
// ok is false where the half carries RDMA or no setting is against it.
func (v *verdict) notOverRDMA(h half) (at [2]facts.End, by [2]setting, ok bool) {
	at = [2]facts.End{h.a, h.b}
	if h.state == topo.RDMA || !v.isRDMA(h.a) || !v.isRDMA(h.b) {
		return at, by, false
	}
	for i, e := range at {
		by[i] = v.choice(e.Node).overRDMA(v.port(e))
	}
	return at, by, by[0] != none || by[1] != none
}

// leftOverTCP looks at a half of a cable that could carry only TCP, and carries nothing.
func (v *verdict) leftOverTCP(h half) {
	if h.state == topo.RDMA || h.state == topo.TCP || v.port(h.a) == nil || v.port(h.b) == nil {
		return
	}
	if _, _, left := v.notOverRDMA(h); !left && v.isRDMA(h.a) && v.isRDMA(h.b) {
		return // RDMA would be used, and something else is wrong with it
	}
	at := [2]facts.End{h.a, h.b}
	for i, e := range at {
		s, other := v.choice(e.Node).overTCP(v.port(e)), v.choice(at[1-i].Node).overTCP(v.port(at[1-i]))
		if s == none || other != none {
			continue
		}
		severity, effect := consequence(h)
		v.add(severity, h.spot(), s.remedy(e.Node), "%s on %s leaves out %s, which is used at %s: %s", s, e.Node, e.Port, at[1-i], effect)
	}
}

// consequence says how bad it is that a half does not carry what it could.
func consequence(h half) (Severity, string) {
	rdma := slices.ContainsFunc(halvesOf(h.cable), func(t half) bool { return t.state == topo.RDMA })
	switch {
	case h.state == topo.TCP && rdma:
		return Warn, "RDMA is used over the rest of the cable alone"
	case h.state == topo.TCP:
		return Warn, "TCP is used, which is slower than RDMA"
	case slices.ContainsFunc(halvesOf(h.cable), func(t half) bool { return t.state == topo.RDMA || t.state == topo.TCP }):
		return Warn, "this half of the cable carries nothing"
	}
	return Fail, "nothing passes over the cable"
}

// silent returns pairs of ports that are up and alone in a subnet, of nodes between which no packet passes: a cable over
// which nothing was heard is not on the map.
func (v *verdict) silent(m *topo.Map) (all []half) {
	known := map[facts.End]bool{}
	for _, h := range halves(m) {
		known[h.a], known[h.b] = true, true
	}
	joined := joined(m)
	return slices.DeleteFunc(v.pairs(func(p *topology.Port) bool { return p.Carrier }), func(h half) bool {
		return known[h.a] || known[h.b] || joined(h.a.Node, h.b.Node)
	})
}

// leftOut is what port-left-out finds.
func (v *verdict) leftOut() []Finding {
	other := &verdict{Mesh: v.Mesh, id: v.id}
	if _, ok := v.Map.Get(); ok {
		portLeftOut(other)
	}
	return other.found
}

// apart reports whether a setting is why nothing passes between two nodes.
func (v *verdict) apart(a, b string) bool {
	return slices.ContainsFunc(v.leftOut(), func(f Finding) bool {
		return f.Severity == Fail && len(f.Places) == 2 &&
			(f.Places[0].Node == a && f.Places[1].Node == b || f.Places[0].Node == b && f.Places[1].Node == a)
	})
}
