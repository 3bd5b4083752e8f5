package facts

import (
	"cmp"

	"ncclmesh/tools/ncclmesh/rate"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport/topology"
)

// Mesh is what is known of several nodes, or of one.
type Mesh struct {
	Nodes    []Node          `json:"nodes"`
	Lost     []Lost          `json:"lost"`     // nodes that told nothing
	Map      Fact[topo.Map]  `json:"map"`      // the cables, as packets have proved them
	Expected *topo.Expected  `json:"expected"` // as the user says; nil: no word
	Flows    Fact[[]Flow]    `json:"flows"`    // measured
	Relayed  Fact[[]Relayed] `json:"relayed"`  // measured, between nodes without a common cable
	Plan     Fact[int64]     `json:"plan"`     // bytes that a test would take on each node
}

// Lost is a node that could not be asked.
type Lost struct {
	Name  string `json:"name"`
	Error string `json:"error"`
	Next  string `json:"next,omitempty"` // what to do
}

// End is one end of a cable, or of a half of one: a port by the name of its interface, or of its
// device where it has none.
type End struct {
	Node string `json:"node"`
	Port string `json:"port"`
}

func (e End) String() string { return e.Node + ":" + e.Port }

// Dial is a connection of the bootstrap that was tried.
type Dial struct {
	Node string `json:"node"` // that it should lead to
	To   string `json:"to"`   // address and port
	Try  Try    `json:"try"`
}

// Sample is what happened while a node's counters were watched.
type Sample struct {
	Moved  map[string]uint64 `json:"moved"` // bytes that each port sent and received
	Rising []Counter         `json:"rising"`
}

// Counter is how far a counter of errors rose.
type Counter struct {
	Port string `json:"port"`
	Name string `json:"name"`
	Rise uint64 `json:"rise"`
}

// Flow is what was measured of a half of a cable, in Gb/s of payload.
type Flow struct {
	RDMA    bool    `json:"rdma"` // else TCP
	From    End     `json:"from"`
	To      End     `json:"to"`
	Forth   float64 `json:"forth"` // one way alone
	Back    float64 `json:"back"`
	Both    float64 `json:"both"`    // both ways at once, together
	Allowed float64 `json:"allowed"` // one way, by link and PCIe; 0: not known
	// Crowded is the share of the processors of each end that other programs took meanwhile, where hardly any was idle.
	Crowded [2]float64 `json:"crowded"`
	Error   string     `json:"error,omitempty"`
}

// Busy returns the number of the end, 0 for From and 1 for To, whose processors other programs took, so that the figures say nothing of
// the cable. It returns -1 if there is none.
func (f *Flow) Busy() int { return rate.Busy(f.Crowded) }

// Relayed is what carried a measurement between two nodes without a common cable.
type Relayed struct {
	Nodes [2]string `json:"nodes"`
	By    bool      `json:"by"`    // nodes between them; else another network
	Lanes string    `json:"lanes"` // for people
	Error string    `json:"error,omitempty"`
}

// PortName is how findings and ends of cables call a port.
func PortName(p *topology.Port) string { return cmp.Or(p.Netdev, p.Outside, p.Short()) }
