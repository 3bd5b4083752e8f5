package nccl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// ringOf is nodes in a ring, by their number.
func ringOf(n int) fabric.Mesh {
	var nodes []string
	for i := range n {
		nodes = append(nodes, "node-"+string(rune('a'+i)))
	}
	return fabric.Ring(nodes...)
}

// between are the nodes on the shortest ways round a ring from one to another: one for
// each way, none where a cable joins the two. Rings of 4 and 5 have no longer ways.
func between(m fabric.Mesh, from, to int) (nodes []string) {
	n := len(m.Nodes)
	for _, step := range []int{1, n - 1} {
		if (from+2*step)%n == to {
			nodes = append(nodes, m.Nodes[(from+step)%n])
		}
	}
	return nodes
}

// A ring without diagonals, and no RDMA but over its cables: every collective by every
// algorithm is right, and nodes that share no cable talk through the ones between them,
// all shortest ways at once, as each says.
func TestRings(t *testing.T) {
	for _, size := range []int{4, 5} {
		m := ringOf(size)
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			if size > 4 {
				require.Full(t, "the same test of four nodes")
			}
			each(t, "rdma", func(t *testing.T, rank string, l Lanes) {
				var steps []string
				for i, c := range choices {
					across := []string{"check sendacross f32 sum 1", "check sendacross f32 sum 300007"}
					switch {
					case full:
						steps = append(steps, c.session(slices.Concat(across, collectives(1, 1000, 65537, 1<<18)))...)
					case i > 1 && i%2 == 0: // a tree, which is rings too, and what NCCL takes of itself
						steps = append(steps, c.session(slices.Concat(across, collectives(65537)))...)
					}
				}
				j := l.Job(rank, plugin(), steps...)
				j.Env = append(slices.Clone(j.Env), "NCCL_MESH_IFNAME=next,prev", "NCCL_MESH_PROOF_WAIT=20000", "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET")
				for i, r := range run(t, up(t, l.Mesh(m).Topology()), j) {
					for k, to := range m.Nodes {
						if k != i {
							goesThrough(t, l, r, to, between(m, i, k))
						}
					}
				}
			})
		})
	}
}

// goesThrough holds that a node's lanes to another are of one kind and go through the
// given nodes, one each, and that it says so; directly where there are none. A node that was
// slow to answer costs a connection its way, not all of them theirs.
func goesThrough(t *testing.T, l Lanes, r Result, to string, nodes []string) {
	t.Helper()
	conn := regexp.MustCompile(`NET/Mesh : ` + r.Node + ` -> ` + to + ` conn \d+: lane 0 .*`)
	lines := conn.FindAllString(r.Output, -1)
	most := -1
	for _, line := range lines {
		var via []string
		for lane := range strings.SplitSeq(line, ", lane ") {
			if strings.Contains(lane, " tcp ") != (l.Name == "tcp") {
				t.Errorf("%s has a lane that is not %s: %s", r.Node, l.Name, line)
			}
			_, through, relayed := strings.Cut(lane, " through ")
			switch {
			case relayed && !slices.Contains(nodes, through), !relayed && len(nodes) > 0:
				t.Errorf("%s -> %s goes through %q, want %q: %s", r.Node, to, through, nodes, line)
			case relayed && !slices.Contains(via, through):
				via = append(via, through)
			}
		}
		most = max(most, len(via))
	}
	if most != len(nodes) {
		t.Errorf("of %d connections from %s to %s the most go through %d nodes, want one through %q:\n%s", len(lines), r.Node, to, most, nodes, r.Output)
	}
	begun := strings.Count(r.Output, "NET/Mesh : build ")
	said := regexp.MustCompile(`no cable joins `+r.Node+` and `+to+`: they talk over (.*)`).FindAllString(r.Output, -1)
	if want := begun * min(1, len(nodes)); len(said) != want {
		t.Errorf("%s says %d times that no cable joins it and %s, want %d:\n%s", r.Node, len(said), to, want, r.Output)
	}
	for _, node := range nodes {
		if want := "through " + node + " (1 relay)"; !strings.Contains(strings.Join(said, "\n"), want) {
			t.Errorf("%s does not say %q: %q", r.Node, want, said)
		}
	}
}

// Detours are the connections between two nodes that go through a third, as the
// senders' logs have it.
type detours struct {
	on      map[string]bool
	changes chan int // how many there are
}

var detourLine = regexp.MustCompile(`NET/Mesh : (node-\S+ -> node-\S+ conn \d+): lane \d+ \S+ -> \S+ (through node-\S+ (?:has|takes)|(?:through node-\S+ )?is no longer needed)`)

// follow reads a line of a job's.
func (d *detours) follow(line string) {
	if f := detourLine.FindStringSubmatch(line); f != nil {
		if d.on[f[1]] = !strings.HasSuffix(f[2], "is no longer needed"); !d.on[f[1]] {
			delete(d.on, f[1])
		}
		d.changes <- len(d.on)
	}
}

// await waits until there are some, or none.
func (d *detours) await(ctx context.Context, some bool) error {
	for {
		select {
		case n := <-d.changes:
			if n > 0 == some {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("a rank ended before there were detours: %t", some)
		}
	}
}

// pull pulls a cable, or plugs it in again: of TCP's lanes it takes the interfaces at both ends down, or up.
func pull(l Lanes, f *fabric.Fabric, c fabric.Cable, out bool) error {
	if l.Name != "tcp" {
		_, err := f.Fault(map[bool]string{true: "unplug", false: "plug"}[out], c.Ends[0].Node+":"+c.Ends[0].Device)
		return err
	}
	var errs []error
	for _, end := range c.Ends {
		cmd := f.Command(context.Background(), end.Node, "ip", "link", "set", end.Iface, map[bool]string{true: "down", false: "up"}[out])
		if out, err := cmd.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("%v: %w: %s", cmd, err, out))
		}
	}
	return errors.Join(errs...)
}

// A cable of the triangle is pulled under NCCL's all-reduces and put back: they go on
// through the third node, then over the cable again, and are right.
func TestCablePutBack(t *testing.T) {
	each(t, "rdma", func(t *testing.T, rank string, l Lanes) {
		m := fabric.Triangle()
		f := up(t, l.Mesh(m).Topology())
		c := m.Cables[0]
		dir := t.TempDir()
		away, back := filepath.Join(dir, "away"), filepath.Join(dir, "back")
		j := l.Job(rank, plugin(), "init", "until-error "+away, "until-error 0.5", "until-error "+back, "until-error 0.5", "destroy")
		j.Env = append(slices.Clone(j.Env), "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		d := detours{map[string]bool{}, make(chan int, 1<<10)}
		wentOn := make(chan struct{}) // for two phases, until the third
		going := 0
		j.Line = func(_, line string) {
			d.follow(line)
			if line == "going" {
				if going++; going == 3*len(f.Nodes) {
					close(wentOn)
				}
			}
		}
		j.Ended = func(Result) { cancel() }
		for _, r := range fated(t, f, j, "went on: ", func() error {
			pulled := pull(l, f, c, true)
			gone := d.await(ctx, true)
			ended := os.WriteFile(away, nil, 0o644)
			select {
			case <-wentOn:
			case <-ctx.Done():
			}
			return errors.Join(pulled, gone, ended, pull(l, f, c, false), d.await(ctx, false), os.WriteFile(back, nil, 0o644))
		}) {
			if n := strings.Count(r.Output, "went on: "); n != 4 {
				t.Errorf("%s went on %d times, want 4:\n%s", r.Node, n, r.Output)
			}
		}
	})
}
