package draw

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTriangle(t *testing.T) {
	cable := func(net, a, b string) Cable {
		p := netip.MustParsePrefix(net)
		at := func(s string) Port {
			name, host, _ := strings.Cut(s, " ")
			return Port{name, netip.MustParseAddr(strings.TrimSuffix(p.Addr().String(), "0") + host)}
		}
		return Cable{p, [2]Port{at(a), at(b)}}
	}
	want := `
                    +------------+
                    |   spark    |
                    +------------+
               e0 .1 /        \ .2 e1
                    /          \
       10.0.0.0/24 /            \ 10.0.2.0/24
                  /              \
           e0 .2 /                \ .1 e1
        +------------+          +------------+
        |   flint    |----------|   node-c   |
        +------------+          +------------+
            e1 .1                     .2 e0
                   10.0.1.0/24
`
	got := Triangle([3]string{"spark", "flint", "node-c"},
		[3]Cable{cable("10.0.0.0/24", "e0 1", "e0 2"), cable("10.0.1.0/24", "e1 1", "e0 2"), cable("10.0.2.0/24", "e1 1", "e1 2")})
	if diff := cmp.Diff(want[1:], got); diff != "" {
		t.Errorf("picture (-want +got):\n%s", diff)
	}
}

func TestRing(t *testing.T) {
	ring := func(n int) (hosts []string, cables []Cable) {
		for i := range n {
			hosts = append(hosts, "node-"+string(rune('a'+i)))
			net := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)
			cables = append(cables, Cable{net, [2]Port{{"next", netip.AddrFrom4([4]byte{10, 0, byte(i), 1})}, {"prev", netip.AddrFrom4([4]byte{10, 0, byte(i), 2})}}})
		}
		return hosts, cables
	}
	const four = `
  +------------+  next .1                      prev .2  +------------+
  |   node-a   |------------- 10.0.0.0/24 --------------|   node-b   |
  +------------+                                        +------------+
 prev .2 |                                                     | next .1
         | 10.0.3.0/24                             10.0.1.0/24 |
 next .1 |                                                     | prev .2
  +------------+                                        +------------+
  |   node-d   |------------- 10.0.2.0/24 --------------|   node-c   |
  +------------+  prev .2                      next .1  +------------+
`
	const two = `
  node-a    next .1 ---- 10.0.0.0/24 ---- prev .2  node-b
  node-b    next .1 ---- 10.0.1.0/24 ---- prev .2  node-a
`
	for n, want := range map[int]string{2: two, 4: four} {
		if diff := cmp.Diff(want[1:], Ring(ring(n))); diff != "" {
			t.Errorf("picture of %d (-want +got):\n%s", n, diff)
		}
	}
}

func TestParseLanes(t *testing.T) {
	const mesh = "node-a:12:14 [0] NCCL INFO NET/Mesh : "
	tests := []struct {
		line string
		want []Lane
	}{
		{mesh + "node-a -> node-b conn 3: lane 0 rxe100:1 -> rxe100:1 mtu 4096 gid 1",
			[]Lane{{"node-a", "node-b", "rxe100:1", "rxe100:1", "mtu 4096 gid 1"}}},
		{mesh + "node-a -> node-d conn 3: lane 0 e0 -> e1 tcp 10.0.0.1 -> 10.0.2.2 through node-b and node-c, lane 1 e1 -> e0 mtu 1",
			[]Lane{{"node-a", "node-d", "e0", "e1", "tcp 10.0.0.1 -> 10.0.2.2 through node-b and node-c"}, {"node-a", "node-d", "e1", "e0", "mtu 1"}}},
		{mesh + "node-a -> node-b conn 3: lane 0 e0 -> e0 tcp 10.0.0.1 -> 10.0.0.2",
			[]Lane{{"node-a", "node-b", "e0", "e0", "tcp 10.0.0.1 -> 10.0.0.2"}}},
		{mesh + "node-a -> node-a conn 3: lane 0 x:1 -> x:1 mtu 4096 gid 1, lane 1 y:1 -> z:2 mtu 1024 gid 3",
			[]Lane{{"node-a", "node-a", "x:1", "x:1", "mtu 4096 gid 1"}, {"node-a", "node-a", "y:1", "z:2", "mtu 1024 gid 3"}}},
		{mesh + "node-a -> node-b conn 3: lane 12 r100 -> r100, lane 13 r101 -> r102",
			[]Lane{{"node-a", "node-b", "r100", "r100", ""}, {"node-a", "node-b", "r101", "r102", ""}}},
		{mesh + "node-a -> node-b conn 3: 2 lanes", nil},
		{"", nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, ParseLanes(tt.line)); diff != "" {
			t.Errorf("ParseLanes(%q) (-want +got):\n%s", tt.line, diff)
		}
	}
}

func FuzzParseLanes(f *testing.F) {
	f.Add("NET/Mesh : a -> b conn 3: lane 0 x -> y, lane 1 z -> w mtu 1")
	f.Fuzz(func(t *testing.T, line string) {
		for _, l := range ParseLanes(line) {
			if l.From == "" || l.To == "" || l.Local == "" || l.Remote == "" {
				t.Errorf("ParseLanes(%q) has an empty name: %+v", line, l)
			}
		}
	})
}

func TestOutput(t *testing.T) {
	var b strings.Builder
	o := NewOutput(&b, "node-a")
	o.Line("node-a", "before")
	o.Show(true)
	for _, l := range []string{
		"a: NCCL INFO NET/Mesh : node-b -> node-a conn 1: lane 0 x -> y mtu 1",
		"a: NCCL INFO NET/Mesh : node-a -> node-b conn 1: lane 0 x -> y mtu 1",
		"a: NCCL INFO NET/Mesh : node-a -> node-b conn 2: lane 0 x -> y mtu 1",
		"a: NCCL INFO NET/Mesh : node-a -> node-a conn 2: lane 0 x -> x mtu 1",
		"a: NCCL INFO something", "# table", "a: NCCL WARN a cable",
	} {
		o.Line("node-a", l)
	}
	o.Line("node-b", "of another rank")
	o.Show(false)
	o.Line("node-a", "after")
	if diff := cmp.Diff("  # table\n  [node-a] a: NCCL WARN a cable\n", b.String()); diff != "" {
		t.Errorf("shown (-want +got):\n%s", diff)
	}
	want := "  node-a   -> node-b    x          -> y           mtu 1\n" // the other is the receiver's
	if diff := cmp.Diff(want, Table(o.Lanes())); diff != "" {
		t.Errorf("lanes (-want +got):\n%s", diff)
	}
	if got := Table(nil); !strings.Contains(got, "none") {
		t.Errorf("no lanes: %q", got)
	}
}
