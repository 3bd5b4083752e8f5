package lab

import (
	"fmt"
	"regexp"
	"strings"
)

// Draw returns a picture of a triangle.
func Draw(m Mesh) string {
	ab, bc, ca := m.Cables[0], m.Cables[1], m.Cables[2]
	port := func(e End) string { a := e.Addr.As4(); return fmt.Sprintf("%s .%d", e.Device, a[3]) }
	trop := func(e End) string { a := e.Addr.As4(); return fmt.Sprintf(".%d %s", a[3], e.Device) }
	box := func(n int) string { return fmt.Sprintf("|   %-8s |", Host(m.Machines[n])) }
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

// A Lane is what the plugin says that a connection uses.
type Lane struct {
	From, To           string // nodes
	Local, Remote, Via string // ports; what else the line says
}

// What the plugin logs at INFO for every connection:
// "NET/Mesh : node-a -> node-b conn 3: lane 0 rxe100:1 -> rxe100:1 mtu 4096 gid 1, lane 1 ...".
var (
	connLine = regexp.MustCompile(`NET/Mesh : (\S+) -> (\S+) conn \S+: (lane .*)`)
	laneText = regexp.MustCompile(`lane \d+ ([^\s,]+) -> ([^\s,]+)([^,]*)`)
)

// ParseLanes reads a log line of the plugin; nil when it is about something else.
func ParseLanes(line string) []Lane {
	conn := connLine.FindStringSubmatch(line)
	if conn == nil {
		return nil
	}
	var lanes []Lane
	for _, f := range laneText.FindAllStringSubmatch(conn[3], -1) {
		lanes = append(lanes, Lane{conn[1], conn[2], f[1], f[2], strings.TrimSpace(f[3])})
	}
	return lanes
}
