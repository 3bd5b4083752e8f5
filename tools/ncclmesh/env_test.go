package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tools/ncclmesh/jobenv"
)

// A shell gets what to set, people what is in its way; what is set already as it has to be is not.
func TestAdvise(t *testing.T) {
	exports := jobenv.Variables{{Name: "NCCL_NET_PLUGIN", Value: "mesh"}, {Name: "NCCL_NET", Value: "mesh"}}
	const set = "export NCCL_NET_PLUGIN=mesh\nexport NCCL_NET=mesh\n"
	tests := []struct {
		name    string
		present jobenv.Variables
		unset   bool
		stdout  string
		said    []string
		blocked bool
	}{
		{"nothing", nil, false, set, nil, false},
		{"what is set over", jobenv.Variables{{Name: "NCCL_NET_PLUGIN", Value: "none"}, {Name: "NCCL_NET", Value: "IB", Origin: "/etc/nccl.conf"}}, true, set, nil, false},
		{"in the way", jobenv.Variables{{Name: "NCCL_IB_GID_INDEX", Value: "3"}}, false, set, []string{"hinders  NCCL_IB_GID_INDEX=3", "unset it"}, false},
		{"taken away", jobenv.Variables{{Name: "NCCL_IB_GID_INDEX", Value: "3"}, {Name: "NCCL_MESH_TRANSPORT", Value: "ether"}}, true,
			set + "unset NCCL_MESH_TRANSPORT\nunset NCCL_IB_GID_INDEX\n", []string{"blocks   NCCL_MESH_TRANSPORT=ether"}, false},
		{"not to be taken away", jobenv.Variables{{Name: "NCCL_MESH_TRANSPORT", Value: "ether", Origin: "/etc/nccl.conf"}}, true, set,
			[]string{"blocks  NCCL_MESH_TRANSPORT=ether (/etc/nccl.conf)"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			err := advise(&system{stdout: &stdout, stderr: &stderr}, exports, tt.present, jobenv.Node{}, tt.unset)
			if (err != nil) != tt.blocked {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tt.stdout, stdout.String()); diff != "" {
				t.Errorf("for a shell (-want +got):\n%s", diff)
			}
			for _, want := range tt.said {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("it says %q, and not %q", &stderr, want)
				}
			}
			if tt.said == nil && stderr.Len() > 0 {
				t.Errorf("it says %q", &stderr)
			}
		})
	}
}

func TestVersion(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := run(&system{nil, &stdout, &stderr}, []string{"version"})
	if first, rest, _ := strings.Cut(stdout.String(), "\n"); status != 0 || !strings.HasPrefix(first, "ncclmesh "+handshake.Build()+", protocol ") || !strings.HasPrefix(rest, "plugin") {
		t.Errorf("status %d: %q%s", status, &stdout, &stderr)
	}
}
