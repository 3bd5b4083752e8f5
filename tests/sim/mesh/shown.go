package mesh

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ncclmesh/transport/stats"
)

// open makes the page of the process.
func (p *Process) open(who stats.Process) *stats.Page {
	page := stats.Private(who)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.page = page
	return page
}

// Shown is what the process shows of itself.
func (p *Process) Shown() *stats.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := p.page.Snapshot()
	if err != nil {
		panic(err)
	}
	return s
}

// Troubles are the warnings of a process, and the ways whose lanes have failed.
func (p *Process) Troubles() (all []string) {
	s := p.Shown()
	for _, w := range s.Notices {
		all = append(all, w.Text)
	}
	for _, w := range s.Paths {
		if w.Failures > 0 {
			all = append(all, fmt.Sprintf("%d lanes failed over %v", w.Failures, w.Path))
		}
	}
	return all
}

// never are what no process says, whatever happens to cables and processes: no stranger is at work, all ends of the mesh keep
// its protocol, and what was made is given back.
var never = []string{
	"internal error", "peer broke the protocol", "no such circuit is expected", "left something behind", "did not close", "did not come down",
	"can neither be stopped nor destroyed", "has not reached the program",
}

// logged returns the lines of the processes' logs that contain one of some texts.
func (j *Job) logged(texts ...string) (all []string) {
	for line := range strings.Lines(j.Logs()) {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			all = append(all, strings.TrimSuffix(line, "\n"))
		}
	}
	return all
}

// ends is a connection, as both of its ends know it.
type ends struct {
	sender, receiver [16]byte
	id               uint32
}

// Heal waits until the last fault is over, and then until each connection has lanes over every cable on which it has lost
// some, and both ends of it have as many in service. It fails the test when that takes longer than it may. Connections are idle
// meanwhile.
func (j *Job) Heal(last, within time.Duration) {
	j.world.T.Helper()
	if wait := last - j.world.Bus.Now(); wait > 0 {
		j.world.Clock.Sleep(wait)
	}
	var hurt []string
	for end := j.world.Bus.Now() + within; j.world.Bus.Now() < end; {
		if hurt = j.hurt(); hurt == nil {
			return
		}
		j.world.Clock.Sleep(250 * time.Millisecond)
	}
	j.world.Errorf("not healed %v after the last fault: %s", within, strings.Join(hurt, "; "))
}

// hurt says what is not as it was before the faults.
func (j *Job) hurt() (all []string) {
	up := map[ends][2]int{}
	for _, r := range j.ranks {
		s := r.Shown()
		for i := range s.Paths {
			w := &s.Paths[i]
			if since, down := s.Down(w); down && w.Kind != stats.Relayed { // a detour may be no longer needed
				all = append(all, fmt.Sprintf("%s has no lane to %s over its port %d and port %d there (%v), for %v", r.Name, w.Peer, w.Port, w.PeerPort, w.Kind, s.At.Sub(since)))
			}
		}
		for i, c := range s.Conns {
			h, side := ends{s.Process.ID, c.Process, c.ID}, 0
			if !c.Sending {
				h, side = ends{c.Process, s.Process.ID, c.ID}, 1
			}
			n := up[h]
			for _, l := range s.Lanes {
				if l.Conn == i && l.Up {
					n[side]++
				}
			}
			up[h] = n
		}
	}
	for h, n := range up {
		if n[0] != n[1] || n[0] == 0 {
			all = append(all, fmt.Sprintf("connection %d of process %x has %d lanes at its sender and %d at its receiver", h.id, h.sender[:4], n[0], n[1]))
		}
	}
	slices.Sort(all) // not in the order of a map
	return all
}

// overRDMA fails the test where a rank has a lane over TCP in service.
func (j *Job) overRDMA() {
	for _, r := range j.ranks {
		s := r.Shown()
		for _, l := range s.Lanes {
			if way := &s.Paths[l.Path]; l.Up && way.Kind == stats.TCP {
				j.world.Errorf("%s has a lane to %s over TCP", r.Name, way.Peer)
			}
		}
	}
}

// missed fails the test where a rank has accused a lane of a grant that did not come.
func (j *Job) missed() {
	for _, line := range j.logged("no grant arrived over it") {
		j.world.Errorf("a grant that no lane has lost did not come: %s", line)
	}
}
