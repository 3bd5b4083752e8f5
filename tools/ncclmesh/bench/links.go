package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/rate"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport/fault"
)

// LinkSchema names the form of a LinkReport in JSON.
const LinkSchema = "ncclmesh.bench-link/1"

// LinkOptions are those of Links.
type LinkOptions struct {
	Options
	Bytes int           // of a message
	For   time.Duration // that each measurement lasts
}

// LinkReport is what cables carry.
type LinkReport struct {
	Schema string `json:"schema"`
	Bytes  int    `json:"bytes"`
	Links  []Link `json:"links"`
}

// Link is a cable, one of its halves, or a way through other nodes.
type Link struct {
	Ends    [2]string `json:"ends"`         // node:cage, or nodes alone
	Over    string    `json:"over"`         // its functions, or the nodes that it goes through
	Ports   [2]string `json:"ports"`        // of a half; "" of several together, and of paths through other nodes
	RDMA    bool      `json:"rdma"`         // of a half
	Forth   float64   `json:"forth"`        // Gb/s, one way alone
	Back    float64   `json:"back"`         // Gb/s
	Both    float64   `json:"both"`         // Gb/s, both ways at once, together
	Allowed float64   `json:"allowed"`      // Gb/s one way, by link and PCIe; 0: not known
	Median  float64   `json:"medianMicros"` // of 8 bytes, one way
	P99     float64   `json:"p99Micros"`    // likewise
	Lanes   string    `json:"lanes"`        // that carried it, from the first end
	Wrong   int64     `json:"wrong"`        // bytes
	Below   []string  `json:"below"`        // of forth, back and both: what is less than it should be by what is allowed
	// Crowded is the share of the processors of each end that other programs took meanwhile, where hardly any was idle.
	Crowded [2]float64 `json:"crowded"`
	Error   string     `json:"error,omitempty"`

	nodes [2]int // in the crew
	ways  [2][]Way
}

// Relayed reports whether other nodes relayed what was measured of a pair of nodes without a common cable.
func (l *Link) Relayed() bool { return strings.Contains(l.Lanes, " through ") }

// Err is what went wrong: links that could not be measured, or carried wrong bytes.
func (r *LinkReport) Err() error {
	var errs []error
	slow := 0
	for _, l := range r.Links {
		switch {
		case l.Error != "":
			errs = append(errs, fmt.Errorf("%s – %s over %s: %s", l.Ends[0], l.Ends[1], l.Over, l.Error))
		case l.Wrong > 0:
			errs = append(errs, fmt.Errorf("%s – %s over %s: %d bytes arrived wrong", l.Ends[0], l.Ends[1], l.Over, l.Wrong))
		case len(l.Below) > 0:
			slow++
		}
	}
	if slow > 0 {
		errs = append(errs, fmt.Errorf("%d of %d rows are below %d %% of what link and PCIe allow, marked with %s: see ncclmesh explain cable-slow", slow, len(r.Links), rate.Low, mark))
	}
	return errors.Join(errs...)
}

// errNoLinks is what there is to say where nothing can be measured.
var errNoLinks = errors.New("no cable joins the hosts, and no path leads through others: see ncclmesh topo, and ncclmesh doctor for the reason")

// judge sets Below to the rates that are too low, unless other programs took the processors.
func (l *Link) judge() {
	if l.Below = l.low(); l.crowded() {
		l.Below = []string{}
	}
}

// crowded reports whether other programs took the processors of an end.
func (l *Link) crowded() bool { return rate.Busy(l.Crowded) >= 0 }

// low returns the names of the rates that are below a share of what link and PCIe allow. Of sockets nobody knows what they should
// carry, nor of paths through other nodes.
func (l *Link) low() []string {
	low := []string{}
	if len(l.ways[0]) == 0 || !l.ways[0][0].RDMA || l.Allowed <= 0 {
		return low
	}
	for _, m := range []struct {
		name                 string
		rate, allowed, share float64
	}{{"forth", l.Forth, l.Allowed, rate.Low}, {"back", l.Back, l.Allowed, rate.Low}, {"both", l.Both, 2 * l.Allowed, rate.BothWays}} {
		if rate.Below(m.rate, m.allowed, m.share) {
			low = append(low, m.name)
		}
	}
	return low
}

// Links measures every cable between hosts, half by half and whole, and the ways between those
// that share none, one after the other.
func Links(ctx context.Context, f *fleet.Fleet, hosts []string, o LinkOptions) (*LinkReport, error) {
	o.say("looking at the cables")
	m, err := topo.Survey(ctx, f, hosts, false)
	if err == nil {
		err = m.Err()
	}
	if err != nil {
		return nil, err
	}
	all := links(m)
	if len(all) == 0 {
		return nil, errNoLinks
	}
	o.say("starting agents")
	c, err := muster(ctx, f, hosts, &o.Options, o.request)
	if err != nil {
		return nil, err
	}
	defer c.dismiss()
	b := &linkBench{crew: c, o: o}
	if most := int(c.memory() / (4 * outstanding)); b.o.Bytes > most {
		b.o.Bytes = max(most, 4096)
	}
	r := &LinkReport{Schema: LinkSchema, Bytes: b.o.Bytes, Links: all}
	for i := range r.Links {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l := &r.Links[i]
		b.at = fmt.Sprintf("%d of %d, %s – %s over %s", i+1, len(r.Links), l.Ends[0], l.Ends[1], l.Over)
		l.Below = []string{}
		if err := b.measure(l); err != nil {
			l.Error = fault.OneLine(err)
		} else {
			l.judge()
		}
	}
	return r, nil
}

// links are what there is to measure in a map.
func links(m *topo.Map) (all []Link) {
	index := map[string]int{}
	for i, n := range m.Nodes {
		index[n.Name] = i
	}
	for _, c := range m.Cables {
		l := Link{Ends: [2]string{c.Ends[0].String(), c.Ends[1].String()}, nodes: [2]int{index[c.Ends[0].Node], index[c.Ends[1].Node]}}
		best := topo.TCP
		if slices.ContainsFunc(c.Halves, func(h topo.Half) bool { return h.State == topo.RDMA }) {
			best = topo.RDMA
		}
		whole := l
		for _, h := range c.Halves {
			if h.State != best {
				continue
			}
			half := l
			half.Over = h.Ports[0] + " – " + h.Ports[1]
			half.Ports, half.RDMA = h.Ports, best == topo.RDMA
			half.ways = [2][]Way{{{h.Ports[0], h.Ports[1], best == topo.RDMA}}, {{h.Ports[1], h.Ports[0], best == topo.RDMA}}}
			all = append(all, half)
			for side := range whole.ways {
				whole.ways[side] = append(whole.ways[side], half.ways[side]...)
			}
		}
		if len(whole.ways[0]) > 1 {
			whole.Over = fmt.Sprintf("all %d together", len(whole.ways[0]))
			all = append(all, whole)
		}
	}
	for _, a := range m.Apart {
		if len(a.Through) > 0 {
			all = append(all, Link{Ends: a.Nodes, Over: a.Ways(), nodes: [2]int{index[a.Nodes[0]], index[a.Nodes[1]]}})
		}
	}
	return all
}

// linkBench measures links.
type linkBench struct {
	crew
	o        LinkOptions
	at       string // for people
	surveyed map[[2]int]bool
	flows    int
}

// measure measures one link in all ways.
func (b *linkBench) measure(l *Link) error {
	if err := b.survey(l); err != nil {
		return err
	}
	for _, m := range []struct {
		what  string
		sides []int // that send
		rate  *float64
	}{{"one way", []int{0}, &l.Forth}, {"the other way", []int{1}, &l.Back}, {"both ways", []int{0, 1}, &l.Both}} {
		b.o.say("%s, %s", b.at, m.what)
		flows, err := b.run(l, m.sides, run{Bytes: b.o.Bytes, For: b.o.For})
		if err != nil {
			return err
		}
		for _, f := range flows {
			*m.rate += gbits(f.sent)
			l.Wrong += f.received.Wrong
			if l.Lanes == "" {
				l.Lanes = f.sent.Lanes
			}
			allowed := float64(min(f.sent.Allowed, f.received.Allowed)) / 1000
			if l.Allowed == 0 || allowed < l.Allowed {
				l.Allowed = allowed
			}
		}
	}
	if len(l.ways[0]) == 0 && !l.Relayed() {
		l.Over = "another network"
	}
	b.o.say("%s, latency", b.at)
	flows, err := b.run(l, []int{0, 1}, run{Bytes: 8, For: b.o.For / 2, Latency: true})
	if err != nil {
		return err
	}
	l.Median, l.P99 = micros(flows[0].sent.Median), micros(flows[0].sent.P99)
	for _, f := range flows {
		l.Wrong += f.sent.Wrong // each side looks at what has come
	}
	return nil
}

func gbits(f flow) float64 {
	if f.Took <= 0 {
		return 0
	}
	return float64(f.Bytes) * 8 / f.Took.Seconds() / 1e9
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// survey has both nodes of a link try the ways to each other, once.
func (b *linkBench) survey(l *Link) error {
	if len(l.ways[0]) == 0 || b.surveyed[l.nodes] {
		return nil
	}
	for side := range 2 {
		if _, err := b.crew[l.nodes[side]].do(order{Survey: b.crew[l.nodes[1-side]].Handle}); err != nil {
			return err
		}
	}
	if b.surveyed == nil {
		b.surveyed = map[[2]int]bool{}
	}
	b.surveyed[l.nodes] = true
	return nil
}

// through is a flow from both ends.
type through struct{ sent, received flow }

// run has flows go from some sides of a link, and returns them in that order.
func (b *linkBench) run(l *Link, sides []int, r run) ([]through, error) {
	orders := [2]run{r, r}
	orders[0].First = true
	var names []string
	for _, side := range sides {
		b.flows++
		name := fmt.Sprintf("flow %d", b.flows)
		names = append(names, name)
		to := b.crew[l.nodes[1-side]]
		d, err := to.do(order{Listen: []string{name}})
		if err != nil {
			return nil, err
		}
		orders[side].Sends = append(orders[side].Sends, send{Flow: name, Handle: d.Handles[name], Peer: to.ID, Ways: l.ways[side]})
		orders[1-side].Recvs = append(orders[1-side].Recvs, name)
	}
	var answers [2]done
	two := crew{b.crew[l.nodes[0]], b.crew[l.nodes[1]]}
	err := fleet.Each(two, func(side int, m *member) (err error) {
		answers[side], err = m.do(order{Run: &orders[side]})
		return err
	})
	if err != nil {
		return nil, err
	}
	for side := range answers {
		l.Crowded[side] = max(l.Crowded[side], answers[side].Usage.crowded(answers[1-side].Usage))
	}
	var all []through
	for i, side := range sides {
		all = append(all, through{answers[side].Flows[names[i]], answers[1-side].Flows[names[i]]})
	}
	return all, nil
}
