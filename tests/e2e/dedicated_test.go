package e2e

import (
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/require"
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

// Two nodes talk through one on which nothing runs but the command, which outlives their jobs and goes when it is told to.
func TestDedicatedRelay(t *testing.T) {
	require.Full(t, "tests/e2e TestStatusOfRelay")
	t.Parallel()
	f := newFabric(t, line3.without().topology())
	b := f.relay("b")
	for range 2 {
		j := f.start(spec{nodes: []string{"a", "c"}, env: append(plainly, line3.alone()), args: []string{"--work", "alltoall", "--min", "8", "--max", "2M", "--factor", "64", "--iters", "4"}}).ok()
		for _, pair := range []string{"a -> c", "c -> a"} {
			if got := j.relays(pair); got != "b" {
				j.errorf("%s goes through %q, want b", pair, got)
			}
		}
	}
	b.await("b", `relays nothing any more: it was [1-9].* circuits in .*, for a, c`)
	b.signal(b.ranks[0].node, syscall.SIGTERM)
	b.wait()
	if r := b.ranks[0]; r.status != 0 || r.count(`level=(WARN|ERROR)`) > 0 {
		b.errorf("status %d", r.status)
	}
	b.must("b", `msg=over`)
}

// A relay that is told to go while traffic runs carries until the job is over, if it may; and if it may not, what it carries goes through
// the other one, and it ends with nothing left.
func TestDedicatedRelayGoes(t *testing.T) {
	require.Full(t, "transport/relay TestEnds")
	tests := []struct {
		name   string
		cables cabling
		relays string
		drain  string
		said   string // by the one that goes
		moves  bool   // the job outlives it
	}{
		{"when the job is over", line3, "b", "0", `accepts no new circuits; waits for \d+ circuits? to end, however long that takes`, false},
		{"before that", ring4, "bd", "100ms", `\d+ circuits left after 100ms, and dropped`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFabric(t, tt.cables.without().topology())
			var relays []*job
			for _, node := range tt.relays {
				relays = append(relays, f.relay(string(node), "--drain", tt.drain))
			}
			first := relays[0]
			j := f.start(spec{nodes: []string{"a", "c"}, env: append(plainly, tt.cables.alone()), args: soak(10)})
			j.moves()
			first.await("b", `msg="relays for `)
			first.signal(first.ranks[0].node, syscall.SIGTERM)
			first.await("b", tt.said)
			if tt.moves {
				first.wait()
				j.moves()
			}
			j.ok()
			first.wait()
			closed, _, _ := j.ranks[0].said(`a -> c conn \d+: closed after`)
			if r := first.ranks[0]; r.status != 0 || !tt.moves && r.ended.Before(closed) {
				first.errorf("status %d, ended %v before the job's connections", r.status, closed.Sub(r.ended))
			}
			first.must("b", `relays nothing any more`)
			if !tt.moves {
				return
			}
			for _, r := range j.ranks {
				if r.count(`lane \d+ .* through b: .*; its traffic goes over the 1 lane left`) == 0 {
					j.errorf("node %s lost no lane", r.node)
				}
			}
		})
	}
}
