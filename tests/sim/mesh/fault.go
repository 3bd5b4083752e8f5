package mesh

import (
	"fmt"
	"net/netip"
	"time"
)

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
		return func() { c.Cut(true) }, func() { c.Cut(false) }
	}},
	{"one port off", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		return func() { c.Off(half(bad), true, true) }, func() { c.Off(half(bad), true, false) }
	}},
	{"one interface down", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		return func() { c.Off(half(bad), false, true) }, func() { c.Off(half(bad), false, false) }
	}},
	{"dead one way", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		return func() { c.Lose(half(bad), 1) }, func() { c.Lose(half(bad), 0) }
	}},
	{"dead both ways, with a carrier", func(_ *World, c *Cable, _ float64) (begin, end func()) {
		both := func(share float64) { c.Lose(0, share); c.Lose(1, share) }
		return func() { both(1) }, func() { both(0) }
	}},
	{"loss", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		both := func(share float64) { c.Lose(0, share); c.Lose(1, share) }
		return func() { both(bad * bad * 0.5) }, func() { both(0) }
	}},
	{"slow", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		return func() { c.Slow(half(bad), int64(1e6+bad*1e8)) }, func() { c.Slow(half(bad), 0) }
	}},
	{"late", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		by := time.Duration(bad * float64(300*time.Millisecond))
		return func() { c.Delay(1, by) }, func() { c.Delay(1, 0) }
	}},
	{"streams reset", func(w *World, c *Cable, _ float64) (begin, end func()) {
		return func() {
			own, other := c.Ends[0].Prefixes(), c.Ends[1].Prefixes()
			w.Net.Reset(func(a, b netip.AddrPort) bool { return on(own, a) && on(other, b) || on(own, b) && on(other, a) })
		}, func() {}
	}},
	{"acknowledgements lost", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		return func() {
			if c.RDMA != nil {
				c.Adapters[half(bad)].LoseAcks(1 + int(bad*40))
			}
		}, func() {}
	}},
	{"completions late", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		late := func(by time.Duration) {
			if c.RDMA != nil {
				c.Adapters[half(bad)].Device.Late(by)
			}
		}
		return func() { late(time.Duration(bad * float64(50*time.Millisecond))) }, func() { late(0) }
	}},
	{"queue pairs fail", func(w *World, c *Cable, bad float64) (begin, end func()) {
		one := func() {
			if c.RDMA == nil {
				return
			}
			if all := c.Adapters[half(bad)].Device.QueuePairs(); len(all) > 0 {
				w.Fabric.Break(all[int(bad*1e4)%len(all)])
			}
		}
		return one, one
	}},
	{"registration slow", func(_ *World, c *Cable, bad float64) (begin, end func()) {
		slow := func(by time.Duration) {
			if c.RDMA != nil {
				c.Adapters[half(bad)].Device.Slow("reg_mr", by)
			}
		}
		return func() { slow(time.Duration(bad * float64(200*time.Millisecond))) }, func() { slow(0) }
	}},
	{"flapping", func(w *World, c *Cable, bad float64) (begin, end func()) {
		return func() {
			for k := range 2 * (1 + int(bad*4)) { // the last gives the carrier back
				w.Clock.After(time.Duration(k)*time.Duration((0.01+bad)*float64(200*time.Millisecond)), fmt.Sprintf("flap of cable %d", c.Number), func() { c.Cut(k%2 == 0) })
			}
		}, func() {}
	}},
}

// half is one of the two ends.
func half(bad float64) int { return int(bad*20) % 2 }

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
