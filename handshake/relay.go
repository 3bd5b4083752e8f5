package handshake

// Limits of what crosses the wire about ways through other nodes.
const (
	MaxHops     = 15 // relays of a route
	MaxMapNodes = 16 // nodes of a map
	MaxMapLinks = 16 // cables of a node that a map names
	MaxLinkName = 15 // bytes of the name of a cable's end, as of an interface

	maxMapNode = 16 + 16 + 2 + MaxName + 1 + 1 + MaxMapLinks*(1+2+MaxLinkName+4+1+16+2+MaxLinkName)
)

// The largest map fits a frame.
const _ = uint(MaxBody - (16 + 1 + MaxMapNodes*maxMapNode))

// AskMap asks a neighbour what it knows of the mesh behind it. A node that Asked names answers somebody else who asks the
// same: it is not to be asked again.
type AskMap struct {
	Query [16]byte // random, the same wherever the question is passed on
	Asked []NodeID
}

func (*AskMap) Type() Type { return TypeAskMap }

func (m *AskMap) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.bytes(m.Query[:])
	w.count("nodes that were asked", len(m.Asked), MaxMapNodes)
	for i := range m.Asked {
		w.bytes(m.Asked[i][:])
	}
	return w.done("AskMap")
}

func (m *AskMap) decode(r *reader) {
	*m = AskMap{Query: r.id()}
	for range r.atMost("number of nodes that were asked", MaxMapNodes) {
		n := NodeID(r.id())
		if r.err != nil {
			return
		}
		m.Asked = append(m.Asked, n)
	}
}

// Map answers AskMap: the node that was asked, first, and those that it has asked.
type Map struct {
	Query [16]byte
	Nodes []MapNode
}

// MapNode is one node of a map: the process there that relays, and the cables it has seen somebody at the other end of.
type MapNode struct {
	Process   ProcessID
	Node      NodeID
	Hostname  string
	Dedicated bool // the process is there for nothing but relaying, and outlives jobs
	Links     []MapLink
}

// MapLink is a cable, from one end.
type MapLink struct {
	Port     uint8  // Port.Index of the process that tells of it
	Name     string // of the port's network interface
	Mbps     uint32
	RDMA     bool   // the port is an RDMA device's
	Peer     NodeID // at the other end
	PeerName string // of the interface there
}

func (*Map) Type() Type { return TypeMap }

func (m *Map) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.bytes(m.Query[:])
	w.count("nodes of a map", len(m.Nodes), MaxMapNodes)
	for i := range m.Nodes {
		n := &m.Nodes[i]
		w.bytes(n.Process[:])
		w.bytes(n.Node[:])
		w.text(n.Hostname, MaxName)
		w.flag(n.Dedicated)
		w.count("cables of a node", len(n.Links), MaxMapLinks)
		for _, l := range n.Links {
			w.u8(l.Port)
			w.text(l.Name, MaxLinkName)
			w.u32(l.Mbps)
			w.flag(l.RDMA)
			w.bytes(l.Peer[:])
			w.text(l.PeerName, MaxLinkName)
		}
	}
	return w.done("Map")
}

func (m *Map) decode(r *reader) {
	*m = Map{Query: r.id()}
	for range r.atMost("number of nodes of a map", MaxMapNodes) {
		n := MapNode{Process: r.id(), Node: r.id(), Hostname: r.text("host name", MaxName), Dedicated: r.flag("dedicated")}
		for range r.atMost("number of cables of a node", MaxMapLinks) {
			l := MapLink{Port: r.u8(), Name: r.text("name of a cable's end", MaxLinkName), Mbps: r.u32(), RDMA: r.flag("RDMA"), Peer: r.id(), PeerName: r.text("name of a cable's end", MaxLinkName)}
			if r.err != nil {
				return
			}
			n.Links = append(n.Links, l)
		}
		if r.err != nil {
			return
		}
		m.Nodes = append(m.Nodes, n)
	}
}

// Hop is a relay of a route: a process, and by Port.Index there the port at which the circuit comes in and the one at
// which it leaves.
type Hop struct {
	Process ProcessID
	Node    NodeID
	In, Out uint8
}

// Ring is memory that a relay lends to the process beside it, of which it writes to, or reads from, that much at most.
type Ring struct {
	Base uint64
	Key  uint32
	Size uint32 // 0: there is none
}

// Carry asks a neighbour to relay a circuit: the first of Route, which asks the next. It is answered by Carried or Drop.
type Carry struct {
	Circuit uint32 // the asker's number for it, among those that it has asked for in the session
	Kind    uint8  // LaneTCP or LaneVerbs: what each hop is made of
	Room    uint32 // bytes of the largest ring that the hops before have; 0 of a socket
	Half    Lane   // the asker's half of the hop between the two
	Back    Ring   // where what comes back is written to, if the asker is a relay itself
	Route   []Hop
	Final   Final
}

// Final is the half of a lane that the last relay of a route reaches.
type Final struct {
	Process ProcessID
	Node    NodeID
	Port    uint8  // Port.Index of the process
	Token   uint64 // which tells the process what lane it is
}

func (*Carry) Type() Type { return TypeCarry }

func (m *Carry) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Circuit)
	if m.Kind != LaneVerbs && m.Kind != LaneTCP {
		w.fail("circuit kind %d is unknown", m.Kind)
	}
	w.u8(m.Kind)
	w.u32(m.Room)
	w.lane(&m.Half)
	w.ring(m.Back)
	w.count("relays", len(m.Route), MaxHops)
	if len(m.Route) == 0 {
		w.fail("no relay is named")
	}
	for i := range m.Route {
		h := &m.Route[i]
		if twice(m.Route[:i], h.Node) {
			w.fail("the route goes through node %v twice", h.Node)
		}
		w.bytes(h.Process[:])
		w.bytes(h.Node[:])
		w.u8(h.In)
		w.u8(h.Out)
	}
	if twice(m.Route, m.Final.Node) {
		w.fail("the route ends at node %v, which it goes through", m.Final.Node)
	}
	w.bytes(m.Final.Process[:])
	w.bytes(m.Final.Node[:])
	w.u8(m.Final.Port)
	w.u64(m.Final.Token)
	return w.done("Carry")
}

func (m *Carry) decode(r *reader) {
	*m = Carry{Circuit: r.u32(), Kind: r.u8(), Room: r.u32(), Half: r.lane(), Back: r.ring()}
	if m.Kind != LaneVerbs && m.Kind != LaneTCP {
		r.fail("circuit kind %d is unknown", m.Kind)
	}
	n := r.atMost("number of relays", MaxHops)
	if n == 0 {
		r.fail("no relay is named")
	}
	for range n {
		h := Hop{Process: r.id(), Node: r.id(), In: r.u8(), Out: r.u8()}
		if r.err == nil && twice(m.Route, h.Node) {
			r.fail("the route goes through node %v twice", h.Node)
		}
		if r.err != nil {
			return
		}
		m.Route = append(m.Route, h)
	}
	m.Final = Final{Process: r.id(), Node: r.id(), Port: r.u8(), Token: r.u64()}
	if r.err == nil && twice(m.Route, m.Final.Node) {
		r.fail("the route ends at node %v, which it goes through", m.Final.Node)
	}
}

// twice reports whether a route goes through a node.
func twice(route []Hop, n NodeID) bool {
	for i := range route {
		if route[i].Node == n {
			return true
		}
	}
	return false
}

// Arrive tells the process at a circuit's end of the last hop to it. It is answered by Carried, which says of a socket where
// to dial, or Drop.
type Arrive struct {
	Circuit uint32 // as in Carry
	Token   uint64 // Final.Token
	Half    Lane   // the last relay's; Token is how many READs it answers at a time
	Read    Ring   // where it reads what comes, if that is large
	Write   Ring   // where it writes what goes back
}

func (*Arrive) Type() Type { return TypeArrive }

func (m *Arrive) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Circuit)
	w.u64(m.Token)
	w.lane(&m.Half)
	w.ring(m.Read)
	w.ring(m.Write)
	return w.done("Arrive")
}

func (m *Arrive) decode(r *reader) {
	*m = Arrive{Circuit: r.u32(), Token: r.u64(), Half: r.lane(), Read: r.ring(), Write: r.ring()}
}

// Carried answers Carry and Arrive: the circuit stands from there on.
type Carried struct {
	Circuit uint32
	Room    uint32 // bytes of the smallest ring from there on; 0 of a socket
	Half    Lane   // of the hop between the two
	Write   Ring   // where the asker writes, if the sender is a relay
}

func (*Carried) Type() Type { return TypeCarried }

func (m *Carried) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Circuit)
	w.u32(m.Room)
	w.lane(&m.Half)
	w.ring(m.Write)
	return w.done("Carried")
}

func (m *Carried) decode(r *reader) {
	*m = Carried{Circuit: r.u32(), Room: r.u32(), Half: r.lane(), Write: r.ring()}
}

// Drop ends a circuit, or says that there will be none.
type Drop struct {
	Circuit uint32
	Asker   bool // its sender is the one who asked for it, and chose the number
	Reason  string
}

func (*Drop) Type() Type { return TypeDrop }

func (m *Drop) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Circuit)
	w.flag(m.Asker)
	w.text(m.Reason, MaxText)
	return w.done("Drop")
}

func (m *Drop) decode(r *reader) {
	*m = Drop{Circuit: r.u32(), Asker: r.flag("asker"), Reason: r.text("reason", MaxText)}
}

// Silent tells the asker of a circuit that a relay further on gives no sign of life. It may be said again as long as that is so.
type Silent struct {
	Circuit uint32
	Reason  string
}

func (*Silent) Type() Type { return TypeSilent }

func (m *Silent) AppendTo(b []byte) ([]byte, error) {
	w := writer{b: b}
	w.u32(m.Circuit)
	w.text(m.Reason, MaxText)
	return w.done("Silent")
}

func (m *Silent) decode(r *reader) {
	*m = Silent{Circuit: r.u32(), Reason: r.text("reason", MaxText)}
}

// Ask asks the peer's process for nothing but a sign of life, which its acknowledgement is.
type Ask struct{}

func (*Ask) Type() Type { return TypeAsk }

func (*Ask) AppendTo(b []byte) ([]byte, error) { return b, nil }

func (*Ask) decode(*reader) {}

func (w *writer) ring(g Ring) {
	w.u64(g.Base)
	w.u32(g.Key)
	w.u32(g.Size)
}

func (r *reader) ring() Ring { return Ring{Base: r.u64(), Key: r.u32(), Size: r.u32()} }
