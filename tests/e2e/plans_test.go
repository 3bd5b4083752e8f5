package e2e

import (
	"regexp"
	"slices"
	"testing"
)

// Address plans and GID tables that name no cable work with no setting, and connections use the lanes that they should, no more and no fewer.
func TestPlans(t *testing.T) {
	tests := []struct {
		name     string
		topology string
		lanes    []string // of the connection from a to b
	}{
		{"no configured address at all", `
			port a r0 netdev p0
			port a r1 netdev p1
			port b r0 netdev p0
			port b r1 netdev p1
			link a:r0 b:r0
			link a:r1 b:r1`,
			[]string{"r0:1 -> r0:1", "r1:1 -> r1:1"}},
		{"GID tables that differ, RoCE v1 before v2", `
			port a r0 netdev p0 addr 10.1.1.1/24 addr 10.9.9.9/24 addr 192.168.1.1/24 gids mlx5
			port b r0 netdev p0 addr 192.168.1.2/24 gids rxe
			link a:r0 b:r0`,
			[]string{"r0:1 -> r0:1"}},
	}
	lane := regexp.MustCompile(`lane \d+ (\S+ -> \S+) `)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t, tt.topology)
			j := f.start(spec{args: []string{"--work", "sendrecv,allreduce", "--max", "1M", "--factor", "64", "--iters", "1"}}).ok()
			line := j.await("a", `NET/Mesh : a -> b conn \d+: lane`)
			var got []string
			for _, m := range lane.FindAllStringSubmatch(line+" ", -1) {
				got = append(got, m[1])
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.lanes) {
				j.errorf("lanes %q, want %q", got, tt.lanes)
			}
		})
	}
}

// A cable whose ends differ in MTU is told of once, by what its ports are called.
func TestMTU(t *testing.T) {
	t.Parallel()
	j := newFabric(t, `
		port a r0 netdev p0 addr 192.168.1.1/24 mtu 4200
		port b r0 netdev p0 addr 192.168.1.2/24 mtu 1500
		link a:r0 b:r0`).start(spec{args: []string{"--work", "sendrecv", "--max", "1M", "--factor", "64", "--iters", "1"}}).ok()
	j.once("a", `MTU differs between the ends of a cable: `)
	j.once("a", `MTU differs between the ends of a cable: r0:1 \(p0\) on a has 4096, r0:1 \(p0\) on b has 1024; using 1024\. Set`)
}
