package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A contender is a side of a figure with the plugin that it is measured on.
type contender struct {
	side
	plugin string
}

// slice is how long one of two works is measured before it is the other's turn,
// about: shorter than most of what else happens on a machine.
const slice = 25 * time.Millisecond

// pairs measures two in turn, and returns the pairs of each row. Which of them goes
// first changes: what the first leaves behind, or a machine that gets slower, is for
// or against each of them alike.
func (b *bench) pairs(what string, value, beside contender, seconds float64) ([][]pair, error) {
	var rows [][]pair
	for n := range b.o.runs {
		b.progress("%s, run %d of %d", what, n+1, b.o.runs)
		turns := [2]contender{value, beside}
		round, err := b.round(turns, n%2, seconds)
		if err != nil {
			return nil, err
		}
		if rows == nil {
			rows = make([][]pair, len(round))
		}
		for i, p := range round {
			rows[i] = append(rows[i], p)
		}
	}
	b.progress("")
	return rows, nil
}

// round measures both once. With --quiet it measures them again while other
// programs disturb, and returns what was disturbed least.
func (b *bench) round(both [2]contender, first int, seconds float64) (best []pair, err error) {
	const (
		disturbed = 0.05 // of the time of the processors that ranks run on
		most      = 8    // tries
	)
	for range most {
		b.watch = startWatch(b.inUse())
		measure := b.whole
		if both[0].work != nil && both[1].work != nil {
			measure = b.sliced
		}
		got, err := measure(both, first, seconds)
		if err != nil {
			return nil, err
		}
		others := b.watch.others()
		for i := range got {
			got[i].Others = others
		}
		if best == nil || others < best[0].Others {
			best = got
		}
		if !b.o.quiet || best[0].Others <= disturbed {
			break
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-b.ctx.Done():
			return nil, b.ctx.Err()
		}
	}
	return best, nil
}

// whole measures one to its end, then the other.
func (b *bench) whole(both [2]contender, first int, _ float64) ([]pair, error) {
	var got [2][]float64
	for _, i := range [2]int{first, 1 - first} {
		c := both[i]
		if c.work == nil {
			var err error
			if got[i], err = c.side.whole(b, c.plugin); err != nil {
				return nil, err
			}
			continue
		}
		s, err := b.run(c.work(b, c.plugin))
		if err != nil {
			return nil, err
		}
		got[i] = []float64{c.of(s)}
	}
	if len(got[0]) != len(got[1]) {
		return nil, fmt.Errorf("%d values beside %d", len(got[0]), len(got[1]))
	}
	pairs := make([]pair, len(got[0]))
	for i := range pairs {
		pairs[i] = pairOf(got[0][i], got[1][i])
	}
	return pairs, nil
}

// sliced starts both and measures slices of them in turn, for about as long as both
// measured whole. The pair is of medians, its ratio that of the slices' ratios: what
// disturbs one slice or two is not in it.
func (b *bench) sliced(both [2]contender, first int, seconds float64) (_ []pair, err error) {
	var s [2]*slicer
	defer func() {
		for _, s := range s {
			if s != nil {
				err = errors.Join(err, s.close())
			}
		}
	}()
	for _, i := range [2]int{first, 1 - first} {
		if s[i], err = b.slicer(both[i].work(b, both[i].plugin), [2]string{meetAt, meetBesideAt}[i]); err != nil {
			return nil, err
		}
	}
	var all []pair
	end := time.Now().Add(time.Duration(2 * seconds * float64(time.Second)))
	for n := first; len(all) == 0 || time.Now().Before(end); n++ {
		var got [2]float64
		for _, i := range [2]int{n % 2, 1 - n%2} {
			one, err := s[i].next()
			if err != nil {
				return nil, err
			}
			got[i] = both[i].of(one)
		}
		all = append(all, pairOf(got[0], got[1]))
	}
	return []pair{middle(all)}, nil
}

// results of figure f, of one contender beside another.
func (b *bench) results(f figure, value, beside contender) ([]result, error) {
	if err := b.on(f.links, f.shared); err != nil {
		return nil, err
	}
	rows, err := b.pairs(f.name, value, beside, b.o.seconds)
	if err != nil {
		return nil, err
	}
	rs := make([]result, len(f.rows))
	for i, r := range f.rows {
		rs[i] = result{
			Name: r.name, About: r.about, Limit: r.limit, Unit: r.unit, AtLeast: r.atLeast, AtMost: r.atMost, Runs: rows[i], compared: b.o.base != "",
		}
		rs[i].settle()
	}
	return rs, nil
}

// figure measures f beside its limit.
func (b *bench) figure(f figure) ([]result, error) {
	if f.netIB {
		if err := b.needNetIB(); err != nil {
			return nil, err
		}
	}
	rs, err := b.results(f, contender{f.ours, b.plugin()}, contender{f.limit, b.plugin()})
	for _, r := range rs {
		fmt.Fprintln(b.out, r.line())
	}
	return rs, err
}

// against measures f beside the plugin of the base. What seems worse is measured
// once more, and that counts: of many figures one is always unlucky.
func (b *bench) against(f figure, base string) (rs []result, err error) {
	for range 2 {
		if rs, err = b.results(f, contender{f.ours, b.plugin()}, contender{f.ours, base}); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(rs, func(r result) bool { return r.Verdict == worse }) {
			break
		}
	}
	for _, r := range rs {
		fmt.Fprintln(b.out, r.line())
	}
	return rs, nil
}

// notReady is the figure of all runs.
func (b *bench) notReady() result {
	r := result{
		Name: "receiver-not-ready", About: fmt.Sprintf("events in %d runs of the plugin, each of which would end its run", b.runs),
		Unit: "events", Runs: []pair{{Value: float64(b.rnr)}}, Zero: true,
	}
	r.settle()
	fmt.Fprintln(b.out, r.line())
	return r
}
