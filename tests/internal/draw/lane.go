package draw

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

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

// Table lists lanes, one line each, in the order of their nodes.
func Table(lanes []Lane) string {
	if len(lanes) == 0 {
		return "  (the plugin named none)\n"
	}
	sorted := slices.SortedFunc(slices.Values(lanes), func(a, b Lane) int {
		return strings.Compare(a.From+" "+a.To+" "+a.Local, b.From+" "+b.To+" "+b.Local)
	})
	var b strings.Builder
	for _, l := range sorted {
		fmt.Fprintf(&b, "  %-8s -> %-8s  %-10s -> %-10s  %s\n", l.From, l.To, l.Local, l.Remote, l.Via)
	}
	return b.String()
}
