package config

import (
	"path/filepath"
	"strings"

	"ncclmesh/handshake"
)

// agreements are the variables of this plugin that are meant to be the same on all ranks, and what it means that they are
// not. Without the same tuning two ranks choose different algorithms, and wait for each other for ever.
var agreements = map[string]handshake.Rule{
	"NCCL_MESH_TUNER":    handshake.RuleSame,
	"NCCL_MESH_TOPOLOGY": handshake.RuleSame,
	"NCCL_MESH_RELAY":    handshake.RuleSettled,
	"NCCL_MESH_KEY":      handshake.RuleSettled, // of which only is told whether there is one
}

// sameToNCCL are variables of NCCL by which every rank for itself decides the algorithm and protocol of a collective, the
// number of channels, the sizes of the chunks, or when connections are made. NCCL does not compare them, and a job hangs
// whose ranks differ in one.
var sameToNCCL = []string{
	"NCCL_TUNER_PLUGIN", "NCCL_ALGO", "NCCL_PROTO", "NCCL_PAT_ENABLE", "NCCL_RUNTIME_CONNECT",
	"NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
	"NCCL_NTHREADS", "NCCL_LL128_NTHREADS",
	"NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE",
	"NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_NET_PEER", "NCCL_P2P_NET_CHUNKSIZE",
}

// Told returns what a process tells its peers of its settings, to be compared with theirs. A variable that is unset and one
// that is set to its default are the same.
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

// tunerOf returns which tuner NCCL_TUNER_PLUGIN names, whatever folder it is in on this node; "" where it is this
// plugin's, which NCCL takes where none is named.
func tunerOf(value string) string {
	name := strings.TrimSuffix(filepath.Base(value), ".so")
	switch name {
	case ".", "mesh", "libnccl-net-mesh", "libnccl-tuner-mesh":
		return ""
	}
	return strings.TrimPrefix(name, "libnccl-tuner-")
}
