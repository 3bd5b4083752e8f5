package config

import (
	"path/filepath"
	"strings"

	"ncclmesh/handshake"
)

// agreements are the variables of this plugin that should be equal on all ranks, and the rule for a difference. With
// different tuning, two ranks choose different algorithms and wait for each other for ever.
var agreements = map[string]handshake.Rule{
	"NCCL_MESH_TUNER":    handshake.RuleSame,
	"NCCL_MESH_TOPOLOGY": handshake.RuleSame,
	"NCCL_MESH_RELAY":    handshake.RuleSettled,
	"NCCL_MESH_KEY":      handshake.RuleSettled, // compared only by whether it is set
}

// sameToNCCL are variables of NCCL by which every rank decides independently on the algorithm and protocol of a
// collective, the number of channels, the sizes of chunks, or when connections are made. NCCL does not compare them,
// and a job hangs if its ranks differ in one of them.
var sameToNCCL = []string{
	"NCCL_TUNER_PLUGIN", "NCCL_ALGO", "NCCL_PROTO", "NCCL_PAT_ENABLE", "NCCL_RUNTIME_CONNECT",
	"NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
	"NCCL_NTHREADS", "NCCL_LL128_NTHREADS",
	"NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE",
	"NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_NET_PEER", "NCCL_P2P_NET_CHUNKSIZE",
}

// Told returns the settings that a process sends to its peers for comparison with theirs. A variable that is unset and
// one that is set to its default have the same value.
func Told(getenv func(string) string) []handshake.Setting {
	var all []handshake.Setting
	for _, s := range Settings(getenv) {
		rule := agreements[s.Name]
		if rule == handshake.RuleOwn {
			continue
		}
		value := strings.ToLower(s.Value)
		if s.Name == secret {
			value = ""
			if s.Origin != "" {
				value = "set"
			}
		}
		all = append(all, handshake.Setting{Name: s.Name, Value: value, Rule: rule})
	}
	for _, name := range sameToNCCL {
		value := strings.ToLower(strings.TrimSpace(getenv(name)))
		if name == "NCCL_TUNER_PLUGIN" {
			value = tunerOf(value)
		}
		all = append(all, handshake.Setting{Name: name, Value: value, Rule: handshake.RuleSame})
	}
	return all
}

// tunerOf returns the name of the tuner in NCCL_TUNER_PLUGIN, without its folder, which may differ between nodes. It
// returns "" for this plugin's tuner, which NCCL also uses if the variable is unset.
func tunerOf(value string) string {
	name := strings.TrimSuffix(filepath.Base(value), ".so")
	switch name {
	case ".", "mesh", "libnccl-net-mesh", "libnccl-tuner-mesh":
		return ""
	}
	return strings.TrimPrefix(name, "libnccl-tuner-")
}
