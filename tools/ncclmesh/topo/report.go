package topo

import "time"

// Do is the name of Probe among an agent's handlers.
const Do = "topo"

// How long an agent may take: a listener that nobody dials, nodes behind a firewall and ports
// with nothing at them all have their deadlines, of which the longest is the transport's 10 s.
const silence = 45 * time.Second

// Port is a function of an adapter, or a network interface alone.
type Port struct {
	Name    string `json:"name"`              // of the interface, or device:number where there is none
	Device  string `json:"device,omitempty"`  // RDMA device and port; none of an interface alone
	Cage    string `json:"cage"`              // its connector, on this node
	Label   string `json:"label,omitempty"`   // what the driver calls that, as p0
	State   string `json:"state"`             // ACTIVE, UP, DOWN …
	Carrier bool   `json:"carrier"`           // something is at the other end
	Mbps    int    `json:"mbps,omitempty"`    // of the link; none when unknown
	PCIMbps int    `json:"pciMbps,omitempty"` // of PCIe; none when unknown
	MTU     int    `json:"mtu,omitempty"`     // of the interface
	Used    bool   `json:"used"`              // the plugin can use it now
	Cable   bool   `json:"cable"`             // it may be part of the mesh
	Outside bool   `json:"outside,omitempty"` // its interface is in another network namespace: nobody here knows its cage
}

// node is what an agent says first.
type node struct {
	ID     string   `json:"id"`
	Handle []byte   `json:"handle,omitempty"` // that other agents dial; none: this node has no port to prove
	Ports  []Port   `json:"ports"`
	Notes  []string `json:"notes,omitempty"` // why something cannot be used

	NoProcess string `json:"noProcess,omitempty"` // why the plugin does not start there, or cannot go on
}

// peers are those that an agent is to try: handles by node.
type peers struct {
	Handles [][]byte `json:"handles"`
}

// sights are what it has seen then.
type sights struct {
	Heard  []sight  `json:"heard,omitempty"`  // who answers a query
	RDMA   []sight  `json:"rdma,omitempty"`   // proved
	TCP    []sight  `json:"tcp,omitempty"`    // proved
	Failed []sight  `json:"failed,omitempty"` // with the reason
	Notes  []string `json:"notes,omitempty"`
	Own    string   `json:"own,omitempty"` // what the plugin lacks on the node itself
}

// sight is a way from a port of this node to one of another.
type sight struct {
	Port     string `json:"port"`
	Peer     string `json:"peer"` // the node's id
	PeerPort string `json:"peerPort"`
	Why      string `json:"why,omitempty"`
}

// answer is one line of an agent.
type answer struct {
	Node   *node   `json:"node,omitempty"`
	Sights *sights `json:"sights,omitempty"`

	Opened  *opened   `json:"opened,omitempty"`
	Reached []reached `json:"reached,omitempty"` // in the order of the handles
}
