package nccl

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

func TestRow(t *testing.T) {
	row := Row{Version: "2.29.7", Lanes: "rdma", Table: "not logged"}
	for _, line := range []string{
		"vm:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin Mesh (v11)",
		"vm:1:1 [0] NCCL INFO NET/Mesh : port 0: rdma0:1 (p0) RoCE ACTIVE",
		"vm:1:1 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 4, bw 2.400000/2.400000, type LOC/PHB, sameChannels 1",
		"vm:1:1 [0] NCCL INFO NET/Mesh : node-a -> node-b conn 1: lane 0 rdma0:1 -> rdma1:1 mtu 4096 gid 3",
		"vm:1:1 [0] NCCL INFO 8 coll channels, 8 collnet channels, 0 nvls channels, 8 p2p channels, 4 p2p channels per peer",
		"init ms=12.5",
		"time allreduce f32 sum 2 us=41.5",
		"time allreduce f32 sum 3000000 us=4000.0",
	} {
		row.read(line, 3)
	}
	want := Row{Version: "2.29.7", Lanes: "rdma", Table: "v11", Channels: "8", Speed: "9.6", Connections: 1, Init: 12.5, Latency: 41.5, Bandwidth: 4000}
	if diff := cmp.Diff(want, row); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
}

func TestParseTime(t *testing.T) {
	tests := []struct {
		line string
		want Time
		ok   bool
	}{
		{"time allreduce f32 sum 1000 us=7.5", Time{"allreduce f32 sum 1000", 4000, 7.5}, true},
		{"time alltoall u8 sum 9 inplace us=1.0", Time{"alltoall u8 sum 9 inplace", 9, 1}, true},
		{"done rank 0: 3 checked", Time{}, false},
		{"time allreduce f32 sum many us=1.0", Time{}, false},
	}
	for _, tt := range tests {
		if got, ok := ParseTime(tt.line); ok != tt.ok || got != tt.want {
			t.Errorf("ParseTime(%q) = %v, %v, want %v, %v", tt.line, got, ok, tt.want, tt.ok)
		}
	}
}

func TestMedian(t *testing.T) {
	got := Median([]Row{
		{Version: "2", Init: 3, Latency: 30, Bandwidth: 1, LatencyRatio: 1.5, BandwidthRatio: 2},
		{Version: "2", Init: 1, Latency: 90, Bandwidth: 3, LatencyRatio: .5, BandwidthRatio: 3},
		{Version: "2", Init: 2, Latency: 60, Bandwidth: 2, LatencyRatio: 1, BandwidthRatio: 1},
	})
	want := Row{Version: "2", Init: 2, Latency: 60, Bandwidth: 2, LatencyRatio: 1, BandwidthRatio: 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("median (-want +got):\n%s", diff)
	}
}

// The table of docs/performance.md says what NCCL makes of the plugin today; its times are of the
// day that it names.
func TestPerformanceTable(t *testing.T) {
	require.Full(t, "tests/nccl TestRow")
	page, err := os.ReadFile(filepath.Join(fabric.Root(), "docs/performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _, err := CutTable(string(page))
	if err != nil {
		t.Fatal(err)
	}
	each(t, "", func(t *testing.T, rank string, l Lanes) {
		f := up(t, l.Mesh(fabric.Triangle()).Topology())
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		row, err := Measure(ctx, f, versionOf(rank), l.Job(rank, plugin()), l.Name, filepath.Join(f.Dir, "arm.xml"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(table, "\n"+row.Facts()) {
			t.Errorf("the table of docs/performance.md has no line that begins %q; run: go run ./tests/nccl/cmd/table -page docs/performance.md", row.Facts())
		}
	})
}
