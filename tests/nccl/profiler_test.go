package nccl

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// A profiler that wants network events is given those of each lane's parts, as children of their steps, and as many bytes as were sent
// and received; one that does not, none.
func TestProfiler(t *testing.T) {
	require.Full(t, "tests/netdriver TestProfiled and tests/e2e TestProfiler")
	line := regexp.MustCompile(`(?m)^profiler: (\d+) of queue pairs, (\d+) of sockets, (\d+) bytes, (\d+) wrong$`)
	for _, v := range Versions {
		if !slices.Contains(v.APIs, 11) {
			continue // NCCL cannot take events in test
		}
		for _, tt := range []struct {
			name  string
			lanes Lanes
			env   []string
			kind  int // that there are events of
		}{
			{"queue pairs", AllLanes[0], nil, 1},
			{"sockets", AllLanes[1], nil, 2},
			{"no network events wanted", AllLanes[0], []string{"WITHOUT_NETWORK=1"}, 0},
		} {
			t.Run(v.Name+"/"+tt.name, func(t *testing.T) {
				rank := program(t, v)
				f := up(t, tt.lanes.Mesh(fabric.Triangle()).Topology())
				steps := choice{"", "Ring", "Simple"}.session([]string{"check allreduce f32 sum 1000000", "check sendrecv f32 sum 1000000"})
				j := tt.lanes.Job(rank, plugin(), steps...)
				j.Env = slices.Concat(j.Env, tt.env, []string{"NCCL_PROFILER_PLUGIN=" + filepath.Join(filepath.Dir(rank), "profiler.so")})
				for _, r := range run(t, f, j) {
					m := line.FindStringSubmatch(r.Output)
					if m == nil {
						t.Fatalf("%s: the profiler was not used\n%s", r.Node, r.Output)
					}
					var n [5]int
					for i := 1; i < len(m); i++ {
						n[i], _ = strconv.Atoi(m[i]) // digits
					}
					t.Logf("%s: %s", r.Node, m[0])
					// Of three shares of 4 MB four are sent and four received, and a message of 4 MB each way; shares are not quite even.
					const bytes, uneven = 2 * (4*4000000/3 + 4000000), 1000
					switch {
					case n[4] != 0,
						(n[1] > 0) != (tt.kind == 1), (n[2] > 0) != (tt.kind == 2),
						tt.kind > 0 && (n[3] < bytes-uneven || n[3] > bytes+uneven), tt.kind == 0 && n[3] != 0:
						t.Errorf("%s: %s; want %d bytes, where events are wanted", r.Node, m[0], bytes)
					}
				}
			})
		}
	}
}
