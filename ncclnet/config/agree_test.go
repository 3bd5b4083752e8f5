package config

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
)

// The comparison of two ranks' settings.
func TestTold(t *testing.T) {
	difference := func(name, ours, theirs string, rule handshake.Rule) []handshake.Difference {
		return []handshake.Difference{{Name: name, Ours: ours, Theirs: theirs, Rule: rule}}
	}
	const same, settled = handshake.RuleSame, handshake.RuleSettled
	type env = map[string]string
	tests := []struct {
		name         string
		ours, theirs env
		want         []handshake.Difference
	}{
		{"nothing set", nil, nil, nil},
		{"the tuner", env{"NCCL_MESH_TUNER": "0"}, nil, difference("NCCL_MESH_TUNER", "0", "1", same)},
		{"the default", env{"NCCL_MESH_TUNER": "1", "NCCL_MESH_TOPOLOGY": "AUTO"}, nil, nil},
		{"the topology", env{"NCCL_MESH_TOPOLOGY": "Ring"}, env{"NCCL_MESH_TOPOLOGY": "full"}, difference("NCCL_MESH_TOPOLOGY", "ring", "full", same)},
		{"another tuner", env{"NCCL_TUNER_PLUGIN": "/opt/libother.so"}, nil, difference("NCCL_TUNER_PLUGIN", "libother", "", same)},
		{"another tuner in another folder", env{"NCCL_TUNER_PLUGIN": "/opt/libother.so"}, env{"NCCL_TUNER_PLUGIN": "/usr/lib/libother.so"}, nil},
		{"another tuner by its short name", env{"NCCL_TUNER_PLUGIN": "other"}, env{"NCCL_TUNER_PLUGIN": "libnccl-tuner-other.so"}, nil},
		{"no tuner", env{"NCCL_TUNER_PLUGIN": "none"}, nil, difference("NCCL_TUNER_PLUGIN", "none", "", same)},
		{"this plugin's tuner, named", env{"NCCL_TUNER_PLUGIN": "/opt/libnccl-net-mesh.so"}, env{"NCCL_TUNER_PLUGIN": "mesh"}, nil},
		{"this plugin's tuner, unnamed", env{"NCCL_TUNER_PLUGIN": "mesh"}, nil, nil},
		{"NCCL's algorithm", env{"NCCL_ALGO": "Tree"}, env{"NCCL_ALGO": " ring "}, difference("NCCL_ALGO", "tree", "ring", same)},
		{"NCCL's algorithm in other letters", env{"NCCL_ALGO": "Tree"}, env{"NCCL_ALGO": "tree"}, nil},
		{"NCCL's channels", env{"NCCL_MAX_NCHANNELS": "4"}, nil, difference("NCCL_MAX_NCHANNELS", "4", "", same)},
		{"relaying", env{"NCCL_MESH_RELAY": "0"}, nil, difference("NCCL_MESH_RELAY", "0", "auto", settled)},
		{"a key", env{"NCCL_MESH_KEY": "correct horse"}, nil, difference("NCCL_MESH_KEY", "set", "", settled)},
		{"another key, which is not told", env{"NCCL_MESH_KEY": "correct horse"}, env{"NCCL_MESH_KEY": "battery staple"}, nil},
		{"each node's own", env{"NCCL_IB_HCA": "mlx5_0", "NCCL_SOCKET_IFNAME": "eth0", "NCCL_MESH_TRANSPORT": "tcp"}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ours, theirs := Told(envOf(tt.ours)), Told(envOf(tt.theirs))
			if diff := cmp.Diff(tt.want, handshake.Differences(ours, theirs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, s := range ours {
				if strings.Contains(s.Value, "horse") {
					t.Errorf("the key is told: %+v", s)
				}
			}
		})
	}
}

// The settings fit the limits of the message, each variable that must be equal is one that is read, and the table says
// that it must be equal.
func TestAgreements(t *testing.T) {
	if n := len(Told(envOf(nil))); n > handshake.MaxSettings/2 { // the other half is for ports
		t.Errorf("%d settings are told", n)
	}
	for _, name := range slices.Sorted(maps.Keys(agreements)) {
		i := slices.IndexFunc(variables, func(v Variable) bool { return v.Name == name })
		if i < 0 {
			t.Errorf("%s is not read", name)
		} else if m := variables[i].Meaning; agreements[name] == handshake.RuleSame && !strings.Contains(m, "Must be the same on all ranks") {
			t.Errorf("%s: the table does not say that it is the same on all ranks: %s", name, m)
		}
	}
}
