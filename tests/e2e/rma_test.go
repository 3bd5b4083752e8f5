package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// oneSided is what a job does that plays NCCL's host RMA and its GIN proxy.
const oneSided = "--chunk 64K --work rma"

// Every version of the RMA interface keeps NCCL's contract, where adapters can reach GPU memory.
func TestRMAVersions(t *testing.T) {
	for _, tt := range []struct {
		gpu     gpu
		version int
		windows string
		sample  bool
	}{
		{gpuBoth, 15, "all", true},
		{gpuAddress, 14, "all", true},
		{gpuDMABuf, 13, "data", true},
	} {
		t.Run(fmt.Sprintf("%v v%d %s", tt.gpu, tt.version, tt.windows), func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "the same test of other versions")
			}
			t.Parallel()
			f := newFabric(t, tt.gpu.topology(triangle))
			f.suffer(late)
			j := f.start(spec{env: tt.gpu.env, args: tt.gpu.args(fmt.Sprintf("%s,rmaorder --rma v%d --windows %s", oneSided, tt.version, tt.windows))}).ok()
			if line := fmt.Sprintf("# rma v%d: ", tt.version); !strings.Contains(j.rank("a").output(), line) {
				j.errorf("no line %q", line)
			}
			for _, node := range j.f.Nodes {
				j.must(node, `one-sided communication of rank \d with 3 ranks goes over the mesh$`)
			}
		})
	}
}

// One-sided communication goes on while a cable is lost, and each signal counts once and comes after its bytes: data in the window is checked when the
// signal is seen.
func TestRMAFailover(t *testing.T) {
	t.Parallel()
	o, g := over{two, qps2}, gpuDMABuf
	f := newFabric(t, g.topology(o.topology()))
	j := f.start(spec{env: slices.Concat(o.env, g.env), args: g.args(strings.Join(f.endless(oneSided+" --messages 500"), " "))})
	for _, node := range f.Nodes {
		j.await(node, `GIN: phase 1 begins`)
	}
	j.suffer("unplug a:rab1", "moves", "moves") // the first may have begun before
	j.enough().ok().lose(`rab1`)
}

// Ranks that share no cable put and signal through others.
func TestRMARelay(t *testing.T) {
	t.Parallel()
	f := newFabric(t, gpuBoth.topology(ring4.topology()))
	j := f.start(spec{env: append(slices.Clone(unhurried), ring4.alone()), args: gpuBoth.args(oneSided)}).ok()
	if got := j.relays("a -> c"); got != "b" && got != "d" && got != "b d" {
		j.errorf("a -> c goes through %q, want b or d", got)
	}
}

// A rank kills itself: the driver judges that every operation to it fails with a remote error in time, and no other, and that the interface can be closed
// without it.
func TestRMARankDies(t *testing.T) {
	t.Parallel()
	newFabric(t, gpuBoth.topology(triangle)).start(spec{args: gpuBoth.args("--work rmadie --chunk 64K --seed 1 --windows all --die-limit-ms " +
		fmt.Sprint(soon.Milliseconds()/2))}).oneKilled(`every operation to it said so, the last after .* ms`)
}

// Where GPU memory is not offered the interface has no devices, and its init leaves nothing behind.
func TestRMANotOffered(t *testing.T) {
	t.Parallel()
	newFabric(t, triangle).start(spec{args: strings.Fields("--work rma,allreduce --max 64K --rma none")}).ok()
}
