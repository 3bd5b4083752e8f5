package e2e

import (
	"fmt"
	"path/filepath"
	"sync"

	"ncclmesh/tests/fabric"
)

// buildCommand builds the command where what is under test is.
var buildCommand = sync.OnceValue(func() error {
	_, err := fabric.Build("e2e", "ncclmesh")
	return err
})

// needsCommand sees to it that the command is built.
func (f *mesh) needsCommand() {
	f.t.Helper()
	if err := buildCommand(); err != nil {
		f.t.Fatal(err)
	}
}

// relay starts ncclmesh relay on a node, in the environment of the job's ranks. It returns when the relay is ready.
func (f *mesh) relay(node string, args ...string) *job {
	f.t.Helper()
	f.needsCommand()
	cmd := f.command(node, filepath.Join(built, "ncclmesh"), append([]string{"relay", "--verbose"}, args...)...)
	cmd.Env = append(cmd.Env, "NCCL_SOCKET_IFNAME=mgmt0", "NCCL_HOSTID="+node)
	j := &job{f: f}
	f.t.Cleanup(j.stop)
	j.ranks = []*rank{f.spawn(node, cmd)}
	j.await(node, `msg="ready to relay for other nodes"`)
	return j
}

// plainly is the environment of ranks whose nodes have no RDMA.
var plainly = []string{"NCCL_MESH_TRANSPORT=tcp", "NCCL_MESH_TCP_STREAMS=1"}

// soak is a job for so many seconds that closes nothing before.
func soak(seconds int) []string {
	return []string{"--work", "soak", "--duration", fmt.Sprint(seconds), "--progress", "1", "--reopen", "1000000", "--max", "256K"}
}
