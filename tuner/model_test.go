package tuner

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Costs with which times can be told in the head.
var simple = Costs{
	Base: 100, Hop: 1, Relay: 2, Step: [NumProtos]float64{LL: 3, LL128: 5, Simple: 9}, Message: 10,
	Lane: 50, Lanes: 2, Channel: math.Inf(1), TreeRate: 1, PATRate: 1,
}

func TestTime(t *testing.T) {
	full, ring := Mesh{Nodes: 4, Topology: Full}, Mesh{Nodes: 4, Topology: RingOfCables, Relay: true}
	tests := []struct {
		name  string
		mesh  Mesh
		f     Func
		how   Choice
		bytes float64
		want  float64
	}{
		{"six steps", full, AllReduce, Choice{Ring, LL, 1}, 0, 100 + 6*4},
		{"three steps", full, AllGather, Choice{Ring, Simple, 1}, 0, 100 + 3*10},
		{"a message more for each channel and step", full, AllReduce, Choice{Ring, LL, 3}, 0, 100 + 6*4 + 2*6*10},
		{"two for Simple", full, AllReduce, Choice{Ring, Simple, 3}, 0, 100 + 6*10 + 2*12*10},
		{"bytes go one and a half times over a ring's cable", full, AllReduce, Choice{Ring, Simple, 1}, 1e6, 160 + 1.5e6/100},
		{"LL doubles them, in messages of 32 KiB", full, AllReduce, Choice{Ring, LL, 1}, 32 << 10 * 8, 124 + 6*10 + 2*1.5*(32<<10*8)/100},
		{"a tree has two levels up and down", full, AllReduce, Choice{Tree, LL, 1}, 0, 100 + 4*4},
		{"the top level is two hops of a ring", ring, AllReduce, Choice{Tree, LL, 1}, 0, 100 + 2*4 + 2*(3+2*1+2)},
		{"PAT has two steps", full, AllGather, Choice{PAT, Simple, 1}, 0, 100 + 2*10},
		{"one of them two hops", ring, AllGather, Choice{PAT, Simple, 1}, 0, 100 + 10 + (9 + 2 + 2)},
		{"a chain of three", full, Broadcast, Choice{Ring, LL, 1}, 0, 100 + 3*4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := NewModel(tt.mesh, simple).Time(tt.f, tt.how, tt.bytes, Chunk)
			if math.Abs(got-tt.want) > 1e-6*tt.want {
				t.Errorf("%g µs, want %g", got, tt.want)
			}
		})
	}
}

// A chunk more fills the pipeline at each step but the first.
func TestChunks(t *testing.T) {
	m := NewModel(Mesh{Nodes: 4, Topology: Full}, simple)
	how := Choice{Ring, Simple, 1}
	few, many := m.Time(Broadcast, how, 1<<20, 512<<10), m.Time(Broadcast, how, 1<<20, 64<<10)
	fill := float64(2 * (512 - 64) << 10 / 100.0)
	if got, want := few-many, fill-float64(16-2)*simple.Message; math.Abs(got-want) > 1 {
		t.Errorf("small chunks save %g µs, want %g", got, want)
	}
	spark := NewModel(Mesh{Nodes: 4}, Spark)
	for _, f := range []Func{AllReduce, AllGather, ReduceScatter} {
		if got := spark.ChunkOf(f, Ring, Simple, 1<<20); got != 0 {
			t.Errorf("%v: chunk %d of a ring, in which nothing is passed on before it is whole", f, got)
		}
	}
	for bytes, want := range map[float64]int{64 << 10: Chunk, 1 << 20: 64 << 10, 8 << 20: 256 << 10, 1 << 30: Chunk} {
		if got := spark.ChunkOf(Broadcast, Ring, Simple, bytes); got != want {
			t.Errorf("chunk of a broadcast of %g bytes: %d, want %d", bytes, got, want)
		}
	}
}

// The published figures that the costs were fitted to.
func TestPublished(t *testing.T) {
	tests := []struct {
		name   string
		nodes  int
		how    Choice
		bytes  float64
		want   float64
		within float64 // of the figure
	}{
		{"2 nodes", 2, Choice{Ring, LL, 1}, 8 << 10, 30, 0.15},
		{"ring of 4, LL", 4, Choice{Ring, LL, 1}, 4 << 10, 42.7, 0.1},
		{"ring of 4, Simple", 4, Choice{Ring, Simple, 1}, 4 << 10, 58.3, 0.1},
		{"3 nodes, 64 channels", 3, Choice{Ring, Simple, 64}, 512 << 10, 1195, 0.1},
		{"64 MiB, 8 channels", 3, Choice{Ring, Simple, 8}, 64 << 20, 4.0 / 3 * (64 << 20) / 16700, 0.1},
		{"64 MiB, 16 channels", 3, Choice{Ring, Simple, 16}, 64 << 20, 4.0 / 3 * (64 << 20) / 20600, 0.1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := NewModel(Mesh{Nodes: tt.nodes}, Spark).Time(AllReduce, tt.how, tt.bytes, Chunk)
			if math.Abs(got-tt.want) > tt.within*tt.want {
				t.Errorf("%.1f µs, published %.1f", got, tt.want)
			}
		})
	}
}

func TestPatterns(t *testing.T) {
	tests := []struct {
		name string
		mesh Mesh
		f    Func
		a    Algo
		want pattern
	}{
		{"ring", Mesh{Nodes: 3}, AllReduce, Ring,
			pattern{hops: []int{1, 1, 1, 1}, copied: 4.0 / 3, carried: 4.0 / 3, messages: 4, reachable: true}},
		{"tree of two", Mesh{Nodes: 2}, AllReduce, Tree,
			pattern{hops: []int{1, 1}, copied: 1, carried: 1, pipelined: true, messages: 1, reachable: true}},
		{"tree of four, of which no diagonal can be had", Mesh{Nodes: 4}, AllReduce, Tree,
			pattern{hops: []int{1, 2, 2, 1}, copied: 2, carried: 2.5, pipelined: true, messages: 3}},
		{"line: the last has no cable to the first", Mesh{Nodes: 3, Topology: LineOfCables, Relay: true}, AllGather, Ring,
			pattern{hops: []int{2, 2}, copied: 2.0 / 3, carried: 4.0 / 3, messages: 2, reachable: true}},
		{"line: a chain needs none", Mesh{Nodes: 3, Topology: LineOfCables}, Broadcast, Ring,
			pattern{hops: []int{1, 1}, copied: 1, carried: 1, pipelined: true, messages: 1, reachable: true}},
		{"PAT of five", Mesh{Nodes: 5, Relay: true}, AllGather, PAT,
			pattern{hops: []int{1, 2, 1}, copied: 0.8, carried: 1, messages: 3, reachable: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := patternOf(tt.mesh, tt.f, tt.a)
			near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(pattern{}), near); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A tree is one: each node reaches the root, and no node has more than two children.
func TestTrees(t *testing.T) {
	for n := 2; n <= 64; n++ {
		children := make([]int, n)
		for r := 1; r < n; r++ {
			up := parent(r, n)
			if up < 0 || up >= n || up == r {
				t.Fatalf("%d nodes: the parent of %d is %d", n, r, up)
			}
			children[up]++
			steps := 0
			for at := r; at != 0; at = parent(at, n) {
				if steps++; steps > n {
					t.Fatalf("%d nodes: %d does not reach the root", n, r)
				}
			}
		}
		for r, c := range children {
			if c > 2 || r == 0 && c != 1 {
				t.Errorf("%d nodes: %d has %d children", n, r, c)
			}
		}
	}
}

func TestHops(t *testing.T) {
	tests := []struct {
		mesh           Mesh
		from, to, want int
	}{
		{Mesh{Nodes: 3}, 0, 2, 1},
		{Mesh{Nodes: 4}, 0, 2, 2},
		{Mesh{Nodes: 4}, 3, 0, 1},
		{Mesh{Nodes: 4, Topology: Full}, 0, 2, 1},
		{Mesh{Nodes: 8}, 1, 5, 4},
		{Mesh{Nodes: 8}, 6, 1, 3},
		{Mesh{Nodes: 4, Topology: LineOfCables}, 3, 0, 3},
		{Mesh{Nodes: 4, Topology: LineOfCables}, 0, 3, 3},
		{Mesh{Nodes: 3, Topology: RingOfCables}, 0, 2, 1},
	}
	for _, tt := range tests {
		if got := tt.mesh.Hops(tt.from, tt.to); got != tt.want {
			t.Errorf("%+v: %d hops from %d to %d, want %d", tt.mesh, got, tt.from, tt.to, tt.want)
		}
	}
}

func TestParseTopology(t *testing.T) {
	for topology := Auto; topology <= LineOfCables; topology++ {
		if got, err := ParseTopology(topology.String()); got != topology || err != nil {
			t.Errorf("%v: %v, %v", topology, got, err)
		}
	}
	if got, err := ParseTopology("Ring"); got != RingOfCables || err != nil {
		t.Errorf("Ring: %v, %v", got, err)
	}
	for _, bad := range []string{"", "star", "ring ", "1"} {
		if _, err := ParseTopology(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
