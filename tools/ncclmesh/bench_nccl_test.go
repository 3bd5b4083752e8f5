package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/nccl"
	"ncclmesh/tests/require"
	"ncclmesh/tools/ncclmesh/bench"
)

// ncclNodes brings a fabric up whose nodes have the plugin, NCCL and a pretend GPU, and returns what runs the command.
func ncclNodes(t *testing.T, topology string) func(args ...string) (status int, stdout, stderr string) {
	t.Helper()
	f, command := nodes(t, topology)
	libraries, err := nccl.Libraries(context.Background(), nccl.Versions[0], filepath.Join(fabric.Root(), "build/nodes"))
	if errors.Is(err, nccl.ErrUnable) {
		require.Skip(t, require.NCCL, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	plugin, err := fabric.Build("nodes", "build")
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range f.Nodes {
		env := append(nccl.Settings(), "NCCL_HOSTID="+node, "LD_LIBRARY_PATH="+libraries+":"+plugin+":"+f.Tools)
		if err := os.WriteFile(filepath.Join(f.Dir, "env."+node), []byte(strings.Join(env, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return command
}

// NCCL, which is loaded, makes ranks of the GPUs of all nodes without MPI, over the plugin; results are right out of place and
// in place, in every collective.
func TestBenchNCCL(t *testing.T) {
	t.Parallel()
	command := ncclNodes(t, line)
	status, stdout, stderr := command("bench", "nccl", "a", "b", "c", "--op", strings.Join(bench.NCCLKinds, ","), "-b", "12", "-e", "200000", "-f", "16384", "-n", "2", "-w", "1", "--env", "NCCL_DEBUG=INFO")
	if status != 0 || !strings.Contains(stderr, "via NET/Mesh/0") || !strings.Contains(stdout, "# Out of bounds values : 0 OK") {
		t.Fatalf("status %d, %s\n%s", status, stderr, stdout)
	}
	figures := ` +[\d.]+ +[\d.]+ +[\d.]+ +0`
	rows := regexp.MustCompile(`(?m)^ +(\d+ +\d+ +float +\w+ +-?\d+)`+figures+figures+`$`).FindAllStringSubmatch(stdout, -1)
	var got []string
	for _, r := range rows {
		got = append(got, strings.Join(strings.Fields(r[1]), " "))
	}
	want := []string{"12 3 float sum -1", "196608 49152 float sum -1", "12 1 float none -1", "196608 16384 float none -1",
		"12 1 float sum -1", "196608 16384 float sum -1", "12 3 float none 0", "196608 49152 float none 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\nrows (-want +got):\n%s", stdout, diff)
	}
	if !strings.Contains(stdout, "pretend GB10, NCCL "+nccl.Versions[0].Name+", network mesh") {
		t.Errorf("it does not say what it measures:\n%s", stdout)
	}
	status, stdout, stderr = command("bench", "nccl", "a", "b", "-e", "8", "-n", "1", "--json", "--no-plugin", "--env", "NCCL_NET=Socket", "--env", "NCCL_DEBUG=INFO")
	var r bench.NCCLReport
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 || len(r.Rows) != 1 || r.Ranks[1].Network != "Socket" {
		t.Errorf("what NCCL writes on standard output is in the way: status %d, %v, %s\n%s", status, err, stderr, stdout)
	}
	if !regexp.MustCompile(`(?m)^b: .*via NET/Socket/0$`).MatchString(stderr) {
		t.Errorf("NCCL's log is lost, or it has used another network: %q", stderr)
	}
}
