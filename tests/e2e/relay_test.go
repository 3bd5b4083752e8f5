package e2e

import (
	"slices"
	"strings"
	"testing"
)

// ring4 is four nodes, of which opposite ones share no cable.
var ring4 = cabling{pairs: "ab bc cd da", each: 1}

// without is the same cabling without RDMA.
func (c cabling) without() cabling {
	c.plain = "abcdef"
	return c
}

// Every two nodes of a ring of four talk, those that share no cable both ways round at once.
func TestRelay(t *testing.T) {
	t.Parallel()
	j := newFabric(t, ring4.topology()).start(spec{env: append(slices.Clone(unhurried), ring4.alone()),
		args: strings.Fields("--work alltoall --min 8 --max 2M --factor 64 --iters 4")}).ok()
	whole := false
	for pair, want := range map[string]string{"a -> c": "b d", "b -> d": "a c", "c -> a": "b d", "d -> b": "a c", "a -> b": ""} { // a node that is slow to answer costs a pair one of its ways
		got := j.relays(pair)
		whole = whole || got != "" && got == want
		if (got == "") != (want == "") || slices.ContainsFunc(strings.Fields(got), func(w string) bool { return !slices.Contains(strings.Fields(want), w) }) {
			j.errorf("%s goes through %q, want %q", pair, got, want)
		}
	}
	if !whole {
		j.errorf("no pair uses all of its ways")
	}
}

// relayKinds are what carries lanes through other nodes.
var relayKinds = []string{"tcp", "rdma"}

// unhurried is the environment of ranks that wait for neighbours which are slow to answer.
var unhurried = []string{"NCCL_MESH_PROOF_WAIT=20000", "NCCL_MESH_TIME_SCALE=4"}

// relays are the nodes that each lane between two nodes goes through, as the sender says.
func (j *job) relays(pair string) string {
	from, _, _ := strings.Cut(pair, " ")
	_, line, ok := j.rank(from).said(`NET/Mesh : ` + pair + ` conn \d+: lane 0 `)
	if !ok {
		j.errorf("node %s has no connection %s", from, pair)
	}
	var ways []string
	for lane := range strings.SplitSeq(line, ", lane ") {
		if _, via, ok := strings.Cut(lane, " through "); ok {
			ways = append(ways, strings.ReplaceAll(via, " and ", ","))
		}
	}
	return strings.Join(slices.Sorted(slices.Values(ways)), " ")
}

// Where a cable leads is heard before ways are tried that only link-local addresses speak for: none is between nodes that share no cable.
func TestNoCableNoTrial(t *testing.T) {
	t.Parallel()
	j := newFabric(t, ring4.topology()).start(spec{env: []string{ring4.alone(), "NCCL_MESH_TIME_SCALE=10", "NCCL_MESH_DEBUG=debug"}, args: strings.Fields("--work alltoall --min 8 --max 8 --iters 1")}).ok()
	for _, pair := range []string{"ac", "bd", "ca", "db"} {
		if n := j.rank(pair[:1]).count(` on ` + pair[:1] + ` -> \S+ \S+ on ` + pair[1:]); n > 0 {
			j.errorf("node %s tried %d ways to %s", pair[:1], n, pair[1:])
		}
	}
}
