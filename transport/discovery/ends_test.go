package discovery

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
)

func TestClassifyEnds(t *testing.T) {
	peer, b, c := handshake.NodeID{1}, handshake.NodeID{2}, handshake.NodeID{3}
	at := func(name string, nodes ...handshake.NodeID) (all []Neighbour) {
		for i, n := range nodes {
			all = append(all, Neighbour{Name: name, Node: n, Process: handshake.ProcessID{byte(i)}})
		}
		return all
	}
	type ends = map[string]End
	tests := []struct {
		name     string
		answered []Neighbour
		switches []string
		want     ends
	}{
		{"nobody", nil, nil, ends{}},
		{"the peer", at("p0", peer), nil, ends{"p0": EndPeer}},
		{"two processes of the peer", at("p0", peer, peer), nil, ends{"p0": EndPeer}},
		{"another node", at("p0", b, b), nil, ends{"p0": EndOther}},
		{"the peer and others", at("p0", peer, b, c), nil, ends{"p0": EndSeveral}},
		{"others, and a process of the first again", at("p0", b, c, b), nil, ends{"p0": EndSeveral}},
		{"two cables", append(at("p0", peer), at("p1", c)...), nil, ends{"p0": EndPeer, "p1": EndOther}},
		{"more than are named", at("p0", peer), []string{"mgmt"}, ends{"p0": EndPeer, "mgmt": EndSeveral}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, classifyEnds(tt.answered, tt.switches, peer)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
