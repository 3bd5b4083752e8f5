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

// One-sided communication goes on while lanes fail, and each signal counts once and comes after its bytes: data in the window is checked when the
// signal is seen.
func TestRMAFailover(t *testing.T) {
	for _, tt := range []struct {
		name   string
		gpu    gpu
		args   string
		faults []string
		lose   string
		sample bool
	}{
		{"unplugged", gpuDMABuf, "", []string{"unplug a:rab1"}, `rab1`, true},
		{"a work request fails", gpuAddress, "--rma v14", []string{"wr status=RETRY_EXC_ERR node=a skip=100 times=1"}, "", false},
		{"acknowledgements are lost", gpuBoth, "--windows host", []string{"ack port=b:rab0 times=3"}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "ncclnet/rma TestCableFails and the same test of another fault")
			}
			t.Parallel()
			o := over{two, qps2}
			f := newFabric(t, tt.gpu.topology(o.topology()))
			j := f.start(spec{env: slices.Concat(o.env, tt.gpu.env), args: tt.gpu.args(strings.Join(f.endless(oneSided+" --messages 500 "+tt.args), " "))})
			for _, node := range j.f.Nodes {
				j.await(node, `GIN: phase 1 begins`)
			}
			j.suffer(tt.faults...)
			j.suffer("moves", "moves") // the first may have begun before
			if j.enough().ok(); tt.lose != "" {
				j.lose(tt.lose)
			}
		})
	}
}

// Ranks that share no cable put and signal through others.
func TestRMARelay(t *testing.T) {
	t.Parallel()
	cables, env := relaying("rdma", ring4)
	f := newFabric(t, gpuBoth.topology(cables.topology()))
	j := f.start(spec{env: slices.Concat(env, unhurried, []string{cables.alone()}),
		args: gpuBoth.args(oneSided)}).ok()
	if got := j.relays("a -> c"); got != "b" && got != "d" && got != "b d" {
		j.errorf("a -> c goes through %q, want b or d", got)
	}
}

// A rank kills itself: the driver judges that every operation to it fails with a remote error in time, and no other, and that the interface can be closed
// without it.
func TestRMARankDies(t *testing.T) {
	for _, tt := range []struct {
		args   string
		sample bool
	}{
		{"--seed 1 --windows all", true},
		{"--seed 2 --die-rank 0 --rma v14 --windows data", false},
		{"--seed 3 --die-rank 1 --rma v13 --windows host", false},
	} {
		t.Run(tt.args, func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "ncclnet/rma TestRankDies")
			}
			t.Parallel()
			f := newFabric(t, gpuBoth.topology(triangle))
			j := f.start(spec{args: gpuBoth.args("--work rmadie --chunk 64K " + tt.args + " --die-limit-ms " + fmt.Sprint(soon.Milliseconds()/2))}).wait()
			killed := 0
			for _, r := range j.ranks {
				switch {
				case r.status == 128+9:
					killed++
				case r.status != 0:
					j.fatalf("node %s: status %d", r.node, r.status)
				default:
					_, text, _ := r.said(`every operation to it said so, the last after .* ms`)
					t.Log(text)
					j.clean(r)
				}
			}
			if killed != 1 {
				j.errorf("%d ranks were killed", killed)
			}
		})
	}
}

// Where GPU memory is not offered the interface has no devices, and its init leaves nothing behind.
func TestRMANotOffered(t *testing.T) {
	t.Parallel()
	newFabric(t, triangle).start(spec{args: strings.Fields("--work rma,allreduce --max 64K --rma none")}).ok()
}
