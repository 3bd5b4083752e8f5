package draw

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Cable joins two hosts of a triangle and is a subnet of its own.
type Cable struct {
	Net  netip.Prefix
	Ends [2]Port
}

// A Port is one end of a cable.
type Port struct {
	Name string
	Addr netip.Addr // IPv4
}

// Triangle returns a picture of three hosts and the cables from the first to the
// second, from there to the third, and from there to the first.
func Triangle(hosts [3]string, cables [3]Cable) string {
	ab, bc, ca := cables[0], cables[1], cables[2]
	port := func(p Port) string { return fmt.Sprintf("%s .%d", p.Name, p.Addr.As4()[3]) }
	trop := func(p Port) string { return fmt.Sprintf(".%d %s", p.Addr.As4()[3], p.Name) }
	box := func(n int) string { return fmt.Sprintf("|   %-8s |", hosts[n]) }
	const bar = "+------------+"
	lines := []string{
		fmt.Sprintf("%20s%s", "", bar),
		fmt.Sprintf("%20s%s", "", box(0)),
		fmt.Sprintf("%20s%s", "", bar),
		fmt.Sprintf("%20s /        \\ %s", port(ab.Ends[0]), trop(ca.Ends[1])),
		fmt.Sprintf("%20s/          \\", ""),
		fmt.Sprintf("%18s /            \\ %s", ab.Net, ca.Net),
		fmt.Sprintf("%18s/              \\", ""),
		fmt.Sprintf("%16s /                \\ %s", port(ab.Ends[1]), trop(ca.Ends[0])),
		fmt.Sprintf("%8s%s          %s", "", bar, bar),
		fmt.Sprintf("%8s%s----------%s", "", box(1), box(2)),
		fmt.Sprintf("%8s%s          %s", "", bar, bar),
		fmt.Sprintf("%12s%-12s       %12s", "", port(bc.Ends[0]), trop(bc.Ends[1])),
		fmt.Sprintf("%19s%s", "", bc.Net),
	}
	return strings.Join(lines, "\n") + "\n"
}
