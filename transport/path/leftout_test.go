package path

import (
	"testing"

	"ncclmesh/handshake"
)

func TestNamesLeftOut(t *testing.T) {
	settings := []handshake.Setting{
		{Name: "NCCL_MESH_TOPOLOGY", Value: "ring", Rule: handshake.RuleSame},
		{Name: "NCCL_IB_HCA", Value: "rdma0", LeftOut: "rdma1:1 (p1)"},
		{Name: "NCCL_MESH_IFNAME", Value: "^p2", LeftOut: "p2"},
	}
	const hca, ifname = "NCCL_IB_HCA=rdma0 leaves out rdma1:1 (p1) on a; ", "NCCL_MESH_IFNAME=^p2 leaves out p2 on a; "
	tests := []struct {
		name         string
		ours, theirs []handshake.Setting
		rdma         bool
		want         string
	}{
		{"none", nil, nil, false, ""},
		{"none that leaves ports out", settings[:1], settings[:1], false, ""},
		{"all", settings, nil, false, hca + ifname},
		{"of RDMA", settings, nil, true, hca},
		{"of both nodes", settings[:2], []handshake.Setting{{Name: "NCCL_IB_HCA", Value: "rdma1", LeftOut: "rdma0:1 (p0)"}}, false,
			hca + "NCCL_IB_HCA=rdma1 leaves out rdma0:1 (p0) on b; "},
		{"one that both have", settings[:2], settings, false,
			"NCCL_IB_HCA=rdma0 leaves out rdma1:1 (p1) on a and b; NCCL_MESH_IFNAME=^p2 leaves out p2 on b; "},
		{"RDMA ruled out", []handshake.Setting{{Name: "NCCL_MESH_TRANSPORT", Value: "tcp", LeftOut: "rdma0:1"}}, nil, true,
			"NCCL_MESH_TRANSPORT=tcp leaves out rdma0:1 on a; "},
		{"TCP ruled out", []handshake.Setting{{Name: "NCCL_MESH_TRANSPORT", Value: "rdma", LeftOut: "p0"}}, nil, true, ""},
	}
	for _, tt := range tests {
		if got := namesLeftOut(tt.ours, tt.theirs, "a", "b", tt.rdma); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
