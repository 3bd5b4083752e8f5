package mesh

import (
	"fmt"
	"net/netip"
	"time"

	"ncclmesh/tests/sim/internet"
)

// A Cable is a link between two machines with both its ends.
type Cable struct {
	Number int
	Link   *internet.Link
	Ends   [2]*internet.Interface
}

// A Fault is something that goes wrong at a time, and ends after another.
type Fault struct {
	At, For time.Duration
	What    string
	Begin   func()
	End     func()
}

func (f *Fault) String() string { return fmt.Sprintf("at %v, for %v: %s", f.At, f.For, f.What) }

// kinds are what can happen to a cable. Each takes a number from 0 to 1 that says how bad it is.
var kinds = []struct {
	name string
	make func(w *World, c *Cable, bad float64) (begin, end func())
}{
	{"cut", func(_ *World, c *Cable, _ float64) (begin, end func()) {
		return func() { c.Link.Cut(true) }, func() { c.Link.Cut(false) }
	}},
	{"interface down", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		i := c.Ends[int(bad*2)%2]
		return func() { i.SetUp(false) }, func() { i.SetUp(true) }
	}},
	{"dead one way", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		i := c.Ends[int(bad*2)%2]
		return func() { i.Lose(internet.All) }, func() { i.Lose(internet.Loss{}) }
	}},
	{"dead both ways, with a carrier", func(_ *World, c *Cable, _ float64) (begin, end func()) {
		both := func(l internet.Loss) { c.Ends[0].Lose(l); c.Ends[1].Lose(l) }
		return func() { both(internet.All) }, func() { both(internet.Loss{}) }
	}},
	{"loss", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		l := internet.Loss{Streams: bad * 0.2, Datagrams: bad, Neighbour: bad}
		return func() { c.Ends[0].Lose(l); c.Ends[1].Lose(l) }, func() { c.Ends[0].Lose(internet.Loss{}); c.Ends[1].Lose(internet.Loss{}) }
	}},
	{"slow", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		return func() { c.Ends[0].Slow(int64(1e6 + bad*1e8)) }, func() { c.Ends[0].Slow(0) }
	}},
	{"late", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		by := time.Duration(bad * float64(300*time.Millisecond))
		return func() { c.Ends[1].Delay(by) }, func() { c.Ends[1].Delay(0) }
	}},
	{"streams reset", func(w *World, c *Cable, _ float64) (begin, end func()) {
		return func() {
			own, other := c.Ends[0].Prefixes(), c.Ends[1].Prefixes()
			w.Net.Reset(func(a, b netip.AddrPort) bool { return on(own, a) && on(other, b) || on(own, b) && on(other, a) })
		}, func() {}
	}},
	{"flapping", func(w *World, c *Cable, bad float64) (begin, end func()) {
		return func() {
			for k := range 2 + int(bad*8) {
				w.Clock.After(time.Duration(k)*time.Duration((0.01+bad)*float64(200*time.Millisecond)), fmt.Sprintf("flap of cable %d", c.Number), func() { c.Link.Cut(k%2 == 0) })
			}
		}, func() { c.Link.Cut(false) }
	}},
}

// Plan draws faults of cables: so many, that begin within a time and last up to longest each. About half of the kinds are
// left out, because rare pairs meet only where the others keep away.
func (w *World) Plan(cables []*Cable, n int, within, longest time.Duration) (all []*Fault) {
	s := w.Bus.Source("plan")
	var used []int
	for k := range kinds {
		if s.Chance(0.5) {
			used = append(used, k)
		}
	}
	if len(used) == 0 {
		used = []int{int(s.Uint64N(uint64(len(kinds))))}
	}
	for range n {
		k := kinds[used[s.Uint64N(uint64(len(used)))]]
		c := cables[s.Uint64N(uint64(len(cables)))]
		f := &Fault{At: s.Between(0, within), For: time.Duration(s.LogUniform(1000, int(longest.Microseconds()))) * time.Microsecond}
		f.What = fmt.Sprintf("cable %d (%v and %v): %s", c.Number, c.Ends[0], c.Ends[1], k.name)
		f.Begin, f.End = k.make(w, c, s.Float64())
		all = append(all, f)
	}
	return all
}

// Strike lets the faults happen, from now on, and returns when the last ends.
func (w *World) Strike(faults []*Fault) (last time.Duration) {
	for _, f := range faults {
		w.Clock.After(f.At, "begin: "+f.What, f.Begin)
		w.Clock.After(f.At+f.For, "end: "+f.What, f.End)
		last = max(last, f.At+f.For)
	}
	return last
}

// on reports whether an address is one of an interface's.
func on(prefixes []netip.Prefix, a netip.AddrPort) bool {
	for _, p := range prefixes {
		if p.Addr() == a.Addr().WithZone("") {
			return true
		}
	}
	return false
}
