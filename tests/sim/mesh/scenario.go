package mesh

import (
	"fmt"
	"slices"
	"time"

	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/world"
)

// A Scenario describes one run: machines, cables, a job, what goes wrong, and what is expected. With its seed it decides the
// whole history. String returns its text, and Parse reads one.
type Scenario struct {
	Notes       []string // comments at the top of the text
	Seed        uint64
	Machines    []string // names of two letters or digits
	Cables      []Wire
	Management  bool // a switch of 1 Gb/s joins all machines
	Settings    map[string]string
	Connections []Connection
	Exchanges   []Exchange
	Faults      []Fault
	Expect      Expectation
}

// A Wire describes a cable.
type Wire struct {
	Number   int // tells cables apart, 0 to 250
	From, To string
	RDMA     bool
	Speed    world.Speed
}

// A Connection describes what one rank sends another.
type Connection struct {
	From, To string
	Messages int
	Largest  int    // bytes of the largest message at most
	Pauses   int    // percent of the messages before which the sender computes for a while
	Window   int    // messages that are under way at most
	Group    int    // messages that one irecv receives at most
	Ranges   int    // of memory beside the buffers, that each end has registered at most; it registers them and gives them back at random
	Memory   string // kind of memory that its messages lie in
}

// An Expectation says what a run must show. In every run the rest of the oracle holds too: bytes, memory, waiting, ends.
type Expectation struct {
	Deaths []string      // machines whose processes die: their connections fail at the other end, and no others; none: no call fails
	Calm   bool          // no lane fails, and nobody warns
	Grants bool          // no grant is missed: where no cable is dead, a lane that does not fail loses nothing
	RDMA   bool          // in the end no lane is over TCP
	Within time.Duration // after the last fault, in which the job must end
	Healed time.Duration // after the last fault, in which all paths must have lanes again; 0: it is not looked at
}

// fast is the speed of a cable unless something else is said.
var fast = world.Speed{Rate: 12_500_000_000, Latency: 2 * time.Microsecond, Jitter: time.Microsecond}

const (
	window = 16 // messages of a connection that are under way at most, unless something else is said
	group  = 8  // messages that one irecv receives at most, unless something else is said
	pauses = 50 // percent of messages that come after a pause, unless something else is said
)

// NewScenario returns a scenario with a management network and without machines, whose job must end within three minutes of the
// last fault without a failed call. Shape is the stream from which a generator draws the rest.
func NewScenario(seed uint64) (s *Scenario, shape *draw.Stream) {
	return &Scenario{Seed: seed, Management: true, Settings: map[string]string{}, Expect: Expectation{Within: 3 * time.Minute}}, draw.New(seed).Stream("shape")
}

// Row adds n machines in a row with so many cables of 100 Gb/s between neighbours. Machine k is called n and the k-th letter.
func (s *Scenario) Row(n, each int, rdma bool) {
	for k := range n {
		s.Machines = append(s.Machines, fmt.Sprintf("n%c", 'a'+k))
	}
	for k := range n - 1 {
		s.Wires(k, k+1, each, rdma)
	}
}

// Ring is Row, with cables from the last machine to the first where there are more than two.
func (s *Scenario) Ring(n, each int, rdma bool) {
	s.Row(n, each, rdma)
	if n > 2 {
		s.Wires(n-1, 0, each, rdma)
	}
}

// Wires adds n cables of 100 Gb/s between two machines, which are numbers in Machines.
func (s *Scenario) Wires(from, to, n int, rdma bool) {
	for range n {
		s.Cables = append(s.Cables, Wire{len(s.Cables), s.Machines[from], s.Machines[to], rdma, fast})
	}
}

// Traffic returns a connection between nobody, with messages of up to largest bytes, and the usual rest.
func Traffic(messages, largest int) Connection {
	return Connection{Messages: messages, Largest: largest, Pauses: pauses, Window: window, Group: group}
}

// Connect adds a connection like c between two machines, which are numbers in Machines.
func (s *Scenario) Connect(from, to int, c Connection) {
	c.From, c.To = s.Machines[from], s.Machines[to]
	s.Connections = append(s.Connections, c)
}

// ConnectRing adds a connection like c from each machine to the next one, and to the one before.
func (s *Scenario) ConnectRing(c Connection) {
	n := len(s.Machines)
	for k := range n {
		s.Connect(k, (k+1)%n, c)
		if n > 2 {
			s.Connect(k, (k+n-1)%n, c)
		}
	}
}

// ConnectAll adds a connection like c from each machine to every other one.
func (s *Scenario) ConnectAll(c Connection) {
	for k := range s.Machines {
		for l := range s.Machines {
			if k != l {
				s.Connect(k, l, c)
			}
		}
	}
}

// Exchange turns the connections of a scenario into exchanges: one between each two machines that have a connection. Put shares of them keep
// the connection too, which then uses the cables beside the exchange.
func (s *Scenario) Exchange(keep func() bool) {
	var left []Connection
	for _, c := range s.Connections {
		is := func(x Exchange) bool { return x.From == c.From && x.To == c.To || x.From == c.To && x.To == c.From }
		if !slices.ContainsFunc(s.Exchanges, is) {
			s.Exchanges = append(s.Exchanges, Exchange{c.From, c.To, max(1, c.Messages/2), min(c.Largest, 1<<18), c.Pauses, min(c.Window, 64), c.targets()})
		}
		if keep() {
			left = append(left, c)
		}
	}
	s.Connections = left
}

// targets returns the memory of windows in the place of the connection's buffers.
func (c *Connection) targets() string {
	if c.Memory != HostMemory {
		return GPUMemory
	}
	return HostMemory
}

// machine returns the number of a machine in Machines, or -1.
func (s *Scenario) machine(name string) int {
	for k, m := range s.Machines {
		if m == name {
			return k
		}
	}
	return -1
}

// wire returns the cable of a number, or nil.
func (s *Scenario) wire(number int) *Wire {
	for k := range s.Cables {
		if s.Cables[k].Number == number {
			return &s.Cables[k]
		}
	}
	return nil
}
