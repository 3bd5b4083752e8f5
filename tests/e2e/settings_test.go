package e2e

import (
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// A rank whose settings are not those of the others ends the job with a word on every side that meets it, where it would
// wait for ever; one whose settings only should be theirs is named, and the job goes on.
func TestSettingsOfOneRank(t *testing.T) {
	const refused = `NCCL WARN NET/Mesh : (connect|accept): invalid use: .*`
	tests := []struct {
		name  string
		env   string // of node c alone
		c, ab string // what c says, and one of the others at least
		ok    bool
	}{
		{"no tuner", "NCCL_MESH_TUNER=0", refused + `NCCL_MESH_TUNER is 0 on node c and 1 on node [ab]`, refused + `NCCL_MESH_TUNER is 1 on node [ab] and 0 on node c`, false},
		{"another tuner", "NCCL_TUNER_PLUGIN=none", refused + `NCCL_TUNER_PLUGIN is none on node c and not set on node [ab]`, refused + `NCCL_TUNER_PLUGIN is not set on node [ab] and none on node c`, false},
		{"another topology", "NCCL_MESH_TOPOLOGY=ring", refused + `NCCL_MESH_TOPOLOGY is ring on node c and auto on node [ab]`, refused + `NCCL_MESH_TOPOLOGY is auto on node [ab] and ring on node c`, false},
		{"an algorithm", "NCCL_ALGO=Tree", refused + `NCCL_ALGO is tree on node c and not set on node [ab]`, refused + `NCCL_ALGO is not set on node [ab] and tree on node c`, false},
		{"no relaying", "NCCL_MESH_RELAY=0", `NCCL WARN NET/Mesh : NCCL_MESH_RELAY is 0 on node c and auto on node [ab]\. `, `NCCL WARN NET/Mesh : NCCL_MESH_RELAY is auto on node [ab] and 0 on node c\. `, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "an algorithm" {
				require.Full(t, "transport/control TestSettingsMustBeTheSame")
			}
			t.Parallel()
			j := newFabric(t, triangle).start(spec{on: map[string][]string{"c": {tt.env}},
				args: strings.Fields("--work allreduce --min 8 --max 8 --iters 1")})
			if tt.ok {
				j.ok()
			} else {
				j.failed()
			}
			j.must("c", tt.c)
			if j.rank("a").count(tt.ab)+j.rank("b").count(tt.ab) == 0 {
				j.errorf("neither a nor b said %q", tt.ab)
			}
		})
	}
}

// twoCables joins two nodes twice.
const twoCables = `
port a rdma0 netdev p0 addr 192.168.1.1/24
port a rdma1 netdev p1 addr 192.168.2.1/24
port b rdma0 netdev p0 addr 192.168.1.2/24
port b rdma1 netdev p1 addr 192.168.2.2/24
link a:rdma0 b:rdma0
link a:rdma1 b:rdma1
`

// What is said of a job whose settings leave out the ports that it needs begins with those settings, and names the ports.
func TestPortsLeftOut(t *testing.T) {
	require.Full(t, "transport TestLeftOut and transport TestFiltersThatMatchNothing")
	const crossed = `NCCL_IB_HCA=\^rdma\d leaves out rdma\d:1 \(p\d\) on [ab]; .*NCCL_IB_HCA=\^rdma\d leaves out rdma\d:1 \(p\d\) on [ab]; `
	excluding := map[string][]string{"a": {"NCCL_IB_HCA=^rdma1"}, "b": {"NCCL_IB_HCA=^rdma0"}}
	tests := []struct {
		name string
		env  []string
		on   map[string][]string
		want string
		ok   bool
	}{
		{"crossed cages", nil, excluding, `NCCL WARN NET/Mesh : (connect|accept): .*no path between [ab] and [ab]; ` + crossed, false},
		{"crossed cages, and TCP", []string{auto}, excluding, `NCCL WARN NET/Mesh : [ab] and [ab] talk over TCP, slower than RDMA, although [ab] has rdma\d:1 \(p\d\): ` + crossed, true},
		{"names of another node", []string{auto}, map[string][]string{"b": {"NCCL_IB_HCA=mlx5_0:1,mlx5_1:1"}},
			`NCCL WARN NET/Mesh : init: .*NCCL_IB_HCA=mlx5_0:1,mlx5_1:1 matches none of the RDMA ports of this node, which are rdma0:1 \(p0\), rdma1:1 \(p1\): .*ncclInvalidUsage`, false},
		{"quotes", []string{auto}, map[string][]string{"b": {`NCCL_IB_HCA="rdma0"`}}, `NCCL WARN NET/Mesh : init: .*NCCL_IB_HCA="\\"rdma0\\"": the quotes are part of the value`, false},
		{"blanks", []string{auto}, map[string][]string{"b": {`NCCL_IB_HCA=rdma0, rdma1`}}, `NCCL WARN NET/Mesh : init: .*NCCL_IB_HCA="rdma0, rdma1": .*blanks are part of the value`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			j := newFabric(t, twoCables).start(spec{env: tt.env, on: tt.on, args: strings.Fields("--work sendrecv --min 8 --max 8 --iters 1")})
			if tt.ok {
				j.ok()
			} else {
				j.failed()
			}
			j.one(tt.want)
		})
	}
}
