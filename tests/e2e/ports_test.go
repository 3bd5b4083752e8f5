package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// sockets are those of TCP that the ranks on a node have, as the local and the remote port of each; not those with which
// the ranks find each other.
func (j *job) sockets(node string) (ports [][2]int) {
	j.f.t.Helper()
	out, err := j.f.command(node, "ss", "-Htanp").CombinedOutput()
	if err != nil {
		j.fatalf("ss: %v\n%s", err, out)
	}
	owned := regexp.MustCompile(`(?m)^\S+ +\d+ +\d+ +\S+:(\d+) +\S+:(\d+|\*) .*"netdriver"`)
	for _, m := range owned.FindAllStringSubmatch(string(out), -1) {
		local, _ := strconv.Atoi(m[1])
		remote, _ := strconv.Atoi(m[2]) // 0 of a listener's *
		if meeting := 29500 + j.number; local != meeting && remote != meeting {
			ports = append(ports, [2]int{local, remote})
		}
	}
	return ports
}

// All TCP ports of a job are of the range that the user names: those that lanes, relayed ones too, sessions and neighbours
// come to, and those that they are dialled from.
func TestPortRange(t *testing.T) {
	require.Full(t, "transport/control TestPortRange, transport/dataport TestPortRange and transport/discovery TestAskedFromRange")
	t.Parallel()
	const first, last = 40000, 40199
	f := newFabric(t, `
		netif a next addr 192.168.1.1/24
		netif b prev addr 192.168.1.2/24
		netif b next addr 192.168.2.1/24
		netif c prev addr 192.168.2.2/24
		link a:next b:prev
		link b:next c:prev`)
	j := f.start(spec{env: []string{auto, fmt.Sprintf("NCCL_MESH_PORTS=%d-%d", first, last)}, args: f.endless("--work soak --max 64K")})
	j.moves()
	for _, node := range f.Nodes {
		listeners, connected := 0, 0
		for _, p := range j.sockets(node) {
			if p[1] == 0 {
				listeners++
			} else {
				connected++
			}
			for _, port := range p {
				if port != 0 && (port < first || port > last) {
					j.errorf("node %s has a socket from port %d to port %d", node, p[0], p[1])
				}
			}
		}
		if listeners < 2 || connected < 4 {
			j.errorf("node %s has %d listeners and %d connections", node, listeners, connected)
		}
	}
	j.enough().ok()
	if !strings.Contains(j.logs(), "no cable joins a and c") {
		j.errorf("nothing was relayed")
	}
}
