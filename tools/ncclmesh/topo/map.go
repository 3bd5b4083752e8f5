package topo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/transport/fault"
)

// Schema names the form of a Map in JSON.
const Schema = "ncclmesh.topo/1"

// Map is how nodes are cabled. Its lists are in the order of the nodes.
type Map struct {
	Schema   string     `json:"schema"`
	Nodes    []Node     `json:"nodes"`
	Cables   []Cable    `json:"cables"`
	Networks []Network  `json:"networks"` // where more than two cages meet
	Loose    []Loose    `json:"loose"`    // cages with nothing known at the other end
	Apart    []Apart    `json:"apart"`    // nodes that share no cable
	Rings    [][]string `json:"rings"`
}

// Node is one that was asked.
type Node struct {
	Name  string   `json:"name"` // as it was asked for
	ID    string   `json:"id,omitempty"`
	Build string   `json:"build,omitempty"`
	Ports []Port   `json:"ports,omitempty"`
	Notes []string `json:"notes,omitempty"` // what it says of trouble
	Error string   `json:"error,omitempty"` // why it is not known

	NoProcess string `json:"noProcess,omitempty"` // why the plugin does not start there, or cannot go on
}

// End is a cage of a node.
type End struct {
	Node string `json:"node"`
	Cage string `json:"cage"` // its name for people
}

func (e End) String() string { return e.Node + ":" + e.Cage }

// Cable is one between two nodes.
type Cable struct {
	Ends   [2]End `json:"ends"`
	Halves []Half `json:"halves"`        // proved, or heard alone where nothing is
	Mbps   int    `json:"mbps"`          // of the cable: of its slower end; 0 when unknown
	MTU    int    `json:"mtu"`           // of the interfaces, the smaller
	Why    string `json:"why,omitempty"` // why not all of it is RDMA

	// Unheard reports of each end whether it has not answered the neighbour discovery of the other: then no route leads over the cable.
	Unheard [2]bool `json:"unheard"`
}

// Half is what joins one function at each end. Two functions at each end of a cable are its halves.
type Half struct {
	Ports [2]string `json:"ports"`
	MTU   [2]int    `json:"mtu"`
	State State     `json:"state"`
}

// State is how far a half is proved.
type State string

// States.
const (
	RDMA  State = "rdma"  // packets pass over RDMA, in both directions
	TCP   State = "tcp"   // over TCP only
	Heard State = "heard" // somebody answers a query, and nothing more passes
	None  State = "none"  // functions whose twins work, and nothing passes; one of the two may be missing
)

// Network is where more than two cages meet: a switch, and no cable.
type Network struct {
	Ends []End `json:"ends"`
}

// Loose is a cage with nothing known at its other end.
type Loose struct {
	End
	Ports []string `json:"ports"`
	Why   string   `json:"why"`
}

// Apart are two nodes that share no cable.
type Apart struct {
	Nodes   [2]string  `json:"nodes"`
	Through [][]string `json:"through"` // the shortest ways that the cables make; none: nothing leads from one to the other
	Tried   bool       `json:"tried"`   // a connection as a job's has looked for routes
	Routes  []Route    `json:"routes"`  // that its packets have passed over
	Error   string     `json:"error,omitempty"`
}

// Route leads from a node to another through others.
type Route struct {
	Through []string `json:"through"`
	RDMA    bool     `json:"rdma"` // else TCP
}

// Err joins what kept nodes from being known; nil when all are.
func (m *Map) Err() error {
	var errs []error
	for _, n := range m.Nodes {
		if n.Error != "" {
			errs = append(errs, errors.New(n.Error))
		}
	}
	return errors.Join(errs...)
}

// newMap makes a map of what nodes have seen.
func newMap(views []view) *Map {
	m := &Map{Schema: Schema, Nodes: []Node{}, Cables: []Cable{}, Networks: []Network{}, Loose: []Loose{}, Apart: []Apart{}, Rings: [][]string{}}
	c := newChart(views)
	for i := range views {
		v := &views[i]
		n := Node{Name: v.name, ID: v.ID, Build: v.build, Ports: v.node.Ports, Notes: append(v.node.Notes, v.seen.Notes...), NoProcess: cmp.Or(v.node.NoProcess, v.seen.Own)}
		if v.err != nil {
			n.Error = fault.OneLine(v.trouble())
		}
		m.Nodes = append(m.Nodes, n)
	}
	for _, group := range c.groups() {
		switch {
		case len(group) == 1:
			m.Loose = append(m.Loose, c.loose(group[0]))
		case len(group) == 2 && group[0].view != group[1].view:
			m.Cables = append(m.Cables, c.cable(group[0], group[1]))
		default:
			var n Network
			for _, e := range group {
				n.Ends = append(n.Ends, e.end)
			}
			m.Networks = append(m.Networks, n)
		}
	}
	g := m.graph()
	m.Apart, m.Rings = g.apart(), g.rings()
	return m
}

// trouble is the view's error, which names the node as the map does.
func (v *view) trouble() error {
	var at *fleet.HostError
	if errors.As(v.err, &at) && at.Host == fleet.Here {
		return &fleet.HostError{Host: v.name, Err: at.Err}
	}
	return v.err
}

// cage is one of a node, with its functions.
type cage struct {
	view  *view
	end   End
	ports []Port
	group int // of cages that meet
}

// link is what joins two ports, as far as it is known.
type link struct {
	a, b portAt
	state
	answered [2]bool // neighbour discovery: a, when b queried, and b, when a queried
}

// portAt is a port of a node, by their numbers.
type portAt struct {
	node string // id
	port string // name
}

type state struct {
	rdma, tcp, heard bool
	why              string
}

// chart is what all nodes have seen, joined.
type chart struct {
	views []view
	cages []*cage
	at    map[portAt]*cage
	links []*link
}

func newChart(views []view) *chart {
	c := &chart{views: views, at: map[portAt]*cage{}}
	for i := range views {
		c.addCages(&views[i])
	}
	for i := range views {
		v := &views[i]
		for _, s := range v.seen.RDMA {
			c.link(v, s).rdma = true
		}
		for _, s := range v.seen.Heard {
			l := c.link(v, s)
			l.heard = true
			if l.b.node == v.ID {
				l.answered[0] = true
			} else {
				l.answered[1] = true
			}
		}
		for _, s := range v.seen.TCP {
			c.link(v, s).tcp = true
		}
		for _, s := range v.seen.Failed {
			l := c.link(v, s)
			if l.why == "" || len(s.Why) < len(l.why) { // one end repeats the reason of the other, with names before it
				l.why = s.Why
			}
		}
	}
	return c
}

// addCages groups a node's ports. A cage goes by the driver's name for it, unless another of
// the node has the same.
func (c *chart) addCages(v *view) {
	var own []*cage
	labels := map[string]int{}
	for _, p := range v.node.Ports {
		if !p.Cable {
			continue
		}
		i := slices.IndexFunc(own, func(o *cage) bool { return o.ports[0].Cage == p.Cage })
		if i < 0 {
			i = len(own)
			own = append(own, &cage{view: v, group: len(c.cages) + len(own)})
			labels[p.Label]++
		}
		own[i].ports = append(own[i].ports, p)
		c.at[portAt{v.ID, p.Name}] = own[i]
	}
	for _, o := range own {
		o.end = End{v.name, o.ports[0].Name}
		if label := o.ports[0].Label; label != "" && labels[label] == 1 {
			o.end.Cage = label
		}
	}
	c.cages = append(c.cages, own...)
}

// link returns the one that a sight is about, from either end.
func (c *chart) link(v *view, s sight) *link {
	a, b := portAt{v.ID, s.Port}, portAt{s.Peer, s.PeerPort}
	for _, l := range c.links {
		if l.a == a && l.b == b || l.a == b && l.b == a {
			return l
		}
	}
	l := &link{a: a, b: b}
	c.links = append(c.links, l)
	return l
}

// groups are the cages that meet, those that meet nobody alone.
func (c *chart) groups() [][]*cage {
	for _, l := range c.links {
		a, b := c.at[l.a], c.at[l.b]
		if a == nil || b == nil || a.group == b.group || !l.rdma && !l.heard && !l.tcp {
			continue
		}
		from, to := b.group, a.group
		for _, o := range c.cages {
			if o.group == from {
				o.group = to
			}
		}
	}
	c.fold()
	var all [][]*cage
	place := map[int]int{}
	for _, o := range c.cages {
		i, ok := place[o.group]
		if !ok {
			i = len(all)
			place[o.group] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], o)
	}
	return all
}

// fold makes the functions whose interfaces are in another network namespace part of a cage of their node that meets the same cages:
// nobody on the node knows which connector they belong to, and each of them alone would be one.
func (c *chart) fold() {
	c.cages = slices.DeleteFunc(slices.Clone(c.cages), func(o *cage) bool {
		i := slices.IndexFunc(c.cages, func(to *cage) bool { return to.view == o.view && to.group == o.group && !to.outside() })
		if !o.outside() || i < 0 {
			return false
		}
		for _, p := range o.ports {
			c.at[portAt{o.view.ID, p.Name}] = c.cages[i]
		}
		c.cages[i].ports = append(c.cages[i].ports, o.ports...)
		return true
	})
}

// between are the links of two cages, the best first, with a as their a.
func (c *chart) between(a, b *cage) []link {
	var all []link
	for _, l := range c.links {
		switch {
		case c.at[l.a] == a && c.at[l.b] == b:
			all = append(all, *l)
		case c.at[l.a] == b && c.at[l.b] == a:
			all = append(all, link{l.b, l.a, l.state, [2]bool{l.answered[1], l.answered[0]}})
		}
	}
	slices.SortStableFunc(all, func(x, y link) int { return cmp.Compare(y.rank(), x.rank()) })
	return all
}

func (s state) rank() int {
	switch {
	case s.rdma:
		return 3
	case s.tcp:
		return 2
	case s.heard:
		return 1
	}
	return 0
}

func (s state) state() State { return []State{None, Heard, TCP, RDMA}[s.rank()] }

// cable is one, with its halves: of all ways between its functions those that use each once.
func (c *chart) cable(a, b *cage) Cable {
	k := Cable{Ends: [2]End{a.end, b.end}, Mbps: least(a.mbps(), b.mbps()), Halves: []Half{}}
	links := c.between(a, b)
	k.Unheard = [2]bool{true, true}
	used := map[portAt]bool{}
	for _, l := range links {
		for side, answered := range l.answered {
			k.Unheard[side] = k.Unheard[side] && !answered
		}
		if l.rank() == 0 || used[l.a] || used[l.b] {
			continue
		}
		used[l.a], used[l.b] = true, true
		k.Halves = append(k.Halves, Half{[2]string{l.a.port, l.b.port}, [2]int{a.port(l.a.port).MTU, b.port(l.b.port).MTU}, l.state.state()})
	}
	var idle []Half // functions that nothing passes through, paired as they come
	for side, o := range []*cage{a, b} {
		n := 0
		for _, p := range o.ports {
			if used[portAt{o.view.ID, p.Name}] || p.Device == "" {
				continue
			}
			if n == len(idle) {
				idle = append(idle, Half{State: None})
			}
			idle[n].Ports[side], idle[n].MTU[side] = p.Name, p.MTU
			n++
		}
	}
	k.Halves = append(k.Halves, idle...)
	slices.SortStableFunc(k.Halves, func(x, y Half) int { return cmp.Compare(a.index(x.Ports[0]), a.index(y.Ports[0])) })
	for _, h := range k.Halves {
		k.MTU = least(k.MTU, least(h.MTU[0], h.MTU[1]))
	}
	k.Why = c.why(k, a, b, links)
	return k
}

// why says for people why not all of a cable is RDMA.
func (c *chart) why(k Cable, a, b *cage, links []link) string {
	i := slices.IndexFunc(k.Halves, func(h Half) bool { return h.State != RDMA })
	if i < 0 {
		return ""
	}
	h := k.Halves[i]
	for _, o := range []*cage{a, b} {
		if !slices.ContainsFunc(o.ports, func(p Port) bool { return p.Device != "" }) {
			return o.end.Node + " has no RDMA device there"
		}
	}
	for side, o := range []*cage{a, b} {
		if p := o.port(h.Ports[side]); h.Ports[side] != "" && !p.Used {
			if p.Outside {
				return fmt.Sprintf("%s of %s is in another network namespace", p.Name, o.end.Node)
			}
			if p.State != "ACTIVE" {
				return fmt.Sprintf("%s of %s is %s", p.Name, o.end.Node, p.State)
			}
			return fmt.Sprintf("%s of %s cannot be used for RDMA: %s", p.Name, o.end.Node, strings.Join(append(o.view.node.Notes, "ncclmesh doctor says more"), "; "))
		}
	}
	for side, o := range []*cage{a, b} {
		i := slices.IndexFunc(c.cages, func(other *cage) bool { return other.view == o.view && other.outside() })
		if h.Ports[side] == "" && i >= 0 {
			return fmt.Sprintf("%s of %s is in another network namespace", c.cages[i].ports[0].Name, o.end.Node)
		}
	}
	for _, l := range links {
		if (h.Ports[0] == "" || l.a.port == h.Ports[0]) && (h.Ports[1] == "" || l.b.port == h.Ports[1]) && l.why != "" {
			return l.why
		}
	}
	return "no two addresses of the ports are in one subnet"
}

// loose says what is known of a cage that meets nobody.
func (c *chart) loose(o *cage) Loose {
	l := Loose{End: o.end, Why: "nothing is plugged in, or the other end is off"}
	if o.outside() {
		l.Why = "its interface is in another network namespace, and no other node sees it"
	}
	up := false
	for _, p := range o.ports {
		l.Ports = append(l.Ports, p.Name)
		up = up || p.Carrier || p.State == "ACTIVE"
	}
	if !up || o.outside() {
		return l
	}
	l.Why = "the link is up, and none of the hosts is at the other end"
	for _, s := range o.view.seen.Heard {
		if c.at[portAt{o.view.ID, s.Port}] == o {
			l.Why = fmt.Sprintf("a node that is none of the hosts is at the other end, with its interface %s", s.PeerPort)
		}
	}
	return l
}

func (o *cage) index(name string) int {
	i := slices.IndexFunc(o.ports, func(p Port) bool { return p.Name == name })
	if i < 0 {
		return len(o.ports)
	}
	return i
}

func (o *cage) port(name string) Port {
	if i := o.index(name); i < len(o.ports) {
		return o.ports[i]
	}
	return Port{}
}

// outside reports whether the interfaces of all its functions are in another network namespace.
func (o *cage) outside() bool {
	return !slices.ContainsFunc(o.ports, func(p Port) bool { return !p.Outside })
}

// mbps is the speed of the connector: of its fastest function's link.
func (o *cage) mbps() (most int) {
	for _, p := range o.ports {
		most = max(most, p.Mbps)
	}
	return most
}

// least is the smaller of two figures, of which 0 is unknown.
func least(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
