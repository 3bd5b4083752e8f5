package mesh

import (
	"fmt"
	"maps"
	"slices"
)

// Shrink makes a scenario that fails smaller: it leaves out faults, connections, machines, cables, messages, settings and
// expectations, a part at a time, and keeps what fails still. It begins again until nothing more can go. fails plays a scenario
// and reports whether it fails in the same way. progress is told of each that was tried: what was left out of it, whether that
// fails still, and the smallest so far.
func (s *Scenario) Shrink(fails func(*Scenario) bool, progress func(what string, kept bool, smallest *Scenario)) *Scenario {
	r := &shrinking{best: s.clone(), fails: fails, progress: progress, tried: map[string]bool{s.String(): true}}
	for again := true; again; {
		again = false
		for _, pass := range []func(*shrinking) bool{(*shrinking).faults, (*shrinking).connections, (*shrinking).machines, (*shrinking).cables, (*shrinking).messages, (*shrinking).settings} {
			again = pass(r) || again
		}
	}
	return r.best
}

// A shrinking is a scenario that is being made smaller.
type shrinking struct {
	best     *Scenario
	fails    func(*Scenario) bool
	progress func(what string, kept bool, smallest *Scenario)
	tried    map[string]bool // texts
}

// try plays the best scenario with a change, and makes that the best if it fails still. It does not play what is no scenario, or
// was played before.
func (r *shrinking) try(what string, change func(s *Scenario)) bool {
	s := r.best.clone()
	change(s)
	text := s.String()
	if r.tried[text] || s.Check() != nil {
		return false
	}
	r.tried[text] = true
	kept := r.fails(s)
	if kept {
		r.best = s
	}
	r.progress(what, kept, r.best)
	return kept
}

// parts leaves parts out of n things: halves, then smaller parts, then one thing at a time, from the last to the first.
func (r *shrinking) parts(n func() int, what string, leave func(s *Scenario, from, to int)) (smaller bool) {
	for size := max(1, n()/2); ; size /= 2 {
		for to := n(); to > 0; to -= size {
			from := max(0, to-size)
			if r.try(fmt.Sprintf("without %d of %d %s", to-from, n(), what), func(s *Scenario) { leave(s, from, to) }) {
				smaller = true
			}
		}
		if size <= 1 {
			return smaller
		}
	}
}

func (r *shrinking) faults() bool {
	return r.parts(func() int { return len(r.best.Faults) }, "faults", func(s *Scenario, from, to int) {
		s.Faults = slices.Delete(s.Faults, from, to)
		s.Expect.Deaths = slices.DeleteFunc(s.Expect.Deaths, func(m string) bool { return !s.kills(m) })
	})
}

func (r *shrinking) connections() bool {
	smaller := r.parts(func() int { return len(r.best.Connections) }, "connections", func(s *Scenario, from, to int) {
		s.Connections = slices.Delete(s.Connections, from, to)
	})
	return r.parts(func() int { return len(r.best.Exchanges) }, "exchanges", func(s *Scenario, from, to int) {
		s.Exchanges = slices.Delete(s.Exchanges, from, to)
	}) || smaller
}

// messages makes connections carry fewer and smaller messages, without pauses.
func (r *shrinking) messages() (smaller bool) {
	for k := range r.best.Connections {
		name := fmt.Sprintf("connection %s to %s", r.best.Connections[k].From, r.best.Connections[k].To)
		for _, part := range []struct {
			what   string
			change func(c *Connection)
		}{
			{"a tenth of the messages", func(c *Connection) { c.Messages = max(1, c.Messages/10) }},
			{"half of the messages", func(c *Connection) { c.Messages = max(1, c.Messages/2) }},
			{"three quarters of the messages", func(c *Connection) { c.Messages = max(1, c.Messages*3/4) }},
			{"messages of a tenth of the size", func(c *Connection) { c.Largest /= 10 }},
			{"messages of half the size", func(c *Connection) { c.Largest /= 2 }},
			{"no pauses", func(c *Connection) { c.Pauses = 0 }},
			{"groups of one", func(c *Connection) { c.Group = 1 }},
			{"no ranges", func(c *Connection) { c.Ranges = 0 }},
			{"host memory", func(c *Connection) { c.Memory = HostMemory }},
		} {
			for r.try(name+" with "+part.what, func(s *Scenario) { part.change(&s.Connections[k]) }) {
				smaller = true
			}
		}
	}
	return r.operations() || smaller
}

// operations makes exchanges have fewer and smaller operations, without pauses.
func (r *shrinking) operations() (smaller bool) {
	for k := range r.best.Exchanges {
		name := fmt.Sprintf("exchange %s %s", r.best.Exchanges[k].From, r.best.Exchanges[k].To)
		for _, part := range []struct {
			what   string
			change func(x *Exchange)
		}{
			{"a tenth of the operations", func(x *Exchange) { x.Operations = max(1, x.Operations/10) }},
			{"three quarters of the operations", func(x *Exchange) { x.Operations = max(1, x.Operations*3/4) }},
			{"operations of half the size", func(x *Exchange) { x.Largest /= 2 }},
			{"no pauses", func(x *Exchange) { x.Pauses = 0 }},
			{"host memory", func(x *Exchange) { x.Memory = HostMemory }},
			{"half the window", func(x *Exchange) { x.Window = max(1, x.Window/2) }},
		} {
			for r.try(name+" with "+part.what, func(s *Scenario) { part.change(&s.Exchanges[k]) }) {
				smaller = true
			}
		}
	}
	return smaller
}

// machines leaves out machines, with what belongs to them.
func (r *shrinking) machines() bool {
	return r.parts(func() int { return len(r.best.Machines) }, "machines", func(s *Scenario, from, to int) {
		gone := slices.Clone(s.Machines[from:to])
		is := func(m string) bool { return slices.Contains(gone, m) }
		s.Machines = slices.Delete(s.Machines, from, to)
		s.Connections = slices.DeleteFunc(s.Connections, func(c Connection) bool { return is(c.From) || is(c.To) })
		s.Exchanges = slices.DeleteFunc(s.Exchanges, func(x Exchange) bool { return is(x.From) || is(x.To) })
		s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool { return is(f.Machine) })
		s.Expect.Deaths = slices.DeleteFunc(s.Expect.Deaths, is)
		s.keepCables(func(c Wire) bool { return !is(c.From) && !is(c.To) })
	})
}

// cables leaves out cables, and the management network.
func (r *shrinking) cables() bool {
	smaller := r.parts(func() int { return len(r.best.Cables) }, "cables", func(s *Scenario, from, to int) {
		gone := slices.Clone(s.Cables[from:to])
		s.keepCables(func(c Wire) bool { return !slices.Contains(gone, c) })
	})
	return r.try("without the management network", func(s *Scenario) { s.Management = false }) || smaller
}

// keepCables leaves out the cables that are not to be kept, and their faults.
func (s *Scenario) keepCables(keep func(Wire) bool) {
	s.Cables = slices.DeleteFunc(s.Cables, func(c Wire) bool { return !keep(c) })
	s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool { return f.Cable >= 0 && s.wire(f.Cable) == nil })
}

// settings leaves out settings, and expectations that no failure needs.
func (r *shrinking) settings() (smaller bool) {
	for _, name := range slices.Sorted(maps.Keys(r.best.Settings)) {
		smaller = r.try("without "+name, func(s *Scenario) { delete(s.Settings, name) }) || smaller
	}
	smaller = r.try("without expecting calm", func(s *Scenario) { s.Expect.Calm = false }) || smaller
	smaller = r.try("without expecting all grants", func(s *Scenario) { s.Expect.Grants = false }) || smaller
	smaller = r.try("without expecting RDMA", func(s *Scenario) { s.Expect.RDMA = false }) || smaller
	return r.try("without expecting that it heals", func(s *Scenario) { s.Expect.Healed = 0 }) || smaller
}

// clone returns a copy that shares nothing with s. What is empty in it is nil.
func (s *Scenario) clone() *Scenario {
	c := *s
	c.Notes, c.Machines, c.Cables = copied(s.Notes), copied(s.Machines), copied(s.Cables)
	c.Connections, c.Exchanges = copied(s.Connections), copied(s.Exchanges)
	c.Faults, c.Expect.Deaths = copied(s.Faults), copied(s.Expect.Deaths)
	c.Settings = map[string]string{}
	maps.Copy(c.Settings, s.Settings)
	return &c
}

func copied[T any](all []T) []T { return append([]T(nil), all...) }
