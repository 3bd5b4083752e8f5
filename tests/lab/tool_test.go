package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ncclmesh/tests/require"

	"github.com/google/go-cmp/cmp"
)

// buildTool builds the command for the machines, and returns its file.
func buildTool(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ncclmesh")
	build := exec.Command("go", "-C", filepath.Join(ModuleRoot(), "tools"), "build", "-o", file, "./ncclmesh")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// tool runs the command as a rank on each machine, without ssh. It returns what rank 0 prints, and its status.
func (s *session) tool(ctx context.Context, l *Lab, args string) (out string, status int, err error) {
	var b strings.Builder
	for i, name := range s.mesh.Machines {
		fmt.Fprintf(&b, "[ $NODE = %s ] && export RANK=%d\n", name, i)
	}
	fmt.Fprintf(&b, "export WORLD_SIZE=%d LOCAL_RANK=0 MASTER_ADDR=%s\n", len(s.mesh.Machines), s.mesh.ManagementAddr(s.mesh.Machines[0]))
	fmt.Fprintf(&b, "cd /job && ./ncclmesh %s --rank-env\n", args)
	results, err := l.RunAll(ctx, b.String())
	if err != nil {
		return "", 0, err
	}
	return results[0].Output, results[0].Status, failed(results[1:])
}

// What is made wrong on machines, and put right again, and all that doctor says then.
var faults = []struct {
	name     string
	on       string // a machine
	do, undo string
	want     []string
	sample   bool
}{
	{name: "nothing", on: "a", do: ":", undo: ":", sample: true},
	{"an MTU of its own", "a", "ip link set r100 mtu 1500", "ip link set r100 mtu 9000", []string{"warn mtu-small node-a:r100", "warn mtu-mismatch node-a:r100 ═ node-b:r100"}, true},
	{"the interface is off", "a", "ip link set r100 down", "ip link set r100 up", []string{"fail port-down node-a:r100", "info no-common-cable node-a, node-b"}, false},
	{"nothing passes", "a", "netem r100 loss 100%", "netem_off r100", []string{"fail cable-dead node-a:r100 ═ node-b:r100", "info no-common-cable node-a, node-b"}, false},
	{"an address twice", "a", "ip addr del 192.168.100.1/24 dev r100; ip addr add 192.168.100.2/24 dev r100", "ip addr del 192.168.100.2/24 dev r100; ip addr add 192.168.100.1/24 dev r100",
		[]string{"fail addr-duplicate node-b:r100"}, false},
	{"a route of another interface", "c", "ip route add 192.168.101.128/25 dev mgmt", "ip route del 192.168.101.128/25 dev mgmt", []string{"warn subnet-overlap node-c:r101"}, false},
	{"no RDMA device", "b", "rdma link delete rxe101", "rdma link add rxe101 type rxe netdev r101", []string{"warn rdma-one-end node-b:r101 ═ node-c:r101"}, false},
}

// TestTool has the command look at machines whose ports are the kernel's own RDMA devices: the cables are found, measured, and what
// is wrong with them is named, and nothing else.
func TestTool(t *testing.T) {
	require.Full(t, "tools/ncclmesh TestTopo, tools/ncclmesh TestBenchLink and tools/ncclmesh TestDoctorFindsFaults")
	s := newSession(t, Triangle())
	s.cfg.Files = []string{buildTool(t)}
	s.step(t, "topo", func(t *testing.T, ctx context.Context, l *Lab) error {
		out, status, err := s.tool(ctx, l, "topo")
		return errors.Join(err, says(out, status, 0, `node-a r100 ═ r100 node-b .*RDMA works`, `node-a r102 ═ r102 node-c .*RDMA works`, `node-b r101 ═ r101 node-c .*RDMA works`, `ring of 3`))
	})
	s.step(t, "bench link", func(t *testing.T, ctx context.Context, l *Lab) error {
		out, status, err := s.tool(ctx, l, "bench link --time 200ms --size 64K")
		t.Log("\n" + out)
		const figures = `( +\d+\.\d+){3} +2\.5( +\d+\.\d+){2} +0\n`
		return errors.Join(err, says(out, status, 0, `r100 – r100`+figures, `r101 – r101`+figures, `r102 – r102`+figures))
	})
	for _, f := range faults {
		if !f.sample && !full {
			continue
		}
		s.step(t, "doctor/"+f.name, func(t *testing.T, ctx context.Context, l *Lab) error {
			change := func(script string) error {
				_, err := run(ctx, l, fmt.Sprintf(". /lab/lib.sh\n[ $NODE = %s ] || exit 0\n%s", f.on, script))
				return err
			}
			if err := change(f.do); err != nil {
				return err
			}
			out, _, err := s.tool(ctx, l, "doctor --json --ignore mem-low --ignore plugin-other")
			if err == nil {
				err = diagnosed(out, f.want)
			}
			return errors.Join(err, change(f.undo))
		})
	}
}

// says fails unless a status is the one wanted, and the output has each pattern.
func says(out string, status, want int, patterns ...string) error {
	if status != want {
		return fmt.Errorf("status %d, want %d:\n%s", status, want, out)
	}
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(out) {
			return fmt.Errorf("no %q in:\n%s", p, out)
		}
	}
	return nil
}

// diagnosed fails unless a report of doctor's has those findings to show, and no others but what is not known. Before the report may
// stand that ranks are waited for.
func diagnosed(report string, want []string) error {
	var r struct {
		Findings []struct {
			Severity, Check, Cable, Cause string
			Places                        []struct{ Node, Port string }
			Ignored                       bool
		}
	}
	if err := json.Unmarshal([]byte(report[max(0, strings.Index(report, "{")):]), &r); err != nil {
		return fmt.Errorf("%w:\n%s", err, report)
	}
	var got []string
	for _, f := range r.Findings {
		if f.Severity == "unknown" || f.Cause != "" || f.Ignored {
			continue
		}
		where := f.Cable
		if where == "" {
			var places []string
			for _, p := range f.Places {
				places = append(places, strings.TrimSuffix(p.Node+":"+p.Port, ":"))
			}
			where = strings.Join(places, ", ")
		}
		got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Check, where))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("doctor finds (-want +got):\n%s%s", diff, report)
	}
	return nil
}
