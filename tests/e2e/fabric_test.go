package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
)

// patience is a hang guard, not a measure.
const patience = 20 * time.Minute

// built is where TestMain puts what is under test.
var built string

// unable is why there is nothing to test; nil when there is.
var unable error

func TestMain(m *testing.M) {
	if name := os.Getenv("E2E_HELPER"); name != "" {
		if err := helpers[name](); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if built, unable = fabric.Build("e2e", "build", "netdriver", "fakeverbs", "fakecuda", "FAKE=all old"); unable == nil {
		var f *fabric.Fabric
		if f, unable = fabric.Up(fabric.Tools(built), triangle); unable == nil {
			unable = f.Close()
		}
	}
	if unable != nil && !errors.Is(unable, fabric.ErrUnable) {
		fmt.Fprintln(os.Stderr, unable)
		os.Exit(1) // what cannot be built is broken, not missing
	}
	os.Exit(m.Run())
}

// helpers are what this program does when it is started on a node.
var helpers = map[string]func() error{}

// mesh is a set of nodes with their cables. It lives as long as its test.
type mesh struct {
	*fabric.Fabric
	t    *testing.T
	jobs int
}

const triangle = `
port a rdma0 netdev p0 addr 192.168.1.1/24 cage p0
port a rdma1 netdev p1 addr 192.168.3.1/24 cage p1
port b rdma0 netdev p0 addr 192.168.2.1/24 cage p0
port b rdma1 netdev p1 addr 192.168.1.2/24 cage p1
port c rdma0 netdev p0 addr 192.168.3.2/24 cage p0
port c rdma1 netdev p1 addr 192.168.2.2/24 cage p1
link a:rdma0 b:rdma1
link b:rdma0 c:rdma1
link c:rdma0 a:rdma1
`

// newFabric makes the nodes of a topology file.
func newFabric(t *testing.T, topology string) *mesh {
	t.Helper()
	if unable != nil {
		require.Skip(t, require.Netns, unable.Error())
	}
	f, err := fabric.Up(fabric.Tools(built), topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return &mesh{Fabric: f, t: t}
}

// command is one that will run on a node.
func (f *mesh) command(node string, name string, args ...string) *exec.Cmd {
	return f.Command(context.Background(), node, name, args...)
}

// fault runs fakefault and returns what it says.
func (f *mesh) fault(args ...string) string {
	f.t.Helper()
	out, err := f.Fault(args...)
	if err != nil {
		f.t.Fatal(err)
	}
	return out
}
