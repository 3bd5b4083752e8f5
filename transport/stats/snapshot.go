package stats

import (
	"fmt"
	"time"
)

// Process says whose page it is.
type Process struct {
	PID      int // in its own name space
	Started  time.Time
	Protocol int // version of what plugins speak with each other
	Kind     Kind
	ID       [16]byte // of the mesh
	Command  string
	Build    string
	Node     string
}

// Kind is what a process is there for.
type Kind uint8

const (
	Job        Kind = 1 // a rank of a job, with the plugin in it
	Relaying   Kind = 2 // to carry for others, and nothing else
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
	Number            int // as ways name it
	Device            string
	Num               int
	Netdev            string
	Cage              string // ports with the same share a cable
	Connector         string // what the driver calls that, as p0
	Up, RDMA          bool
	State             string
	LinkMbps, PCIMbps int // 0 when not known
}

// Carrier is what carries lanes of a way.
type Carrier uint8

const (
	RDMA          Carrier = 1
	TCP           Carrier = 2
	Relayed       Carrier = 3 // through other nodes
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

// Way is what lanes lead over.
type Path struct {
	Peer                   string // node
	Port                   int    // here
	PeerPort               int
	PeerDevice, PeerNetdev string
	Kind                   Carrier
	Route                  string // names of the nodes between, where this side asks for it
	Tier                   int    // how good the way is, as far as senders know: 0 is the best
}

// Connection names a half of one.
type Connection struct {
	ID      uint32
	Sending bool
	Peer    string   // node
	Process [16]byte // of the peer
}

// Volume is what was carried.
type Volume struct{ Bytes, Parts, Resent uint64 }

func (v Volume) plus(o Volume) Volume {
	return Volume{v.Bytes + o.Bytes, v.Parts + o.Parts, v.Resent + o.Resent}
}

// A Snapshot is what a page said at one moment. Its counters are some microseconds apart.
type Snapshot struct {
	At      time.Time // when it was read
	Process Process
	Vtable  int // version of NCCL's interface, 0 while it is not known
	Relay   RelayCounts
	Ports   []Port
	Paths   []PathState
	Conns   []ConnState
	Lanes   []LaneState
	Notices []Notice // oldest first

	MoreConns, MoreLanes uint64 // that there are, and the page has no room for
	MorePaths            bool
}

// RelayCounts is what the process carries for others.
type RelayCounts struct {
	Circuits, Carried, Failed uint64 // that stand, that have stood, that could not be made
	Bytes                     uint64 // both directions together
}

// WayState is a way, and what lanes over it have carried, those that are no more among them.
type PathState struct {
	Path
	Up             int           // lanes in service
	Lost, Failures uint64        // times that the last lane failed, and that one did
	Outage         time.Duration // without a lane, until one came back
	Down           time.Time     // since when there is none, for a fault; zero where there is one
	Sent, Received Volume
}

// ConnState is a half of a connection.
type ConnState struct {
	Connection
	Bytes, Messages, Waits, Resent, Failures uint64
	Outage                                   time.Duration
}

// LaneState is a lane of a connection.
type LaneState struct {
	Volume
	Conn, Path int // indices into the snapshot's lists; Conn is -1 of a connection that the page has no room for
	Index      int
	Up         bool
	Since      time.Time
}

// Word is something that people should know.
type Notice struct {
	At   time.Time
	Text string

	number uint64
}

// Down reports how long a way has had no lane, though its peer is still talked to.
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

// Same reports whether two ways lead over the same.
func (w Path) Same(o Path) bool {
	w.Tier, o.Tier = 0, 0
	return w == o
}

// Port is the port of that number, or nil.
func (s *Snapshot) Port(number int) *Port {
	for i := range s.Ports {
		if s.Ports[i].Number == number {
			return &s.Ports[i]
		}
	}
	return nil
}
