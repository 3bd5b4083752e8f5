package lab

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// TestRing is of four machines in a ring: opposite ones talk through those between them, by the kernel's own queue pairs on
// every hop. No lane may be a socket.
func TestRing(t *testing.T) {
	require.Full(t, "tests/lab TestTriangle and tests/nccl TestRings")
	s := newSession(t, Ring(), built()...)
	needBuilt(t)
	s.cfg.Env = map[string]string{"NCCL_MESH_TRANSPORT": "rdma", "NCCL_DEBUG": "INFO"}
	s.step(t, "all to all", s.opposite)
}

// opposite: an all-to-all of all four, in which each pair that shares no cable has lanes through the nodes beside it, and no
// other pair has. Somewhere both ways round are used at once: a node that is slow to answer costs a pair one of them, not the job.
func (s *session) opposite(t *testing.T, ctx context.Context, l *Lab) error {
	results, err := s.driverAt(t, ctx, l, s.nextPort(), "--work", "alltoall", "--min", "8", "--max", "2M", "--factor", "64", "--iters", "2", "--warmup", "0")
	if err != nil {
		return err
	}
	between := map[string][]string{"ac": {"b", "d"}, "bd": {"a", "c"}, "ca": {"b", "d"}, "db": {"a", "c"}}
	both := 0
	for _, r := range results {
		for _, to := range s.mesh.Machines {
			line := regexp.MustCompile(Host(r.Machine) + " -> " + Host(to) + ` conn \d+: lane .*`).FindString(r.Output)
			var through []string
			for _, lane := range strings.Split(line, ", lane ") {
				if _, via, ok := strings.Cut(lane, " relayed through "); ok {
					through = append(through, via)
				}
			}
			ways := between[r.Machine+to]
			switch {
			case line == "" || strings.Contains(line, "tcp"):
				err = fmt.Errorf("%s and %s: no lanes over RDMA: %q", Host(r.Machine), Host(to), line)
			case ways == nil && len(through) > 0, ways != nil && len(through) == 0, len(through) > len(ways):
				err = fmt.Errorf("%s and %s talk through %q, of %q", Host(r.Machine), Host(to), through, ways)
			case len(through) == 2:
				both++
			}
			if err != nil {
				return fmt.Errorf("%w:\n%s", err, outputs(results))
			}
			if ways != nil {
				t.Logf("%s -> %s through %s", Host(r.Machine), Host(to), strings.Join(through, ", "))
			}
		}
	}
	if both == 0 {
		return fmt.Errorf("no pair uses both ways round:\n%s", outputs(results))
	}
	return nil
}
