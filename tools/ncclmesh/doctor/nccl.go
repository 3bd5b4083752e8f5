package doctor

import (
	"strconv"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// version of NCCL as a number that may be compared: 2.29.7 is 22907.
func version(s string) int {
	n := 0
	for _, part := range strings.SplitN(s, ".", 3) {
		p, err := strconv.Atoi(part)
		if err != nil {
			return 0
		}
		n = n*100 + p
	}
	return n
}

func ncclVersion(v *verdict) {
	var first *facts.Node
	var before string
	for i := range v.Nodes {
		n := &v.Nodes[i]
		libs, ok := n.Process.NCCL.Get()
		if !ok {
			v.unknown(on(n), n.Process.NCCL.Because())
			continue
		}
		for _, l := range libs {
			if l.Version == "" {
				v.unknown(on(n), l.Path+" does not say which version it is")
				continue
			}
			ofNCCL(n, v, l)
			if first == nil {
				first, before = n, l.Version
			} else if l.Version != before && n != first {
				v.warn(both(first.Name, n.Name), "run the same NCCL on all nodes", "NCCL %s on %s, %s on %s", before, first.Name, l.Version, n.Name)
			}
		}
	}
}

// ofNCCL says what is known of a version.
func ofNCCL(n *facts.Node, v *verdict, l facts.Library) {
	env, _ := n.Process.Env.Get()
	switch at := version(l.Version); {
	case at < 21200:
		v.fail(on(n), "upgrade NCCL to 2.12 or later", "NCCL %s (%s) has none of the plugin interfaces that this plugin offers", l.Version, l.Path)
	case at >= 22602 && at <= 22707:
		v.warn(on(n), "upgrade NCCL to 2.28 or later", "NCCL %s loses errors of its network: a job whose peer died hangs", l.Version)
	case n.Arch == "arm64" && at < 22903:
		v.warn(on(n), "upgrade NCCL to 2.29.3 or later", "NCCL %s may hang on arm64: it loses slots of its proxy", l.Version)
	}
	if at := version(l.Version); at >= 22803 && at <= 22907 && env["NCCL_NET_PLUGIN"] != "" && env["NCCL_NET_PLUGIN_REF_COUNT"] != "1" {
		v.warn(on(n), "set NCCL_NET_PLUGIN_REF_COUNT=1", "NCCL %s forgets the plugin's name when its last communicator ends", l.Version)
	}
}
