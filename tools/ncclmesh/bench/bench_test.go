package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tools/ncclmesh/topo"
)

// tree writes files below a directory of the test's; "-> target" is a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, ok := strings.CutPrefix(content, "-> "); err == nil && ok {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A job on this node is seen, by what it has mapped or by what it shows; one of another node is none of ours.
func TestBusy(t *testing.T) {
	const mapped = "7f00 r-xp /usr/lib/libnccl-net-mesh.so\n"
	tests := []struct {
		name string
		proc map[string]string
		want []string
	}{
		{"nothing", map[string]string{"self/ns/net": "-> net:[1]", "7/maps": "libc.so.6\n", "7/ns/net": "-> net:[1]"}, nil},
		{"a job", map[string]string{"self/ns/net": "-> net:[1]", "7/maps": mapped, "7/ns/net": "-> net:[1]", "8/maps": mapped, "8/ns/net": "-> net:[1]"},
			[]string{"a job has the plugin loaded (process 7, 8)"}},
		{"another node's", map[string]string{"self/ns/net": "-> net:[1]", "7/maps": mapped, "7/ns/net": "-> net:[2]"}, nil},
		{"somebody else's", map[string]string{"self/ns/net": "-> net:[1]", "net/unix": "Num RefCount Protocol Flags Type St Inode Path\n" +
			"0000: 00000002 00000000 00010000 0001 01 4711 @ncclmesh/00ff\n" +
			"0001: 00000003 00000000 00000000 0001 03 4712 @ncclmesh/00ff\n" + // somebody looks at it
			"0002: 00000002 00000000 00010000 0001 01 4713 /run/ncclmesh/\n"},
			[]string{"1 processes show counters of the mesh (@ncclmesh/ in /proc/net/unix)"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := host{tree(t, tt.proc), t.TempDir()}
			if diff := cmp.Diff(tt.want, h.busy()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What other programs take of the processors is told where hardly any is idle. The agents at both ends of a flow are no others, be
// they on one machine or on two.
func TestCrowded(t *testing.T) {
	for _, tt := range []struct {
		name, stat, boot string
		want             float64
	}{
		{"half is idle", "cpu  200 0 0 1000 0 0 0 0 0 0\ncpu0 1 1 1 1", "b", 0},
		{"none is idle", "cpu  150 80 10 908 2 5 5 0 900 0\n", "b", 0.75},
		{"none is idle, and the peer is here", "cpu  150 80 10 908 2 5 5 0 900 0\n", "a", 0.25},
		{"nothing is known", "", "b", 0},
	} {
		before := host{tree(t, map[string]string{"stat": "cpu  100 0 0 900 0 0 0 0 0 0\n"}), ""}.processor()
		h := host{tree(t, map[string]string{"stat": tt.stat, "sys/kernel/random/boot_id": "a\n"}), ""}
		after := h.processor()
		if before.all != 10*time.Second || before.idle != 9*time.Second {
			t.Errorf("%+v", before)
		}
		before.own, after.own = 0, 300*time.Millisecond
		got := after.since(before, h.boot()).crowded(usage{Own: 0.5, Boot: tt.boot})
		if math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Over RDMA it is known what a cable should carry; what is below is marked, and fails the call.
func TestBelow(t *testing.T) {
	way := func(rdma bool) [2][]Way { return [2][]Way{{{RDMA: rdma}}, {{RDMA: rdma}}} }
	tests := []struct {
		name string
		link Link
		want []string
	}{
		{"fine", Link{Forth: 80, Back: 76, Both: 151, Allowed: 100, ways: way(true)}, []string{}},
		{"one way", Link{Forth: 80, Back: 74, Both: 151, Allowed: 100, ways: way(true)}, []string{"back"}},
		{"both ways", Link{Forth: 80, Back: 76, Both: 140, Allowed: 100, ways: way(true)}, []string{"both"}},
		{"all", Link{Forth: 8, Back: 7, Both: 14, Allowed: 100, ways: way(true)}, []string{"forth", "back", "both"}},
		{"not known", Link{Forth: 8, Back: 7, Both: 14, ways: way(true)}, []string{}},
		{"sockets", Link{Forth: 8, Back: 7, Both: 14, Allowed: 100, ways: way(false)}, []string{}},
		{"other programs take the processors", Link{Forth: 8, Back: 7, Both: 14, Allowed: 100, Crowded: [2]float64{0, 0.7}, ways: way(true)}, []string{}},
		{"through others", Link{Forth: 8, Back: 7, Both: 14, Allowed: 100}, []string{}},
	}
	for _, tt := range tests {
		tt.link.judge()
		if diff := cmp.Diff(tt.want, tt.link.Below); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		r := LinkReport{Links: []Link{tt.link}}
		var b strings.Builder
		if err := r.WriteText(&b); err != nil || strings.Count(b.String(), mark) != len(tt.want) {
			t.Errorf("%s: %v\n%s", tt.name, err, &b)
		}
		if err := r.Err(); (err == nil) != (len(tt.want) == 0) {
			t.Errorf("%s: %v", tt.name, err)
		}
		busy := strings.Count(b.String(), unclear)
		if want := map[bool]int{true: 1 + 3}[tt.link.crowded()]; busy != want { // a line that explains it, and three rates
			t.Errorf("%s: %d rates are unclear, want %d:\n%s", tt.name, busy, want, &b)
		}
	}
}

// Ports count in words of four bytes, both ways together; a counter that cannot be read does not count.
func TestTraffic(t *testing.T) {
	h := host{"", tree(t, map[string]string{
		"class/infiniband/m0/ports/1/counters/port_rcv_data":  "1000\n",
		"class/infiniband/m0/ports/1/counters/port_xmit_data": "500\n",
		"class/infiniband/m1/ports/2/counters/port_xmit_data": "N/A\n",
	})}
	if diff := cmp.Diff(map[string]int64{"m0:1": 6000}, h.traffic()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMemory(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal: 9 kB\nMemAvailable:    8192000 kB\n": 1024000 << 10,
		"MemTotal: 9 kB\n": 64 << 20,
	} {
		if got := (host{tree(t, map[string]string{"meminfo": text}), ""}).memBytes(); got != want {
			t.Errorf("%q leaves %d, want %d", text, got, want)
		}
	}
}

// The parts of a buffer are all of it, each byte once.
func TestChunks(t *testing.T) {
	for _, n := range []int{2, 3, 7} {
		for _, size := range []int{1, 4} {
			for _, bytes := range []int{4, 8, 40, 4096} {
				at := 0
				for i := range n {
					x := &turn{ring: &ring{}, bytes: bytes, n: n}
					off, end := x.chunk(i-n, size)
					if off != at || end < off || off%size > 0 {
						t.Fatalf("part %d of %d of %d bytes is from %d to %d", i, n, bytes, off, end)
					}
					at = end
				}
				if at != bytes {
					t.Fatalf("%d parts of %d bytes end at %d", n, bytes, at)
				}
			}
		}
	}
}

// Whatever has arrived wrong is counted, in every kind.
func TestContents(t *testing.T) {
	const n, bytes = 3, 48
	for _, kind := range Kinds {
		turns := make([]*turn, n)
		for rank := range turns {
			own, err := newMemory(bytes)
			if err != nil {
				t.Fatal(err)
			}
			other, err := newMemory(bytes)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := errors.Join(own.free(), other.free()); err != nil {
					t.Error(err)
				}
			}()
			turns[rank] = &turn{ring: &ring{rank: rank}, bytes: bytes, n: n, own: own, other: other}
			turns[rank].fill(kind)
		}
		deliver(kind, turns)
		for rank, x := range turns {
			if w := x.wrong(kind); w != 0 {
				t.Errorf("%s: %d wrong at rank %d", kind, w, rank)
			}
			at := x.other
			if kind == AllReduce {
				at = x.own
			}
			at.Bytes()[bytes-1] ^= 0x80
			if w := x.wrong(kind); w != 1 {
				t.Errorf("%s: %d wrong at rank %d after one byte was changed", kind, w, rank)
			}
		}
	}
}

// deliver does what the connections do.
func deliver(kind string, turns []*turn) {
	n := len(turns)
	switch kind {
	case AllReduce:
		for rank, x := range turns {
			copy(x.other.Bytes(), turns[(rank+1)%n].own.Bytes()[:x.bytes])
		}
		before := make([][]byte, n)
		for rank, x := range turns {
			before[rank] = bytes.Clone(x.own.Bytes()[:x.bytes])
		}
		for rank, x := range turns {
			for d := 1; d < n; d++ {
				copy(x.other.Bytes(), before[(rank+d)%n])
				x.add(0, x.bytes)
			}
		}
	case AllToAll:
		for rank, x := range turns {
			for from, y := range turns {
				off, end := x.chunk(from, 1)
				at, _ := x.chunk(rank, 1)
				copy(x.other.Bytes()[off:end], y.own.Bytes()[at:at+end-off])
			}
		}
	case SendRecv:
		for _, x := range turns {
			copy(x.other.Bytes(), turns[x.prev()].own.Bytes()[:x.bytes])
		}
	}
}

func TestLinkText(t *testing.T) {
	r := &LinkReport{Schema: LinkSchema, Bytes: 4 << 20, Links: []Link{
		{Ends: [2]string{"a:p0", "b:p1"}, Over: "f0 – f1", Forth: 97.1, Back: 96, Both: 190.25, Allowed: 98, Median: 3.61, P99: 9},
		{Ends: [2]string{"a", "c"}, Over: "through b", Error: "connect: refused"},
		{Ends: [2]string{"a:p0", "d:p0"}, Over: "f0 – f0", Wrong: 3},
	}}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := `# Gb/s of payload in messages of 4 MiB; the time of 8 bytes is one way
# ALLOWED is what link and PCIe leave, one way
LINK         OVER            →      ←    BOTH  ALLOWED  8 B µs  p99 µs  #wrong
a:p0 – b:p1  f0 – f1     97.10  96.00  190.25     98.0     3.6     9.0       0
a – c        through b  failed
a:p0 – d:p0  f0 – f0      0.00   0.00    0.00        ?     0.0     0.0       3
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	long := &LinkReport{Bytes: 1 << 20, Links: []Link{
		{Ends: [2]string{"spark-1:p0", "spark-2:p1"}, Over: "enp1s0f0np0 – enp1s0f1np1", Forth: 111.9, Back: 111.7, Both: 194, Allowed: 123, Median: 3.6, P99: 9},
		{Ends: [2]string{"spark-1:p0", "spark-2:p1"}, Over: "enP2p1s0f0np0 – enP2p1s0f1np1", Forth: 111.9, Back: 111.7, Both: 194, Allowed: 123, Median: 3.6, P99: 9},
		{Ends: [2]string{"spark-1", "spark-3"}, Over: "through spark-2", Error: "refused"},
	}}
	text.Reset()
	if err := long.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want = `# Gb/s of payload in messages of 1 MiB; the time of 8 bytes is one way
# ALLOWED is what link and PCIe leave, one way
LINK, OVER                           →      ←   BOTH ALLOWED 8 B µs p99 µs #wrong
spark-1:p0 – spark-2:p1
  enp1s0f0np0 – enp1s0f1np1     111.90 111.70 194.00   123.0    3.6    9.0      0
  enP2p1s0f0np0 – enP2p1s0f1np1 111.90 111.70 194.00   123.0    3.6    9.0      0
spark-1 – spark-3
  through spark-2               failed
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("names too long for one line (-want +got):\n%s", diff)
	}
	wantErr := "a – c over through b: connect: refused\na:p0 – d:p0 over f0 – f0: 3 bytes arrived wrong"
	if err := r.Err(); err == nil || err.Error() != wantErr {
		t.Errorf("%v", err)
	}
	wellFormed(t, r.WriteSVG)
}

func TestCollText(t *testing.T) {
	r := &CollReport{Ranks: []string{"a", "b"}, Sweep: Sweep[CollRow]{Rows: []CollRow{
		{AllReduce, 8, 4.2, 0, 0, 0}, {AllReduce, 1 << 20, 123.4, 8.5, 8.5, 0}, {SendRecv, 8, 10234, 0.001, 0.001, 2},
	}}}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	want := `# 2 ranks: a, b; host memory, sums on the processor
#         size        count     type  redop  root      time   algbw   busbw #wrong
#          (B)   (elements)                            (us)  (GB/s)  (GB/s)
# all_reduce
             8            2    float    sum    -1      4.20    0.00    0.00      0
       1048576       262144    float    sum    -1     123.4    8.50    8.50      0
# sendrecv
             8            8    uint8   none    -1     10234    0.00    0.00      2
# Out of bounds values : 2 FAILED
# Avg bus bandwidth    : 2.834
`
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := r.Err(); err == nil || err.Error() != "sendrecv of 8 bytes: 2 elements are wrong" {
		t.Errorf("%v", err)
	}
	wellFormed(t, r.WriteSVG)
	wellFormed(t, (&CollReport{Sweep: Sweep[CollRow]{Rows: r.Rows[:1]}}).WriteSVG)
	if err := (&CollReport{}).WriteSVG(io.Discard); !errors.Is(err, errNothing) {
		t.Errorf("%v", err)
	}
}

func wellFormed(t *testing.T, write func(io.Writer) error) {
	t.Helper()
	var svg bytes.Buffer
	if err := write(&svg); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(svg.String(), "<svg") {
		t.Errorf("%.100q is no picture", svg.String())
	}
	for d := xml.NewDecoder(&svg); ; {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// What is measured: each half that is proved as well as its cable is, the cable whole, and ways through others.
func TestLinks(t *testing.T) {
	end := func(node string) topo.End { return topo.End{Node: node, Cage: "p0"} }
	m := &topo.Map{
		Nodes: []topo.Node{{Name: "a"}, {Name: "b"}, {Name: "c"}},
		Cables: []topo.Cable{
			{Ends: [2]topo.End{end("a"), end("b")}, Halves: []topo.Half{
				{Ports: [2]string{"f0", "g0"}, State: topo.RDMA}, {Ports: [2]string{"f1", "g1"}, State: topo.RDMA}, {Ports: [2]string{"f2", "g2"}, State: topo.TCP}}},
			{Ends: [2]topo.End{end("b"), end("c")}, Halves: []topo.Half{{Ports: [2]string{"h0", "i0"}, State: topo.TCP}, {Ports: [2]string{"h1", "i1"}, State: topo.Heard}}},
		},
		Apart: []topo.Apart{{Nodes: [2]string{"a", "c"}, Through: [][]string{{"b"}}}, {Nodes: [2]string{"a", "d"}}},
	}
	var got []string
	for _, l := range links(m) {
		got = append(got, fmt.Sprint(l.Ends, " ", l.Over, " ", l.nodes, " ", l.ways[1]))
	}
	want := []string{
		"[a:p0 b:p0] f0 – g0 [0 1] [{g0 f0 true}]",
		"[a:p0 b:p0] f1 – g1 [0 1] [{g1 f1 true}]",
		"[a:p0 b:p0] all 2 together [0 1] [{g0 f0 true} {g1 f1 true}]",
		"[b:p0 c:p0] h0 – i0 [1 2] [{i0 h0 false}]",
		"[a c] through b [0 2] []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
