package stats

import (
	"fmt"
	"time"
)

// Process describes the process that a page belongs to.
type Process struct {
	PID      int // in the process's own PID namespace
	Started  time.Time
	Protocol int // version of the protocol between plugins
	Kind     Kind
	ID       [16]byte // id on the mesh
	Command  string
	Build    string
	Node     string
}

// Kind is the purpose of a process.
type Kind uint8

const (
	Job        Kind = 1 // a rank of a job, with the plugin in it
	Relaying   Kind = 2 // a process that only relays
	knownKinds      = 2
)

func (k Kind) String() string {
	switch k {
	case Job:
		return "job"
	case Relaying:
		return "relay"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Port is a port of the process's node.
type Port struct {
	Number            int // the number by which paths name the port
	Device            string
	Num               int
	Netdev            string
	Cage              string // ports with equal cages share a cable
	Connector         string // the driver's name of the connector, such as p0
	Up, RDMA          bool
	State             string
	LinkMbps, PCIMbps int // 0 when unknown
}

// Carrier is the transport of the lanes of a path.
type Carrier uint8

const (
	RDMA          Carrier = 1
	TCP           Carrier = 2
	Relayed       Carrier = 3 // through relays
	knownCarriers         = 3
)

func (c Carrier) String() string {
	switch c {
	case RDMA:
		return "rdma"
	case TCP:
		return "tcp"
	case Relayed:
		return "relayed"
	}
	return fmt.Sprintf("carrier %d", uint8(c))
}

// Path identifies the path of lanes.
type Path struct {
	Peer                   string // name of the peer's node
	Port                   int    // local port
	PeerPort               int
	PeerDevice, PeerNetdev string
	Kind                   Carrier
	Route                  string // names of the relays, if this side requested the circuit
	Tier                   int    // tier of the path, as far as senders know it; 0 is the best
}

// Connection identifies a half of a connection.
type Connection struct {
	ID      uint32
	Sending bool
	Peer    string   // node
	Process [16]byte // of the peer
}

// Volume is an amount of traffic.
type Volume struct{ Bytes, Parts, Resent uint64 }

func (v Volume) plus(o Volume) Volume {
	return Volume{v.Bytes + o.Bytes, v.Parts + o.Parts, v.Resent + o.Resent}
}

// A Snapshot is the state of a page at one time. Its counters were read within some microseconds.
type Snapshot struct {
	At      time.Time // when it was read
	Process Process
	Vtable  int // version of NCCL's interface, 0 while unknown
	Relay   RelayCounts
	Ports   []Port
	Paths   []PathState
	Conns   []ConnState
	Lanes   []LaneState
	Notices []Notice // oldest first

	MoreConns, MoreLanes uint64 // number of entries for which the page has no room
	MorePaths            bool
}

// RelayCounts counts the traffic that a process relays for other nodes.
type RelayCounts struct {
	Circuits, Carried, Failed uint64 // open circuits, circuits that have been opened, circuits that could not be opened
	Bytes                     uint64 // sum of both directions
}

// PathState is a path with its counters, which include the traffic of its former lanes.
type PathState struct {
	Path
	Up             int           // lanes in service
	Lost, Failures uint64        // number of outages, and of failures of lanes
	Outage         time.Duration // total length of the outages that are over
	Down           time.Time     // start of the present outage; zero if there is none
	Sent, Received Volume
}

// ConnState is a half of a connection with its counters.
type ConnState struct {
	Connection
	Bytes, Messages, Waits, Resent, Failures uint64
	Outage                                   time.Duration
}

// LaneState is a lane with its counters.
type LaneState struct {
	Volume
	Conn, Path int // indices into the snapshot's lists; Conn is -1 if the page has no room for the connection
	Index      int
	Up         bool
	Since      time.Time
}

// Notice is a text for the user.
type Notice struct {
	At   time.Time
	Text string

	number uint64
}

// Down reports whether a path is in an outage although its peer still has connections, and since when.
func (s *Snapshot) Down(w *PathState) (since time.Time, down bool) {
	if w.Up > 0 || w.Down.IsZero() {
		return time.Time{}, false
	}
	for i := range s.Conns {
		if s.Conns[i].Peer == w.Peer {
			return w.Down, true
		}
	}
	return time.Time{}, false
}

// Same reports whether two paths are equal apart from their tiers.
func (w Path) Same(o Path) bool {
	w.Tier, o.Tier = 0, 0
	return w == o
}

// Port returns the port with the given number, or nil.
func (s *Snapshot) Port(number int) *Port {
	for i := range s.Ports {
		if s.Ports[i].Number == number {
			return &s.Ports[i]
		}
	}
	return nil
}
