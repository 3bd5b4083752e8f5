package draw

import (
	"fmt"
	"strings"
)

// Ring returns a picture of hosts of which each has a cable to the next, and the last to
// the first: a square of four, else a list.
func Ring(hosts []string, cables []Cable) string {
	if len(hosts) == 4 {
		return square([4]string(hosts), [4]Cable(cables))
	}
	var b strings.Builder
	for i, c := range cables {
		fmt.Fprintf(&b, "  %-8s %8s ---- %v ---- %-8s %s\n", hosts[i], at(c.Ends[0]), c.Net, at(c.Ends[1]), hosts[(i+1)%len(hosts)])
	}
	return b.String()
}

// at is a port with the last byte of its address.
func at(p Port) string { return fmt.Sprintf("%s .%d", p.Name, p.Addr.As4()[3]) }

// square has the first host at its upper left, the others clockwise.
func square(hosts [4]string, cables [4]Cable) string {
	box := func(n int) string { return fmt.Sprintf("|   %-8s |", hosts[n]) }
	net := func(c Cable) string { return c.Net.String() }
	const bar = "+------------+"
	ab, bc, cd, da := cables[0], cables[1], cables[2], cables[3]
	row := func(left, right Port) string { return fmt.Sprintf("  %-8s%28s  ", at(left), at(right)) }
	edge := func(c Cable) string {
		n := net(c)
		dashes := 40 - len(n) - 2
		return strings.Repeat("-", dashes/2) + " " + n + " " + strings.Repeat("-", dashes-dashes/2)
	}
	lines := []string{
		"  " + bar + row(ab.Ends[0], ab.Ends[1]) + bar,
		"  " + box(0) + edge(ab) + box(1),
		"  " + bar + strings.Repeat(" ", 40) + bar,
		fmt.Sprintf("%8s | %51s | %s", at(da.Ends[1]), "", at(bc.Ends[0])),
		fmt.Sprintf("%8s | %-25s %25s |", "", net(da), net(bc)),
		fmt.Sprintf("%8s | %51s | %s", at(da.Ends[0]), "", at(bc.Ends[1])),
		"  " + bar + strings.Repeat(" ", 40) + bar,
		"  " + box(3) + edge(cd) + box(2),
		"  " + bar + row(cd.Ends[1], cd.Ends[0]) + bar,
	}
	return strings.Join(lines, "\n") + "\n"
}
