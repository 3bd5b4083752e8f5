package topo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// WriteText writes the map for people.
func (m *Map) WriteText(w io.Writer) error {
	out := &lineWriter{w: w}
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, c := range m.Cables {
		fmt.Fprintf(t, "%s %s %s %s %s\t%s\t%s\t%s\n", c.Ends[0].Node, c.Ends[0].Cage, c.line(), c.Ends[1].Cage, c.Ends[1].Node, c.speed(), mtu(c.MTU), c.proof())
	}
	for _, l := range m.Loose {
		fmt.Fprintf(t, "%s %s\t%s\n", l.Node, l.Cage, l.Why)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range m.Networks {
		fmt.Fprintf(out, "%s meet at a switch: that is no cable\n", list(n.Ends))
	}
	for _, line := range m.apartLines() {
		fmt.Fprintln(out, line)
	}
	for _, r := range m.Rings {
		fmt.Fprintf(out, "ring of %d: %s – %s\n", len(r), strings.Join(r, " – "), r[0])
	}
	known := 0
	for _, n := range m.Nodes {
		if n.Error == "" {
			known++
		}
	}
	for _, n := range m.Nodes {
		if n.Error == "" && known > 1 && !slices.ContainsFunc(m.Cables, func(c Cable) bool { return c.Ends[0].Node == n.Name || c.Ends[1].Node == n.Name }) {
			fmt.Fprintf(out, "%s has no cable to any of the others\n", n.Name)
		}
		for _, note := range n.Notes {
			fmt.Fprintf(out, "note: %s: %s\n", n.Name, note)
		}
	}
	return out.err
}

// fewPairs is how many pairs of nodes without a common cable have a line each.
const fewPairs = 4

// apartLines say which nodes share no cable, and through whom they reach each other: those that do in one line where they are many.
func (m *Map) apartLines() (lines []string) {
	reached := 0
	whole := func(a *Apart) bool {
		return len(a.Through) > 0 && (!a.Tried || a.Error == "" && len(m.Missing(a)) == 0)
	}
	for i := range m.Apart {
		if whole(&m.Apart[i]) {
			reached++
		}
	}
	for i := range m.Apart {
		if a := &m.Apart[i]; !whole(a) || reached <= fewPairs {
			lines = append(lines, fmt.Sprintf("%s ↔ %s share no cable%s", a.Nodes[0], a.Nodes[1], m.routes(a)))
		}
	}
	if reached > fewPairs {
		n := len(m.Nodes)
		lines = append(lines, fmt.Sprintf("%d of %d pairs of nodes share no cable: through the nodes between, which --json lists", reached, n*(n-1)/2))
	}
	return lines
}

// routes says through which nodes packets pass between two others, and through which they do not.
func (m *Map) routes(a *Apart) string {
	if !a.Tried {
		return ": " + a.Ways()
	}
	var missing []string
	for _, way := range m.Missing(a) {
		missing = append(missing, strings.Join(way, " and "))
	}
	silent := "nothing passes through " + strings.Join(missing, ", nor through ")
	switch {
	case a.Error != "":
		return ", and " + silent + ": " + a.Error
	case len(missing) > 0:
		return ": " + a.Proved() + "; " + silent
	}
	return ": " + a.Proved()
}

// lineWriter writes without blanks at the ends of lines, and keeps the first error.
type lineWriter struct {
	w    io.Writer
	rest string
	err  error
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.rest += string(p)
	for l.err == nil {
		line, rest, ok := strings.Cut(l.rest, "\n")
		if !ok {
			break
		}
		l.rest = rest
		_, l.err = io.WriteString(l.w, strings.TrimRight(line, " ")+"\n")
	}
	return len(p), l.err
}

// line is a cable as it is drawn.
func (c *Cable) line() string {
	switch c.best() {
	case RDMA:
		return "═"
	case TCP:
		return "─"
	}
	return "┄"
}

// best is how far the best of the halves is proved.
func (c *Cable) best() State {
	for _, s := range []State{RDMA, TCP, Heard} {
		if c.count(s) > 0 {
			return s
		}
	}
	return None
}

func (c *Cable) count(s State) (n int) {
	for _, h := range c.Halves {
		if h.State == s {
			n++
		}
	}
	return n
}

func (c *Cable) speed() string {
	speed := rate(c.Mbps)
	if n := len(c.Halves); n > 1 {
		speed += fmt.Sprintf(" in %d halves", n)
	}
	return speed
}

func rate(mbps int) string {
	switch {
	case mbps == 0:
		return "speed unknown"
	case mbps < 1000:
		return fmt.Sprintf("%d Mb/s", mbps)
	}
	return fmt.Sprintf("%.4g Gb/s", float64(mbps)/1000)
}

func mtu(mtu int) string {
	if mtu == 0 {
		return ""
	}
	return fmt.Sprintf("MTU %d", mtu)
}

// proof says how far a cable is proved, and why no further.
func (c *Cable) proof() string {
	rdma, all := c.count(RDMA), len(c.Halves)
	said := ""
	switch {
	case rdma == all && all == 1:
		said = "RDMA works"
	case rdma == all && all == 2:
		said = "RDMA, both halves work"
	case rdma == all:
		said = fmt.Sprintf("RDMA, all %d functions work", all)
	case rdma > 0:
		said = fmt.Sprintf("RDMA, %d of %d halves work", rdma, all)
	case c.count(TCP) > 0:
		said = "TCP only"
	default:
		said = "a node answers, but no other packet passes"
	}
	differ := ""
	for _, h := range c.Halves {
		if h.MTU[0] != h.MTU[1] && h.MTU[0] > 0 && h.MTU[1] > 0 {
			differ = fmt.Sprintf("; the MTU of %s at %s is %d, of %s at %s %d", h.Ports[0], c.Ends[0].Node, h.MTU[0], h.Ports[1], c.Ends[1].Node, h.MTU[1])
		}
	}
	if c.Why != "" {
		said += ": " + c.Why
	}
	return said + differ
}

// Ways says through whom two nodes reach each other.
func (a *Apart) Ways() string {
	if len(a.Through) == 0 {
		return "and nothing leads from one to the other"
	}
	var ways []string
	for _, way := range a.Through {
		ways = append(ways, strings.Join(way, " and "))
	}
	return "through " + strings.Join(ways, ", or ")
}

func list(ends []End) string {
	var names []string
	for _, e := range ends {
		names = append(names, e.String())
	}
	return strings.Join(names, ", ")
}
