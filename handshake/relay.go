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

// MapQuery asks a neighbour what it knows of the mesh behind it. A node that Asked names answers somebody else who asks the
// same: it is not to be asked again.
type MapQuery struct {
	Query [16]byte // random, the same wherever the question is passed on
	Asked []NodeID
}

func (*MapQuery) Type() Type { return TypeMapQuery }

func (m *MapQuery) fields(c *codec) {
	c.bytes(m.Query[:])
	list(c, "nodes that were asked", &m.Asked, MaxMapNodes, func(n *NodeID) { c.bytes(n[:]) })
}

// Map answers MapQuery: the node that was asked, first, and those that it has asked.
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

func (m *Map) fields(c *codec) {
	c.bytes(m.Query[:])
	list(c, "nodes of a map", &m.Nodes, MaxMapNodes, c.mapNode)
}

func (c *codec) mapNode(n *MapNode) {
	c.bytes(n.Process[:])
	c.bytes(n.Node[:])
	c.text("host name", &n.Hostname, MaxName)
	c.flag("dedicated", &n.Dedicated)
	list(c, "cables of a node", &n.Links, MaxMapLinks, c.mapLink)
}

func (c *codec) mapLink(l *MapLink) {
	c.u8(&l.Port)
	c.text("name of a cable's end", &l.Name, MaxLinkName)
	c.u32(&l.Mbps)
	c.flag("RDMA", &l.RDMA)
	c.bytes(l.Peer[:])
	c.text("name of a cable's end", &l.PeerName, MaxLinkName)
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

// CircuitOpen asks a neighbour to relay a circuit: the first of Route, which asks the next. It is answered by CircuitOpened or CircuitClose.
type CircuitOpen struct {
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

func (*CircuitOpen) Type() Type { return TypeCircuitOpen }

func (m *CircuitOpen) fields(c *codec) {
	c.u32(&m.Circuit)
	c.u8(&m.Kind)
	if m.Kind != LaneVerbs && m.Kind != LaneTCP {
		c.fail("circuit kind %d is unknown", m.Kind)
	}
	c.u32(&m.Room)
	c.lane(&m.Half)
	c.ring(&m.Back)
	list(c, "relays", &m.Route, MaxHops, c.hop)
	if len(m.Route) == 0 {
		c.fail("no relay is named")
	}
	for i := range m.Route {
		if n := m.Route[i].Node; twice(m.Route[:i], n) {
			c.fail("the route goes through node %v twice", n)
		}
	}
	c.bytes(m.Final.Process[:])
	c.bytes(m.Final.Node[:])
	c.u8(&m.Final.Port)
	c.u64(&m.Final.Token)
	if twice(m.Route, m.Final.Node) {
		c.fail("the route ends at node %v, which it goes through", m.Final.Node)
	}
}

func (c *codec) hop(h *Hop) {
	c.bytes(h.Process[:])
	c.bytes(h.Node[:])
	c.u8(&h.In)
	c.u8(&h.Out)
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

// CircuitDeliver tells the process at a circuit's end of the last hop to it. It is answered by CircuitOpened, which says of a socket where
// to dial, or CircuitClose.
type CircuitDeliver struct {
	Circuit uint32 // as in CircuitOpen
	Token   uint64 // Final.Token
	Half    Lane   // the last relay's; Token is how many READs it answers at a time
	Read    Ring   // where it reads what comes, if that is large
	Write   Ring   // where it writes what goes back
}

func (*CircuitDeliver) Type() Type { return TypeCircuitDeliver }

func (m *CircuitDeliver) fields(c *codec) {
	c.u32(&m.Circuit)
	c.u64(&m.Token)
	c.lane(&m.Half)
	c.ring(&m.Read)
	c.ring(&m.Write)
}

// CircuitOpened answers CircuitOpen and CircuitDeliver: the circuit stands from there on.
type CircuitOpened struct {
	Circuit uint32
	Room    uint32 // bytes of the smallest ring from there on; 0 of a socket
	Half    Lane   // of the hop between the two
	Write   Ring   // where the asker writes, if the sender is a relay
}

func (*CircuitOpened) Type() Type { return TypeCircuitOpened }

func (m *CircuitOpened) fields(c *codec) {
	c.u32(&m.Circuit)
	c.u32(&m.Room)
	c.lane(&m.Half)
	c.ring(&m.Write)
}

// CircuitClose ends a circuit, or says that there will be none.
type CircuitClose struct {
	Circuit uint32
	Asker   bool // its sender is the one who asked for it, and chose the number
	Reason  string
}

func (*CircuitClose) Type() Type { return TypeCircuitClose }

func (m *CircuitClose) fields(c *codec) {
	c.u32(&m.Circuit)
	c.flag("asker", &m.Asker)
	c.text("reason", &m.Reason, MaxText)
}

// CircuitStalled tells the asker of a circuit that a relay further on gives no sign of life. It may be said again as long as that is so.
type CircuitStalled struct {
	Circuit uint32
	Reason  string
}

func (*CircuitStalled) Type() Type { return TypeCircuitStalled }

func (m *CircuitStalled) fields(c *codec) {
	c.u32(&m.Circuit)
	c.text("reason", &m.Reason, MaxText)
}

// Ask asks the peer's process for nothing but a sign of life, which its acknowledgement is.
type Ask struct{}

func (*Ask) Type() Type { return TypeAsk }

func (*Ask) fields(*codec) {}

func (c *codec) ring(g *Ring) {
	c.u64(&g.Base)
	c.u32(&g.Key)
	c.u32(&g.Size)
}
