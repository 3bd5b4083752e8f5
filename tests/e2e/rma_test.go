package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// oneSided is what a job does that plays NCCL's host RMA and its GIN proxy.
const oneSided = "--work rma --chunk 64K"

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
		{gpuDMABuf, 13, "host", true},
	} {
		t.Run(fmt.Sprintf("%v v%d %s", tt.gpu, tt.version, tt.windows), func(t *testing.T) {
			if !tt.sample {
				require.Full(t, "the same test of other versions")
			}
			t.Parallel()
			f := newFabric(t, tt.gpu.topology(triangle))
			j := f.start(spec{env: tt.gpu.env, args: tt.gpu.args(fmt.Sprintf("%s --rma v%d --windows %s", oneSided, tt.version, tt.windows))}).ok()
			if line := fmt.Sprintf("# rma v%d: ", tt.version); !strings.Contains(j.rank("a").output(), line) {
				j.errorf("no line %q", line)
			}
			for _, node := range j.f.Nodes {
				j.must(node, `one-sided communication of rank \d with 3 ranks goes over the mesh$`)
			}
		})
	}
}
