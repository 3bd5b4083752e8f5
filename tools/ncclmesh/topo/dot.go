package topo

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// WriteDOT writes the map for Graphviz.
func (m *Map) WriteDOT(w io.Writer) error {
	var b strings.Builder
	b.WriteString("graph mesh {\n\tnode [shape=box, style=rounded];\n")
	for _, n := range m.Nodes {
		style := ""
		if n.Error != "" {
			style = ", color=red"
		}
		fmt.Fprintf(&b, "\t%s [label=%s%s];\n", strconv.Quote(n.Name), strconv.Quote(n.Name), style)
	}
	for _, c := range m.Cables {
		fmt.Fprintf(&b, "\t%s -- %s [taillabel=%s, headlabel=%s, label=%s, style=%s];\n",
			strconv.Quote(c.Ends[0].Node), strconv.Quote(c.Ends[1].Node), strconv.Quote(c.Ends[0].Cage), strconv.Quote(c.Ends[1].Cage),
			strconv.Quote(c.speed()), map[State]string{RDMA: "bold", TCP: "solid", Heard: "dashed", None: "dotted"}[c.best()])
	}
	for i, n := range m.Networks {
		fmt.Fprintf(&b, "\t%s [label=switch, shape=ellipse];\n", strconv.Quote(fmt.Sprintf("network %d", i)))
		for _, e := range n.Ends {
			fmt.Fprintf(&b, "\t%s -- %s [taillabel=%s];\n", strconv.Quote(e.Node), strconv.Quote(fmt.Sprintf("network %d", i)), strconv.Quote(e.Cage))
		}
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
