package mesh

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"ncclmesh/transport/stats"
)

// A Cell is what a fault has met: its kind, and a state of a lane over its cable or of a session between the nodes there.
type Cell struct {
	Kind, Carrier string // Carrier is "" of a session
	State         State
}

// A State is that of a lane or of a session, as the process at one end shows it.
type State int

const (
	LaneSetUp    State = iota // a rank waits in connect or accept
	LaneUp                    // in service
	LaneLeaving               // out of service since less than drained
	LaneGone                  // out of service for longer, and no other has come in its place
	SessionSetUp              // the two processes have none so far
	SessionUp
	SessionBroken // it looks for another link
	states        = iota
)

func (s State) String() string {
	return [states]string{"lane set up", "lane up", "lane leaving", "lane gone", "session set up", "session up", "session broken"}[s]
}

// drained is how long after a lane went out of service it counts as drained at both ends. The page of a process does not say
// whether it is.
const drained = 100 * time.Millisecond

// hits are how often a fault has met each state, in all runs of the program.
var hits = struct {
	mu sync.Mutex
	n  map[Cell]int
}{n: map[Cell]int{}}

// observe counts what a fault meets. It is called in an event of the bus, when all goroutines rest.
func (w *World) observe(h *hit) {
	met := map[Cell]bool{}
	for _, c := range w.cables {
		if h.Cable != nil && h.Cable != c {
			continue
		}
		for end, m := range c.Machines {
			if h.Cable == nil && m != h.machine {
				continue
			}
			for _, p := range m.processes {
				for _, s := range p.states(c, end) {
					cell := Cell{h.Kind, "", s}
					if s < SessionSetUp {
						cell.Carrier = c.carrier()
					}
					met[cell] = true
				}
			}
		}
	}
	hits.mu.Lock()
	defer hits.mu.Unlock()
	for cell := range met {
		hits.n[cell]++
	}
}

// carrier is what lanes over the cable are carried by, unless the settings forbid that.
func (c *Cable) carrier() string {
	if c.RDMA != nil {
		return stats.RDMA.String()
	}
	return stats.TCP.String()
}

// states returns the states of the process's lanes over a cable, at whose given end it is, and of its sessions with the other.
func (p *Process) states(c *Cable, end int) (all []State) {
	p.mu.Lock()
	running := p.page != nil
	p.mu.Unlock()
	if !running {
		return nil
	}
	peer := c.Machines[1-end]
	for _, r := range p.ranks {
		if !r.killed.Load() && slices.ContainsFunc(r.flows, func(f flow) bool { return !f.ready() && f.peer().Machine == peer }) {
			all = append(all, LaneSetUp)
		}
	}
	s := p.Shown()
	over := func(way int) bool {
		port := s.Port(s.Paths[way].Port)
		return port != nil && port.Netdev == c.Ends[end].Name()
	}
	for _, l := range s.Lanes {
		if l.Path < 0 || !over(l.Path) {
			continue
		}
		switch {
		case l.Up:
			all = append(all, LaneUp)
		case s.At.Sub(l.Since) < drained:
			all = append(all, LaneLeaving)
		default:
			all = append(all, LaneGone)
		}
	}
	return append(all, p.sessionsWith(peer)...)
}

// A session is what the log of a process says of a session.
type session struct {
	peer   string
	broken bool
}

var aboutSession = regexp.MustCompile(`control: (dialled a session|accepted a session|a session's link broke|a session continues over another link) session=(\w+) peer=(\w+)`)

// hear takes from a line of the log what it says of a session. p.mu is locked.
func (p *Process) hear(text string) {
	if m := aboutSession.FindStringSubmatch(text); m != nil {
		p.sessions[m[2]] = session{m[3], strings.HasSuffix(m[1], "broke")}
	}
}

// sessionsWith returns the states of the sessions with a machine.
func (p *Process) sessionsWith(peer *Machine) (all []State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		switch {
		case s.peer != peer.Name():
		case s.broken:
			all = append(all, SessionBroken)
		default:
			all = append(all, SessionUp)
		}
	}
	if all == nil {
		return []State{SessionSetUp}
	}
	return all
}

// Missed returns what no fault has met so far and should have: each kind of fault each state, but slow verbs.
func Missed() (all []Cell) {
	hits.mu.Lock()
	defer hits.mu.Unlock()
	for _, k := range kinds {
		if k.amount.unit != nil && k.amount.draw == nil {
			continue
		}
		for s := range State(states) {
			cell := Cell{k.name, "", s}
			for _, carrier := range []string{"rdma", "tcp"} {
				if s < SessionSetUp {
					cell.Carrier = carrier
				}
				if hits.n[cell] == 0 && !slices.Contains(all, cell) && (k.target != adapterEnd || cell.Carrier != "tcp") {
					all = append(all, cell)
				}
			}
		}
	}
	return all
}

// Met returns a table of how often each kind of fault has met each state, in all runs of the program so far.
func Met() string {
	hits.mu.Lock()
	defer hits.mu.Unlock()
	rows := map[[2]string][states]int{}
	for cell, n := range hits.n {
		key := [2]string{cell.Kind, cmp.Or(cell.Carrier, "sessions")}
		row := rows[key]
		row[cell.State] = n
		rows[key] = row
	}
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(out, "fault\t\t")
	for s := range State(states) {
		fmt.Fprintf(out, "%v\t", s)
	}
	fmt.Fprintln(out)
	keys := slices.SortedFunc(maps.Keys(rows), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, key := range keys {
		fmt.Fprintf(out, "%s\t%s\t", key[0], key[1])
		for s, n := range rows[key] {
			if (State(s) >= SessionSetUp) == (key[1] == "sessions") {
				fmt.Fprint(out, n)
			}
			fmt.Fprint(out, "\t")
		}
		fmt.Fprintln(out)
	}
	_ = out.Flush() // to memory
	return b.String()
}
