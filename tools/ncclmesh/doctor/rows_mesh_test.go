package doctor_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport/topology"
)

// cable is the first of the healthy nodes: of a's p0 and b's p1.
func cable(m *facts.Mesh) *topo.Cable { return &m.Map.Value.Cables[0] }

// flow is the measurement of its first half.
func flow(m *facts.Mesh) *facts.Flow { return &(*m.Flows.Value)[0] }

// overTCP makes the flows TCP's, of these speeds.
func overTCP(m *facts.Mesh, speeds ...float64) {
	all := (*m.Flows.Value)[:len(speeds)]
	for i, s := range speeds {
		all[i].RDMA, all[i].Forth, all[i].Back, all[i].Both = false, s, s, s
	}
	m.Flows = facts.Known(all)
}

func noMap(m *facts.Mesh) { m.Map = facts.Unknown[topo.Map]("no host was named") }

// lost is a node whose agent says nothing, of which the others do not know the cables.
func lost(m *facts.Mesh) {
	m.Lost = []facts.Lost{{Name: "c", Error: "does not answer: no hello within 20s"}}
	m.Map.Value.Nodes = append(m.Map.Value.Nodes, topo.Node{Name: "c", Error: "c: does not answer"})
}

// expect is what the user expects of cages.
func expect(m *facts.Mesh, a, b topo.End) { m.Expected = &topo.Expected{Cables: [][2]topo.End{{a, b}}} }

var cableRows = []row{
	{"cable-loop", "p0 to p1 of the same node", fail, func(a, _ *machine) {
		a.echo = func([]int) ([][2]int, error) {
			return [][2]int{{3, 5}, {5, 3}, {3, 4}}, nil // the last are of one cage
		}
	}, nil},
	{"cable-loop", "interfaces alone", fail, looped, func(m *facts.Mesh) { m.Map.Value.Cables = nil }},
	{"cable-loop", "interfaces alone, at a switch with other nodes", "", looped, nil},
	{"cable-loop", "interfaces alone of a node alone", info, looped, noMap},
	{"cable-loop", "no IPv6", unknown, func(a, _ *machine) { a.echo = func([]int) ([][2]int, error) { return nil, errGone } }, nil},

	{"cabling-differs", "crosswise", fail, nil, func(m *facts.Mesh) {
		m.Expected = &topo.Expected{Cables: [][2]topo.End{{{Node: "a", Cage: "p0"}, {Node: "b", Cage: "p0"}}, {{Node: "a", Cage: "p1"}, {Node: "b", Cage: "p1"}}}}
	}},
	{"cabling-differs", "no cable", fail, nil, func(m *facts.Mesh) {
		expect(m, topo.End{Node: "a", Cage: "p1"}, topo.End{Node: "b", Cage: "p0"})
		m.Map.Value.Cables = nil
	}},
	{"cabling-differs", "the port is down", fail, func(a, _ *machine) { a.down(h0); a.down(h1) }, func(m *facts.Mesh) {
		expect(m, topo.End{Node: "a", Cage: "p0"}, topo.End{Node: "b", Cage: "p1"})
		m.Map.Value.Cables = nil
	}},
	{"cabling-differs", "as expected, by cage and by interface", "", nil, func(m *facts.Mesh) {
		m.Expected = &topo.Expected{Cables: [][2]topo.End{{{Node: "b", Cage: "p1"}, {Node: "a", Cage: "p0"}}, {{Node: "a", Cage: h2.netdev}, {Node: "b", Cage: "p0"}}}}
	}},
	{"cabling-differs", "a node that was not asked", unknown, nil, func(m *facts.Mesh) {
		expect(m, topo.End{Node: "c", Cage: "p0"}, topo.End{Node: "b", Cage: "p0"})
	}},

	{"cabling-same-port", "p0 to p0", info, nil, func(m *facts.Mesh) { cable(m).Ends[1].Cage = "p0" }},
	{"cabling-same-port", "no way was tried", unknown, nil, noMap},

	{"no-common-cable", "through the ones between", info, nil, func(m *facts.Mesh) {
		m.Map.Value.Apart = []topo.Apart{apart("a", "b", "c", "d")}
		passed(m, "c", "d")
	}},
	{"no-common-cable", "an agent that tries no routes", unknown, nil, func(m *facts.Mesh) {
		m.Map.Value.Apart = []topo.Apart{apart("a", "b", "c")}
	}},
	{"no-common-cable", "none at all", fail, nil, func(m *facts.Mesh) {
		m.Map.Value.Apart = []topo.Apart{apart("a", "b")}
	}},
	{"no-common-cable", "none at all, as far as it is known", unknown, nil, func(m *facts.Mesh) {
		lost(m)
		m.Map.Value.Apart = []topo.Apart{apart("a", "b")}
	}},
	{"no-common-cable", "no way was tried", unknown, nil, noMap},
	{"no-common-cable", "a node that was lost", unknown, nil, lost},

	{"no-common-cable", "the one between does not relay", fail, func(_, b *machine) { b.env = append(b.env, "NCCL_MESH_RELAY=0") }, func(m *facts.Mesh) {
		between(m)
		passed(m)
	}},
	{"no-common-cable", "the one between relays, whatever its settings", info, func(_, b *machine) { b.env = append(b.env, "NCCL_MESH_RELAY=0") }, func(m *facts.Mesh) {
		between(m)
		passed(m, "b")
	}},
	{"no-common-cable", "nothing passes, whatever the settings", fail, nil, func(m *facts.Mesh) {
		between(m)
		passed(m)
	}},
	{"no-common-cable", "the plugin does not start on the one between", fail, nil, func(m *facts.Mesh) {
		between(m)
		passed(m)
		m.Map.Value.Nodes[1].NoProcess = "all ports of NCCL_MESH_PORTS=30000-30001 are in use"
	}},
	{"no-common-cable", "many pairs", info, nil, func(m *facts.Mesh) {
		m.Map.Value.Apart = []topo.Apart{apart("a", "c", "e"), apart("b", "d", "e"), apart("a", "d", "e")}
		passed(m, "e")
	}},
	{"no-common-cable", "more pairs than are named", info, nil, func(m *facts.Mesh) {
		for _, n := range "cdefghijk" {
			m.Map.Value.Apart = append(m.Map.Value.Apart, apart("a", string(n), "b"))
		}
		passed(m, "b")
	}},
	{"no-common-cable", "many pairs, for one reason", fail, func(_, b *machine) { b.env = append(b.env, "NCCL_MESH_RELAY=0") }, func(m *facts.Mesh) {
		between(m)
		m.Map.Value.Apart = []topo.Apart{apart("a", "c", "b"), apart("a", "e", "b"), apart("c", "e", "b")}
		passed(m)
	}},
	{"no-common-cable", "measured over another network", fail, nil, func(m *facts.Mesh) {
		between(m)
		passed(m, "b")
		m.Relayed = facts.Known([]facts.Relayed{{Nodes: [2]string{"a", "c"}, Lanes: "TCP enP7s7"}})
	}},
	{"no-common-cable", "measured through a relay", info, nil, func(m *facts.Mesh) {
		between(m)
		passed(m, "b")
		m.Relayed = facts.Known([]facts.Relayed{{Nodes: [2]string{"a", "c"}, By: true, Lanes: "RDMA rocep1s0f0:1 through b"}})
	}},
	{"no-common-cable", "could not be measured", fail, nil, func(m *facts.Mesh) {
		between(m)
		passed(m, "b")
		m.Relayed = facts.Known([]facts.Relayed{{Nodes: [2]string{"a", "c"}, Error: "the other side does not connect"}})
	}},
	{"no-common-cable", "one of two relays has another key", warn, nil, func(m *facts.Mesh) {
		between(m)
		d := m.Nodes[1]
		d.Name, d.Process.Key = "d", "another"
		m.Nodes = append(m.Nodes, d)
		m.Map.Value.Apart = []topo.Apart{apart("a", "c", "b", "d")}
		passed(m, "b")
	}},
	{"no-common-cable", "one of two relays does not answer neighbour discovery", warn, nil, func(m *facts.Mesh) {
		between(m)
		m.Map.Value.Apart = []topo.Apart{apart("a", "c", "b", "d")}
		passed(m, "d")
		for i := range m.Map.Value.Cables {
			m.Map.Value.Cables[i].Unheard[1] = true // b's
		}
	}},
	{"no-common-cable", "one of two cables to the relay is enough for neighbour discovery", unknown, nil, func(m *facts.Mesh) {
		between(m)
		m.Map.Value.Apart = []topo.Apart{apart("a", "c", "b", "d")}
		passed(m, "d")
		cable(m).Unheard[1] = true
	}},
	{"no-common-cable", "neither end answers neighbour discovery", fail, nil, func(m *facts.Mesh) {
		between(m)
		passed(m)
		m.Map.Value.Cables = m.Map.Value.Cables[:1]
		cable(m).Unheard = [2]bool{true, true}
	}},
	{"no-common-cable", "beside a misspelt variable, which explains nothing", info, set("NCCL_MESH_LANES=2"), func(m *facts.Mesh) {
		between(m)
		passed(m, "b")
	}},
	{"no-common-cable", "nothing has passed one of two relays, and nobody knows why", unknown, nil, func(m *facts.Mesh) {
		between(m)
		m.Map.Value.Apart = []topo.Apart{apart("a", "c", "b", "d")}
		passed(m, "b")
	}},
	{"no-common-cable", "two relays in a row have different keys", fail, nil, func(m *facts.Mesh) {
		between(m)
		d := m.Nodes[1]
		d.Name, d.Process.Key = "d", "another"
		m.Nodes[1].Process.Key = "one"
		m.Nodes = append(m.Nodes, d)
		m.Map.Value.Apart = []topo.Apart{apart("a", "c", "b d")}
		passed(m)
	}},
	{"no-common-cable", "a node without any", warn, nil, func(m *facts.Mesh) {
		m.Map.Value.Nodes = append(m.Map.Value.Nodes, topo.Node{Name: "c", ID: "c"})
	}},
	{"no-common-cable", "two nodes without any", warn, func(a, b *machine) { a.noAdapter(); b.noAdapter() }, func(m *facts.Mesh) {
		m.Map.Value.Cables = nil
		for i := range m.Nodes {
			m.Nodes[i].Topology.Value.Plain = nil
		}
	}},

	{"plugin-fails", "all ports are in use", fail, nil, func(m *facts.Mesh) {
		m.Map.Value.Nodes[1].NoProcess = "all ports of NCCL_MESH_PORTS=30000-30001 are in use"
	}},

	{"plugin-fails", "no way was tried", unknown, nil, noMap},

	{"node-silent", "all cables between two nodes", fail, nil, func(m *facts.Mesh) { m.Map.Value.Cables = nil }},
	{"node-silent", "one cable of two", "", nil, func(m *facts.Mesh) { m.Map.Value.Cables = m.Map.Value.Cables[1:] }},
	{"node-silent", "no way was tried", unknown, nil, noMap},

	{"tcp-filtered", "one cable", fail, nil, pass(topo.Heard, topo.Heard)},
	{"tcp-filtered", "nodes that do not reach each other for the bootstrap", fail, nil, func(m *facts.Mesh) {
		pass(topo.Heard, topo.Heard)(m)
		m.Nodes[1].Dials = facts.Known([]facts.Dial{{Node: "a", To: "10.0.0.1:9", Try: facts.Tried(0, syscall.ECONNREFUSED)}})
	}},
	{"tcp-filtered", "one half, which half-unused reports", "", nil, pass(topo.RDMA, topo.Heard)},
	{"tcp-filtered", "no way was tried", unknown, nil, noMap},

	{"cable-dead", "nothing passes", fail, nil, func(m *facts.Mesh) { m.Map.Value.Cables = nil }},
	{"cable-dead", "beside a misspelt variable, which explains nothing", fail, set("NCCL_MESH_LANES=2"), func(m *facts.Mesh) { m.Map.Value.Cables = m.Map.Value.Cables[1:] }},
	{"cable-dead", "beside a value with which the plugin does not start", fail, set("NCCL_MESH_TRANSPORT=ether"), func(m *facts.Mesh) { m.Map.Value.Cables = m.Map.Value.Cables[1:] }},
	{"cable-dead", "of a node whose cables were not tried", unknown, nil, func(m *facts.Mesh) {
		m.Map.Value.Cables, m.Map.Value.Nodes[0].Error = nil, "the plugin does not start"
	}},
	{"cable-dead", "a second network of nodes with RDMA", "", second, nil},
	{"cable-dead", "a second network of nodes whose cables are gone", fail, second, func(m *facts.Mesh) {
		for i := range m.Map.Value.Cables {
			c := &m.Map.Value.Cables[i]
			c.Halves[0].State, c.Halves[1].State = topo.Heard, topo.Heard
		}
	}},
	{"cable-dead", "nothing passes over one half, nor is anything heard", fail, nil, func(m *facts.Mesh) {
		c := cable(m)
		c.Halves[1].State, c.Why = topo.None, "transport retry counter exceeded"
	}},
	{"cable-dead", "somebody answers", "", nil, func(m *facts.Mesh) {
		for i := range m.Map.Value.Cables {
			c := &m.Map.Value.Cables[i]
			c.Halves[0].State, c.Halves[1].State = topo.Heard, topo.Heard
		}
	}},
	{"cable-dead", "one end is down", "", func(a, _ *machine) {
		for _, h := range halves {
			a.down(h)
		}
	}, func(m *facts.Mesh) { m.Map.Value.Cables = nil }},
	{"cable-dead", "no way was tried", unknown, nil, noMap},

	{"rdma-one-end", "TCP passes", warn, func(a, _ *machine) { a.noAdapter() }, func(m *facts.Mesh) { cable(m).Halves[0].State = topo.TCP }},
	{"rdma-one-end", "both have it", "", nil, func(m *facts.Mesh) { cable(m).Halves[0].State = topo.TCP }},
	{"rdma-one-end", "no way was tried", unknown, nil, noMap},

	{"roce-filtered", "TCP passes", warn, nil, func(m *facts.Mesh) {
		c := cable(m)
		c.Halves[0].State, c.Why = topo.TCP, "rocep1s0f0:1 192.168.100.1 on a -> rocep1s0f1:1 192.168.100.2 on b: transport retry counter exceeded"
	}},
	{"roce-filtered", "all cables of the node between", warn, nil, func(m *facts.Mesh) {
		threeNodes(m)
		for i := range m.Map.Value.Cables {
			m.Map.Value.Cables[i].Halves[0].State, m.Map.Value.Cables[i].Halves[1].State = topo.TCP, topo.TCP
		}
	}},
	{"roce-filtered", "beside a misspelt variable, which explains nothing", warn, set("NCCL_MESH_LANES=2"), pass(topo.TCP, topo.TCP)},
	{"roce-filtered", "no RDMA at one end", "", func(a, _ *machine) { a.noAdapter() }, func(m *facts.Mesh) { cable(m).Halves[0].State = topo.TCP }},
	{"roce-filtered", "no way was tried", unknown, nil, noMap},

	{"half-unused", "nothing over one half", warn, nil, func(m *facts.Mesh) {
		c := cable(m)
		c.Halves[1].State, c.Why = topo.None, "no two addresses of the ports are in one subnet"
	}},
	{"half-unused", "because of a firewall", warn, nil, func(m *facts.Mesh) {
		c := cable(m)
		c.Halves[1].State, c.Why = topo.TCP, "transport retry counter exceeded"
	}},
	{"half-unused", "neither half", "", nil, func(m *facts.Mesh) {
		c := cable(m)
		c.Halves[0].State, c.Halves[1].State = topo.Heard, topo.Heard
	}},
	{"half-unused", "no way was tried", unknown, nil, noMap},

	{"cable-slow", "13 Gb/s", fail, nil, func(m *facts.Mesh) { flow(m).Back = 13 }},
	{"cable-slow", "13 Gb/s beside a small MTU, which explains nothing of it", fail, func(a, b *machine) {
		for i, h := range halves {
			a.link(h.netdev).MTU, b.link(halves[i].netdev).MTU = 1500, 1500
		}
	}, func(m *facts.Mesh) { flow(m).Back = 13 }},
	{"cable-slow", "beside a busy processor", unknown, nil, func(m *facts.Mesh) { flow(m).Back, flow(m).Crowded = 13, [2]float64{0.1, 0.84} }},
	{"cable-slow", "full speed beside a busy processor", "", nil, func(m *facts.Mesh) { flow(m).Crowded = [2]float64{0.9, 0.84} }},
	{"cable-slow", "TCP, a tenth of the others", fail, nil, func(m *facts.Mesh) { overTCP(m, 17, 1.7, 16, 12) }},
	{"cable-slow", "TCP, half of the others", "", nil, func(m *facts.Mesh) { overTCP(m, 17, 8, 16, 12) }},
	{"cable-slow", "TCP, over the only cable", fail, nil, func(m *facts.Mesh) { overTCP(m, 0.5) }},
	{"cable-slow", "TCP, over slow links", "", nil, func(m *facts.Mesh) {
		overTCP(m, 0.94, 0.93)
		for i := range *m.Flows.Value {
			(*m.Flows.Value)[i].Allowed = 0.95
		}
	}},
	{"cable-slow", "all cables of one node of three", fail, nil, func(m *facts.Mesh) {
		for i := range *m.Flows.Value {
			f := &(*m.Flows.Value)[i]
			f.Forth = 13
			if i > 1 {
				f.From.Node = "c"
			}
		}
		fast := *flow(m)
		fast.From.Node, fast.To.Node, fast.Forth = "a", "c", 112
		m.Flows = facts.Known(append(*m.Flows.Value, fast))
	}},
	{"cable-slow", "all cables of three nodes, none of which stands out", fail, nil, func(m *facts.Mesh) {
		for i := range *m.Flows.Value {
			f := &(*m.Flows.Value)[i]
			f.Forth = 13
			if i > 1 {
				f.From.Node = "c"
			}
		}
		last := *flow(m)
		last.From, last.To = facts.End{Node: "a", Port: halves[2].netdev}, facts.End{Node: "c", Port: h0.netdev}
		m.Flows = facts.Known(append(*m.Flows.Value, last))
	}},
	{"cable-slow", "half", warn, nil, func(m *facts.Mesh) { flow(m).Forth = 60 }},
	{"cable-slow", "not measured", unknown, nil, noFlows},
	{"cable-slow", "not this one", unknown, nil, func(m *facts.Mesh) { flow(m).Forth = 0 }},
	{"cable-slow", "failed", unknown, nil, func(m *facts.Mesh) { flow(m).Error = "closed by the peer" }},

	{"cable-slow-both-ways", "119 Gb/s", fail, nil, func(m *facts.Mesh) { flow(m).Both = 118.7 }},
	{"cable-slow-both-ways", "as slow one way, which cable-slow reports", "", nil, func(m *facts.Mesh) { flow(m).Forth, flow(m).Back, flow(m).Both = 13, 13, 25 }},
	{"cable-slow-both-ways", "slow one way, and slower both ways", fail, nil, func(m *facts.Mesh) { flow(m).Forth, flow(m).Back, flow(m).Both = 60, 60, 40 }},
	{"cable-slow-both-ways", "beside a busy processor", unknown, nil, func(m *facts.Mesh) { flow(m).Both, flow(m).Crowded = 118.7, [2]float64{0.7, 0.2} }},
	{"cable-slow-both-ways", "TCP", "", nil, func(m *facts.Mesh) { overTCP(m, 17, 8) }},
	{"cable-slow-both-ways", "not measured", unknown, nil, noFlows},
	{"cable-slow-both-ways", "failed", unknown, nil, func(m *facts.Mesh) { flow(m).Error = "closed by the peer" }},
	{"cable-slow-both-ways", "one way only", unknown, nil, func(m *facts.Mesh) { flow(m).Both = 0 }},

	{"half-idle", "next to nothing over one half", warn, func(a, _ *machine) { a.rise[h0.ib()+"/ports/1/counters/port_xmit_data"] = "1005" }, nil},
	{"half-idle", "nothing over either", "", func(a, _ *machine) {
		a.rise = map[string]string{}
		for _, h := range halves[2:] {
			a.rise[h.ib()+"/ports/1/counters/port_xmit_data"] = "2000000"
		}
	}, nil},
	{"half-idle", "nothing moved", unknown, func(a, _ *machine) { a.rise = map[string]string{} }, nil},
	{"half-idle", "no counters", unknown, noCounters, nil},

	{"counters-rising", "packets out of order", warn, func(a, _ *machine) { a.rise[h0.ib()+"/ports/1/hw_counters/out_of_sequence"] = "19" }, nil},
	{"counters-rising", "damaged packets at an interface alone", warn, func(a, _ *machine) {
		a.noAdapter()
		for _, dir := range []string{h0.net(), "sys/class/net/enP7s7"} {
			for counter, rise := range map[string]string{"rx_bytes": "9000000", "rx_crc_errors": "17"} {
				a.set(dir+"/statistics/"+counter, "5")
				a.rise[dir+"/statistics/"+counter] = rise
			}
		}
	}, nil},
	{"counters-rising", "nothing moved", unknown, func(a, _ *machine) { a.rise = map[string]string{} }, nil},
	{"counters-rising", "no counters", unknown, noCounters, nil},
}

// second is a network of both nodes beside their cables and the way to the world.
func second(a, b *machine) {
	for i, m := range []*machine{a, b} {
		addr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 7, 0, byte(1 + i)}), 24)
		m.links = append(m.links, topology.Link{Name: "eno2", Index: 21, Kind: "device", MAC: [6]byte{2, 1, byte(i)}, Up: true, Carrier: true, Addrs: []netip.Prefix{addr}})
	}
}

// threeNodes has the second cable lead from b to c, which is as a is.
func threeNodes(m *facts.Mesh) {
	c := m.Nodes[0]
	c.Name = "c"
	m.Nodes = append(m.Nodes, c)
	m.Map.Value.Nodes = append(m.Map.Value.Nodes, topo.Node{Name: "c", ID: "c"})
	m.Map.Value.Cables[1].Ends[0].Node = "c"
}

// looped has a cable between two interfaces of a, which has no RDMA device.
func looped(a, _ *machine) {
	a.noAdapter()
	a.echo = func([]int) ([][2]int, error) { return [][2]int{{3, 5}, {5, 3}}, nil }
}

// between are nodes without a common cable, with b between a and c.
func between(m *facts.Mesh) {
	c := m.Nodes[0]
	c.Name = "c"
	m.Nodes = append(m.Nodes, c)
	m.Map.Value.Apart = []topo.Apart{apart("a", "c", "b")}
}

// apart are two nodes with ways between them, each the names of nodes.
func apart(a, b string, ways ...string) topo.Apart {
	p := topo.Apart{Nodes: [2]string{a, b}}
	for _, way := range ways {
		p.Through = append(p.Through, strings.Fields(way))
	}
	return p
}

// passed has packets pass the ways through some nodes, between all pairs.
func passed(m *facts.Mesh, relays ...string) {
	for i := range m.Map.Value.Apart {
		a := &m.Map.Value.Apart[i]
		a.Tried = true
		for _, relay := range relays {
			a.Routes = append(a.Routes, topo.Route{Through: []string{relay}})
		}
		if len(relays) == 0 {
			a.Error = "no neighbour answered on " + h0.netdev
		}
	}
}

func noCounters(a, _ *machine) {
	for _, h := range halves {
		a.drop(h.ib() + "/ports/1/counters")
	}
	a.rise = map[string]string{}
}

func noFlows(m *facts.Mesh) { m.Flows = facts.Unknown[[]facts.Flow]("not measured") }

var jobRows = []row{
	{"env-invalid", "a value", fail, func(a, _ *machine) { a.env = append(a.env, "NCCL_MESH_TRANSPORT=ether") }, nil},
	{"env-invalid", "ports of another node", fail, func(a, _ *machine) { a.env = append(a.env, "NCCL_IB_HCA=mlx5_0") }, nil},
	{"env-invalid", "every port excluded", fail, func(a, _ *machine) { a.env = append(a.env, "NCCL_IB_HCA=^roce") }, nil},
	{"env-invalid", "ports of another node, where RDMA is not used", "", func(a, _ *machine) { a.env = append(a.env, "NCCL_IB_HCA=mlx5_0", "NCCL_MESH_TRANSPORT=tcp") }, nil},
	{"env-invalid", "a value in a file of NCCL's", fail, func(a, _ *machine) { a.set("etc/nccl.conf", "NCCL_MESH_TRANSPORT=ether\n") }, nil},
	{"env-invalid", "a value in a file of NCCL's, which the environment overrides", "", func(a, _ *machine) {
		a.set("etc/nccl.conf", "NCCL_MESH_TRANSPORT=ether\n")
		a.env = append(a.env, "NCCL_MESH_TRANSPORT=auto")
	}, nil},
	{"env-invalid", "a name", warn, func(a, _ *machine) { a.env = append(a.env, "NCCL_MESH_LANES=2") }, nil},
	{"env-invalid", "a job that cannot be read", unknown, otherUsersJob, nil},

	{"env-recipe", "of a ring", info, func(a, _ *machine) { a.env = append(a.env, "NCCL_ALGO=Ring", "NCCL_MAX_NCHANNELS=8") }, nil},
	{"env-recipe", "a job that cannot be read", unknown, otherUsersJob, nil},

	{"nccl-conf", "left in an image", warn, func(a, _ *machine) { a.set("etc/nccl.conf", "# tuned\nNCCL_IB_USE_INLINE=1\n") }, nil},
	{"nccl-conf", "of the user", info, func(a, _ *machine) { a.set("home/u/.nccl.conf", "NCCL_DEBUG=INFO\n") }, nil},
	{"nccl-conf", "named", warn, func(a, _ *machine) {
		a.env = append(a.env, "NCCL_CONF_FILE=/etc/mine.conf")
		a.set("etc/mine.conf", "NCCL_NET = IB\n")
	}, nil},
	{"nccl-conf", "of the user, who has named another", "", func(a, _ *machine) {
		a.env = append(a.env, "NCCL_CONF_FILE=/etc/mine.conf")
		a.set("home/u/.nccl.conf", "NCCL_NET=IB\n")
	}, nil},
	{"nccl-conf", "cannot be read", unknown, func(a, _ *machine) { a.set("etc/nccl.conf", "!") }, nil},

	{"nccl-preload", "a path that is not there", warn, func(a, _ *machine) { a.env = append(a.env, "LD_PRELOAD=/opt/nccl/libnccl.so.2") }, nil},
	{"nccl-preload", "two libraries", fail, func(a, _ *machine) {
		a.job()
		a.files["proc/4711/maps"] += "7f08-7f09 r-xp 00000000 08:02 19   /venv/nvidia/nccl/lib/libnccl.so.2\n"
	}, nil},
	{"nccl-preload", "a job that cannot be read", unknown, otherUsersJob, nil},

	{"nccl-version", "two of them", warn, func(a, _ *machine) { a.nccl("2.31.2") }, nil},
	{"nccl-version", "loses errors", warn, func(a, b *machine) { a.nccl("2.27.3"); b.nccl("2.27.3") }, nil},
	{"nccl-version", "too old, beside a path that is not there", fail, func(a, _ *machine) {
		a.nccl("2.11.4")
		a.env = append(a.env, "LD_PRELOAD=/opt/nccl/libnccl.so.2")
	}, nil},
	{"nccl-version", "too old", fail, func(a, b *machine) { a.nccl("2.11.4"); b.nccl("2.11.4") }, nil},
	{"nccl-version", "forgets the plugin", warn, func(a, b *machine) { a.nccl("2.29.7"); b.nccl("2.29.7") }, nil},
	{"nccl-version", "told not to forget", "", func(a, b *machine) {
		for _, m := range []*machine{a, b} {
			m.nccl("2.29.7")
			m.env = append(m.env, "NCCL_NET_PLUGIN_REF_COUNT=1")
		}
	}, nil},
	{"nccl-version", "hangs on arm64", warn, func(a, b *machine) { a.nccl("2.28.0"); b.nccl("2.28.0") }, func(m *facts.Mesh) {
		m.Nodes[0].Arch, m.Nodes[1].Arch = "arm64", "amd64"
	}},
	{"nccl-version", "no library", unknown, func(a, _ *machine) { a.drop("usr/lib/libnccl") }, nil},
	{"nccl-version", "no version in it", unknown, func(a, _ *machine) { a.set("usr/lib/libnccl.so.2", "\x7fELF") }, nil},

	{"plugin-disabled", "none", fail, func(a, _ *machine) { a.env = []string{"NCCL_NET_PLUGIN=none"} }, nil},
	{"plugin-disabled", "another network, in a job", fail, func(a, _ *machine) { a.job("NCCL_NET=IB") }, nil},
	{"plugin-disabled", "another network, in a file of NCCL's", fail, func(a, _ *machine) { a.set("home/u/.nccl.conf", "NCCL_NET=Socket\n") }, nil},
	{"plugin-disabled", "a job that cannot be read", unknown, otherUsersJob, nil},

	{"plugin-other", "of a job", fail, func(a, _ *machine) {
		a.job()
		a.set("opt/hpcx/libnccl-net.so", "\x7fELF", "proc/4711/maps", "1-2 r-xp 0 0:0 1 /usr/lib/libnccl.so.2\n1-2 r-xp 0 0:0 1 /opt/hpcx/libnccl-net.so\n")
	}, nil},
	{"plugin-other", "none in a job", fail, func(a, _ *machine) { a.job(); a.set("proc/4711/maps", "1-2 r-xp 0 0:0 1 /usr/lib/libnccl.so.2\n") }, nil},
	{"plugin-other", "ours in a job", "", func(a, _ *machine) { a.job() }, nil},
	{"plugin-other", "none would be found", info, func(a, _ *machine) { a.env = nil }, nil},
	{"plugin-other", "none would be found right after the installation", "", func(a, _ *machine) { a.env = nil; a.install() }, nil},
	{"plugin-other", "none by that name", fail, func(a, _ *machine) { a.env = []string{"NCCL_NET_PLUGIN=mesh"} }, nil},
	{"plugin-other", "none by that name, and no other network is allowed", fail, func(a, _ *machine) {
		a.env = []string{"NCCL_NET_PLUGIN=aws-ofi", "NCCL_NET=mesh"}
		a.install()
	}, nil},
	{"plugin-other", "no other network is allowed, and nothing is loaded", fail, func(a, _ *machine) {
		a.env = []string{"NCCL_NET=Mesh"}
		a.install()
	}, nil},
	{"plugin-other", "another, and no other network is allowed", fail, func(a, _ *machine) {
		a.env = []string{"NCCL_NET_PLUGIN=aws-ofi", "NCCL_NET=mesh"}
		a.set("usr/lib/libnccl-net-aws-ofi.so", "\x7fELF", "usr/lib/libnccl-net.so", "\x7fELF")
	}, nil},
	{"plugin-other", "another beside ours in a list", "", func(a, _ *machine) {
		a.env = []string{"NCCL_NET_PLUGIN=aws-ofi,mesh", "NCCL_NET=mesh"}
		a.set("usr/lib/libnccl-net-aws-ofi.so", "\x7fELF")
		a.install()
	}, nil},
	{"plugin-other", "another before ours in a list", warn, func(a, _ *machine) {
		a.env = []string{"NCCL_NET_PLUGIN=aws-ofi,mesh"}
		a.set("usr/lib/libnccl-net-aws-ofi.so", "\x7fELF")
		a.install()
	}, nil},
	{"plugin-other", "installed, and named as the installation says", "", func(a, _ *machine) {
		a.env = []string{"NCCL_NET_PLUGIN=mesh", "NCCL_NET=mesh"}
		a.install()
	}, nil},
	{"plugin-other", "a path that is not there", fail, func(a, _ *machine) { a.env = []string{"NCCL_NET_PLUGIN=/opt/mesh.so"} }, nil},
	{"plugin-other", "another would be found", warn, func(a, _ *machine) {
		a.env = []string{"LD_LIBRARY_PATH=/opt/hpcx"}
		a.set("opt/hpcx/libnccl-net.so", "\x7fELF")
	}, nil},
	{"plugin-other", "a job without NCCL", unknown, func(a, _ *machine) { a.job(); a.set("proc/4711/maps", "") }, nil},
	{"plugin-other", "a job that cannot be read", unknown, otherUsersJob, nil},

	{"plugin-unloadable", "a C library that is too old", fail, func(a, _ *machine) {
		a.load = errors.New("/lib/libc.so.6: version `GLIBC_2.38' not found (required by /opt/libnccl-net-mesh.so)")
	}, nil},
	{"plugin-unloadable", "a library that it needs", fail, func(a, _ *machine) { a.load = errors.New("libcudart.so.13: cannot open shared object file") }, nil},
	{"plugin-unloadable", "installed, and not named", fail, func(a, _ *machine) { a.env, a.load = nil, errGone; a.install() }, nil},
	{"plugin-unloadable", "none", "", func(a, _ *machine) { a.env, a.load = nil, errGone }, nil},
	{"plugin-unloadable", "a job", "", func(a, _ *machine) { a.load = errGone; a.job() }, nil},
	{"plugin-unloadable", "a job that cannot be read", unknown, otherUsersJob, nil},

	{"settings-differ", "the tuner", fail, func(a, _ *machine) { a.env = append(a.env, "NCCL_MESH_TOPOLOGY=ring") }, nil},
	{"settings-differ", "exported in the shell that runs the command", warn, func(a, _ *machine) { a.env = append(a.env, "NCCL_ALGO=tree") }, func(m *facts.Mesh) { m.Nodes[0].Shell = true }},
	{"settings-differ", "exported in the shell that runs the command, beside a default", warn, func(a, _ *machine) { a.env = append(a.env, "NCCL_MESH_TOPOLOGY=ring") }, func(m *facts.Mesh) { m.Nodes[0].Shell = true }},
	{"settings-differ", "not as the shell that runs the command has it", fail, func(a, b *machine) {
		a.env, b.env = append(a.env, "NCCL_ALGO=tree"), append(b.env, "NCCL_ALGO=ring")
	}, func(m *facts.Mesh) { m.Nodes[0].Shell = true }},
	{"settings-differ", "an algorithm, in one node's file", fail, func(a, _ *machine) { a.set("etc/nccl.conf", "NCCL_ALGO=Ring\n") }, nil},
	{"settings-differ", "the same in a file and in the environment", "", func(a, b *machine) {
		a.set("etc/nccl.conf", "NCCL_ALGO=ring\n")
		b.env = append(b.env, "NCCL_ALGO=Ring")
	}, nil},
	{"settings-differ", "keys", warn, func(a, b *machine) {
		a.env, b.env = append(a.env, "NCCL_MESH_KEY=correct horse battery"), append(b.env, "NCCL_MESH_KEY=battery staple correct")
	}, nil},
	{"settings-differ", "a key on one node", warn, func(a, _ *machine) { a.env = append(a.env, "NCCL_MESH_KEY=correct horse battery") }, nil},
	{"settings-differ", "the same key", "", func(a, b *machine) {
		a.env, b.env = append(a.env, "NCCL_MESH_KEY=correct horse battery"), append(b.env, "NCCL_MESH_KEY=correct horse battery")
	}, nil},
	{"settings-differ", "relaying", info, func(a, _ *machine) { a.env = append(a.env, "NCCL_MESH_RELAY=0") }, nil},
	{"settings-differ", "a job that cannot be read", unknown, otherUsersJob, nil},

	{"debug-file", "a directory that is not there", warn, func(a, _ *machine) { a.env = append(a.env, "NCCL_DEBUG_FILE=/logs/nccl.%h.%p") }, nil},
	{"debug-file", "one that is", "", func(a, _ *machine) { a.env = append(a.env, "NCCL_DEBUG_FILE=/opt/nccl.%h.%p") }, nil},
	{"debug-file", "a job that cannot be read", unknown, otherUsersJob, nil},
}

// install puts the plugin where the loader looks, as the packages do.
func (m *machine) install() { m.set("usr/lib/libnccl-net-mesh.so", m.files["opt/libnccl-net-mesh.so"]) }

// nccl is the version of NCCL's library on the machine.
func (m *machine) nccl(version string) {
	m.set("usr/lib/libnccl.so.2", "\x7fELF NCCL version "+version+"+cuda12.4\x00")
}

// dialling are nodes of which all reach all, but for some: "from to".
func dialling(names string, not ...string) (nodes []facts.Node) {
	for _, from := range names {
		var dials []facts.Dial
		for _, to := range names {
			try := facts.Try{Done: true}
			if slices.Contains(not, string(from)+" "+string(to)) {
				try = facts.Tried(0, syscall.ETIMEDOUT)
			}
			if from != to {
				dials = append(dials, facts.Dial{Node: string(to), To: "10.0.0.9:1", Try: try})
			}
		}
		nodes = append(nodes, facts.Node{Name: string(from), Dials: facts.Known(dials)})
	}
	return nodes
}

var bootstrapRows = []row{
	{"bootstrap-iface", "of another node", fail, func(a, _ *machine) { a.env = append(a.env, "NCCL_SOCKET_IFNAME=eno1") }, nil},
	{"bootstrap-iface", "by its beginning", "", func(a, _ *machine) { a.env = append(a.env, "NCCL_SOCKET_IFNAME=enP7") }, nil},
	{"bootstrap-iface", "of another node, for torch.distributed", warn, func(a, _ *machine) { a.env = append(a.env, "GLOO_SOCKET_IFNAME=enP7s7,wlan0", "TP_SOCKET_IFNAME=enP7") }, nil},
	{"bootstrap-iface", "of the node, for torch.distributed", "", func(a, _ *machine) { a.env = append(a.env, "GLOO_SOCKET_IFNAME=enP7s7") }, nil},
	{"bootstrap-iface", "netlink does not answer", unknown, func(a, _ *machine) {
		a.env = append(a.env, "NCCL_SOCKET_IFNAME=enP7s7")
		a.linksErr = errGone
	}, nil},

	{"bootstrap-wifi", "a radio", warn, func(a, _ *machine) { a.set("sys/class/net/enP7s7/phy80211", "!") }, nil},
	{"bootstrap-wifi", "a radio that is not used", "", func(a, _ *machine) {
		l := *a.link("enP7s7")
		l.Name, l.Index, l.Default, l.Addrs = "wlan0", 30, false, []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24")}
		a.links = append(a.links, l)
		a.set("sys/class/net/wlan0/phy80211", "!")
	}, nil},
	{"bootstrap-wifi", "netlink does not answer", unknown, noTopology, nil},

	{"host-ip", "the way to the world is a radio", info, func(a, _ *machine) {
		a.set("sys/class/net/enP7s7/phy80211", "!")
		a.env = append(a.env, "NCCL_SOCKET_IFNAME=enp1s0f0np0")
	}, nil},
	{"host-ip", "the way to the world is a radio, for a job of vLLM", warn, func(a, _ *machine) {
		a.job()
		a.set("sys/class/net/enP7s7/phy80211", "!", "proc/4711/cmdline", "python3\x00-m\x00vllm.entrypoints.openai.api_server\x00")
	}, nil},
	{"host-ip", "the way to the world is a radio, with a variable of SGLang", warn, func(a, _ *machine) {
		a.set("sys/class/net/enP7s7/phy80211", "!")
		a.env = append(a.env, "SGLANG_LOG_MS=1")
	}, nil},
	{"host-ip", "named, of a radio", warn, func(a, _ *machine) {
		a.set("sys/class/net/enP7s7/phy80211", "!")
		a.env = append(a.env, "VLLM_HOST_IP=10.0.0.1")
	}, nil},
	{"host-ip", "of another node", fail, func(a, _ *machine) { a.env = append(a.env, "SGLANG_HOST_IP=10.0.0.2") }, nil},
	{"host-ip", "named, of a wire, and the way to the world is a radio", "", func(a, _ *machine) {
		a.set("sys/class/net/enP7s7/phy80211", "!")
		a.env = append(a.env, "VLLM_HOST_IP=192.168.100.1")
	}, nil},
	{"host-ip", "no way to the world", "", func(a, _ *machine) { a.outward = netip.Addr{} }, nil},
	{"host-ip", "the kernel does not answer", unknown, func(a, _ *machine) { a.err = errGone }, nil},

	{"name-loopback", "as Debian's installer leaves it", info, func(a, _ *machine) { a.set("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 a.lan a # by the installer\n") }, nil},
	{"name-loopback", "rank 0 listens there", warn, func(a, _ *machine) {
		a.set("etc/hosts", "127.0.1.1\ta\n")
		a.env = append(a.env, "MASTER_ADDR=a")
	}, nil},
	{"name-loopback", "Gloo is told", "", func(a, _ *machine) {
		a.set("etc/hosts", "127.0.1.1 a\n")
		a.env = append(a.env, "GLOO_SOCKET_IFNAME=enP7s7")
	}, nil},
	{"name-loopback", "beside an address", "", func(a, _ *machine) { a.set("etc/hosts", "127.0.1.1 a\n10.0.0.1 a\n") }, nil},
	{"name-loopback", "no file of hosts", "", func(a, _ *machine) { a.drop("etc/hosts") }, nil},
	{"name-loopback", "a file that cannot be read", unknown, func(a, _ *machine) { a.set("etc/hosts", "!") }, nil},

	{"bootstrap-reach", "the first from the second", fail, nil, func(m *facts.Mesh) {
		m.Nodes[1].Dials = facts.Known([]facts.Dial{{Node: "a", To: "10.0.0.1:9", Try: facts.Tried(0, syscall.ECONNREFUSED)}})
	}},
	{"bootstrap-reach", "the second from the first", fail, nil, func(m *facts.Mesh) {
		m.Nodes[0].Dials = facts.Known([]facts.Dial{{Node: "b", To: "10.0.0.2:9", Try: facts.Tried(0, syscall.EHOSTUNREACH)}})
	}},
	{"bootstrap-reach", "an interface that one node selects", fail, set("NCCL_SOCKET_IFNAME=enp1s0f0np0"), func(m *facts.Mesh) {
		m.Nodes[1].Dials = facts.Known([]facts.Dial{{Node: "a", To: "192.168.100.1:9", Try: facts.Tried(0, syscall.ENETUNREACH)}})
	}},
	{"bootstrap-reach", "one of four from all others", fail, nil, func(m *facts.Mesh) { m.Nodes = dialling("abcd", "b d", "c d", "a d") }},
	{"bootstrap-reach", "one of four, and it reaches none", fail, nil, func(m *facts.Mesh) { m.Nodes = dialling("abcd", "a b", "c b", "d b", "b a", "b c", "b d") }},
	{"bootstrap-reach", "one of four reaches none", fail, nil, func(m *facts.Mesh) { m.Nodes = dialling("abcd", "b a", "b c", "b d") }},
	{"bootstrap-reach", "one of four by two of them", fail, nil, func(m *facts.Mesh) { m.Nodes = dialling("abcd", "b d", "c d") }},
	{"bootstrap-reach", "one listened nowhere", unknown, nil, func(m *facts.Mesh) {
		m.Nodes[1].Dials = facts.Known([]facts.Dial{{Node: "a", Try: facts.Try{Why: "a listened nowhere, for the ranks to meet at"}}})
	}},
	{"bootstrap-reach", "nobody listened", unknown, nil, func(m *facts.Mesh) { m.Nodes[1].Dials = facts.Unknown[[]facts.Dial]("node a did not listen") }},
}

var nodeRows = []row{
	{"ssh-failed", "no key", fail, nil, func(m *facts.Mesh) {
		m.Lost = []facts.Lost{{Name: "c", Error: "c: cannot be reached: me@c: Permission denied (publickey). (status 255 of \"ssh -o BatchMode=yes c\")", Next: "copy your key there: ssh-copy-id c"}}
	}},
	{"ssh-failed", "a rank", fail, nil, func(m *facts.Mesh) {
		m.Lost = []facts.Lost{{Name: "rank-2", Error: "cannot be reached: it did not connect to node-a (MASTER_ADDR)"}}
	}},
	{"ssh-failed", "something else", fail, nil, func(m *facts.Mesh) {
		m.Lost = []facts.Lost{{Name: "c", Error: "c: does not answer: no hello within 20s"}}
	}},

	{"machine-id-cloned", "from a factory", warn, func(_, b *machine) { b.set("etc/machine-id", "00000000000000000000000000000000") }, nil},
	{"machine-id-cloned", "none", unknown, func(a, _ *machine) { a.drop("etc/machine-id") }, nil},

	{"versions-differ", "kernel and firmware", warn, func(_, b *machine) {
		b.set("proc/sys/kernel/osrelease", "6.11.0-1016-nvidia", h0.ib()+"/fw_ver", "28.44.1036")
	}, nil},
	{"versions-differ", "another adapter's firmware", "", func(_, b *machine) { b.set(h0.ib()+"/fw_ver", "20.1.1", h0.ib()+"/board_id", "MT_0000000222") }, nil},
	{"versions-differ", "no firmware to see", unknown, func(a, _ *machine) { a.drop(h0.ib() + "/fw_ver") }, nil},
}

var rows = slices.Concat(adapterRows, memoryRows, addressRows, leftOutRows, cableRows, jobRows, bootstrapRows, nodeRows)
