package e2e

import (
	"strings"
	"testing"
)

// A rank whose settings are not those of the others ends the job with an error on every side that meets it, where it would wait for ever.
func TestSettingsOfOneRank(t *testing.T) {
	t.Parallel()
	j := newFabric(t, triangle).start(spec{on: map[string][]string{"c": {"NCCL_ALGO=Tree"}}, args: strings.Fields("--work allreduce --min 8 --max 8 --iters 1")})
	j.failed()
	const refused = `NCCL WARN NET/Mesh : (connect|accept): invalid use: .*NCCL_ALGO is `
	j.must("c", refused+`tree on node c and not set on node [ab]`)
	if others := refused + `not set on node [ab] and tree on node c`; j.rank("a").count(others)+j.rank("b").count(others) == 0 {
		j.errorf("neither a nor b said %q", others)
	}
}
