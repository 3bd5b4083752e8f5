package doctor

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// told is the judged environment; that nobody could read it is said.
func told(n *facts.Node, v *verdict) (map[string]string, bool) {
	env, ok := n.Process.Env.Get()
	if !ok {
		v.unknown(on(n), n.Process.Env.Because())
	}
	return env, ok
}

func envInvalid(n *facts.Node, v *verdict) {
	if _, ok := told(n, v); !ok {
		return
	}
	const refused = "correct it or unset it; jobs do not start with it"
	for _, said := range n.Process.Refused {
		v.fail(on(n), refused, "%s", said)
	}
	if c := choiceOf(n); c.transport != "tcp" {
		if found, _ := n.Topology.Get(); len(found.Ports) > 0 && len(c.hca.Select(found.Ports)) == 0 {
			v.fail(on(n), refused, "%s matches none of the RDMA ports of the node, which are %s", c.setting("NCCL_IB_HCA", c.hca.String()), strings.Join(topology.Names(found.Ports), ", "))
		}
	}
	for _, said := range n.Process.Unheard {
		v.warn(on(n), "correct or remove it", "%s", said)
		v.found[len(v.found)-1].moot = true
	}
}

// recipe are settings of recipes for NCCL's own transport on such meshes, and what they do here.
var recipe = map[string]string{
	"NCCL_ALGO":                       "restricts the tuner",
	"NCCL_PROTO":                      "restricts the tuner",
	"NCCL_MIN_NCHANNELS":              "restricts the tuner",
	"NCCL_MAX_NCHANNELS":              "restricts the tuner",
	"NCCL_NCHANNELS_PER_NET_PEER":     "restricts the tuner",
	"NCCL_IB_HCA":                     "leaves ports out",
	"NCCL_IB_SUBNET_AWARE_ROUTING":    "has no effect",
	"NCCL_IB_MERGE_NICS":              "has no effect",
	"NCCL_IB_SPLIT_DATA_ON_QPS":       "has no effect",
	"NCCL_NET_MERGE_POLICY":           "has no effect",
	"NCCL_CROSS_NIC":                  "has no effect on one device",
	"NCCL_SKIP_TREE_CONNECT":          "was for a patched NCCL",
	"NCCL_RUNTIME_CONNECT":            "was for rings whose trees fail",
	"VLLM_NCCL_SO_PATH":               "was for a patched NCCL",
	"NCCL_MESH_GID_INDEX":             "pins what differs between nodes and boots",
	"NCCL_IB_DISABLE":                 "concerns another transport",
	"NCCL_IB_USE_INLINE":              "has no effect",
	"NCCL_NET_SHARED_BUFFERS":         "was for a patched NCCL",
	"NCCL_IB_ADAPTIVE_ROUTING":        "has no effect",
	"NCCL_IB_RETURN_ASYNC_EVENTS":     "has no effect",
	"NCCL_IB_OOO_RQ":                  "has no effect",
	"NCCL_IB_WARN_RAIL_LOCAL":         "has no effect",
	"NCCL_IB_ROUTABLE_FLID_GID_INDEX": "has no effect",
}

// envRecipe says nothing of settings that port-left-out reports.
func envRecipe(v *verdict) {
	leftOut := v.leftOut()
	for i := range v.Nodes {
		n := &v.Nodes[i]
		env, ok := told(n, v)
		if !ok {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(env)) {
			does, listed := recipe[name]
			fault := slices.ContainsFunc(leftOut, func(f Finding) bool { return f.setting == blamed{n.Name, name} })
			if listed && !fault && env[name] != "" {
				v.info(on(n), "", "%s=%s%s is not needed here: it %s", name, env[name], in(n.Process.Origin[name]), does)
			}
		}
	}
}

// froze are settings that froze jobs which did not know that they had them.
var froze = []string{"NCCL_IB_USE_INLINE", "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS", "NCCL_IB_RECEIVER_SIDE_MATCHING_SCHEME", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_MAX_NCHANNELS"}

func ncclConf(n *facts.Node, v *verdict) {
	lines, ok := n.Process.Conf.Get()
	if !ok {
		v.unknown(on(n), n.Process.Conf.Because())
		return
	}
	for _, l := range lines {
		if slices.Contains(froze, l.Name) {
			v.warn(on(n), fmt.Sprintf("remove line %d of %s, unless you put it there", l.Line, l.File), "%s sets %s=%s for every job on the node", l.File, l.Name, l.Value)
		} else {
			v.info(on(n), "", "%s sets %s=%s for every job on the node", l.File, l.Name, l.Value)
		}
	}
}

func ncclPreload(n *facts.Node, v *verdict) {
	libs, ok := n.Process.Preload.Get()
	if !ok {
		v.unknown(on(n), n.Process.Preload.Because())
		return
	}
	for _, l := range libs {
		if l.Missing {
			v.warn(on(n), "remove it from LD_PRELOAD, or correct the path", "LD_PRELOAD names %s, which does not exist: the loader ignores that", l.Path)
		}
	}
	if mapped, ok := n.Process.NCCL.Get(); ok && n.Process.PID != 0 && len(mapped) > 1 {
		v.fail(on(n), "keep only the one that the framework brings", "process %d has %d libraries of NCCL: %s", n.Process.PID, len(mapped), paths(mapped))
	}
}

func paths(libs []facts.Library) string {
	names := make([]string, len(libs))
	for i, l := range libs {
		names[i] = l.Path
	}
	return strings.Join(names, ", ")
}

func debugFile(n *facts.Node, v *verdict) {
	dir, ok := n.Process.DebugTo.Get()
	if !ok {
		v.unknown(on(n), n.Process.DebugTo.Because())
	} else if dir.Missing {
		v.warn(on(n), "make the directory, or mount it into the container", "NCCL_DEBUG_FILE is in %s, which does not exist: the log is lost", dir.Path)
	}
}

func pluginDisabled(n *facts.Node, v *verdict) {
	env, ok := told(n, v)
	if !ok {
		return
	}
	const remedy = "see what to set: ncclmesh env"
	if env["NCCL_NET_PLUGIN"] == "none" {
		v.fail(on(n), remedy, "NCCL_NET_PLUGIN=none%s: NCCL loads no plugin", in(n.Process.Origin["NCCL_NET_PLUGIN"]))
	}
	if net := env["NCCL_NET"]; net != "" && !strings.EqualFold(net, "mesh") {
		v.fail(on(n), remedy, "NCCL_NET=%s%s: NCCL takes that network, not this plugin's, which is Mesh", net, in(n.Process.Origin["NCCL_NET"]))
	}
}

// pluginPath is how a job gets the plugin wherever it is.
const pluginPath = "set NCCL_NET_PLUGIN to the full path of libnccl-net-mesh.so"

func pluginOther(n *facts.Node, v *verdict) {
	if n.Process.PID != 0 {
		pluginOfJob(n, v)
		return
	}
	env, _ := n.Process.Env.Get()
	asked, pinned := env["NCCL_NET_PLUGIN"], strings.EqualFold(env["NCCL_NET"], "mesh")
	installed, _ := n.Process.Installed.Get()
	remedy := `run eval "$(ncclmesh env)" before the job, or ` + pluginPath
	if !installed.Ours {
		remedy = "install the package libnccl-net-mesh, or " + pluginPath
	}
	instead := "NCCL would take a network of its own"
	if pinned {
		instead = "a job does not start, because NCCL_NET=mesh allows no other network"
	}
	switch would, ok := n.Process.Plugin.Get(); {
	case !ok:
		v.unknown(on(n), n.Process.Plugin.Because())
	case would.Missing:
		v.fail(on(n), remedy, "NCCL_NET_PLUGIN names %s, which does not exist: %s", would.Path, instead)
	case would.Ours, asked == "none": // which plugin-disabled reports
	case would.Path != "" && pinned:
		v.fail(on(n), remedy, "a job with this environment would load %s, which is another plugin: %s", would.Path, instead)
	case would.Path != "":
		v.warn(on(n), remedy, "a job with this environment would load %s, which is another plugin", would.Path)
	case asked != "":
		v.fail(on(n), remedy, "NCCL_NET_PLUGIN=%s names no library that the loader finds: %s", asked, instead)
	case pinned:
		v.fail(on(n), remedy, "NCCL_NET_PLUGIN is not set, and the loader finds no libnccl-net.so: %s", instead)
	case !installed.Ours:
		v.info(on(n), "", "a job with this environment would find no plugin; ncclmesh env says what to set")
	}
}

// pluginUnloadable looks at what came of loading what a job would.
func pluginUnloadable(n *facts.Node, v *verdict) {
	switch l, ok := n.Process.Loaded.Get(); {
	case !ok:
		v.unknown(on(n), n.Process.Loaded.Because())
	case l.Try.Failed():
		remedy := "read the error, and install what it misses, or a library that was built for this system"
		if strings.Contains(l.Try.Error, "GLIBC") {
			remedy = "take a library that was built for this system or an older one, or a newer system or container: the C library here is too old for it"
		}
		v.fail(on(n), remedy, "%s cannot be loaded: %s", l.Path, l.Try.Error)
	}
}

// pluginOfJob looks at what a running job has loaded.
func pluginOfJob(n *facts.Node, v *verdict) {
	const remedy = pluginPath
	mapped, ok := n.Process.Mapped.Get()
	if !ok {
		v.unknown(on(n), n.Process.Mapped.Because())
		return
	}
	plugins := slices.DeleteFunc(slices.Clone(mapped), func(l facts.Library) bool { return !strings.HasPrefix(filepath.Base(l.Path), "libnccl-net") })
	switch {
	case len(mapped) == 0:
		v.unknown(on(n), fmt.Sprintf("process %d has not loaded NCCL as a library", n.Process.PID))
	case len(plugins) == 0:
		v.fail(on(n), remedy, "process %d has loaded NCCL, and no network plugin", n.Process.PID)
	case !slices.ContainsFunc(plugins, func(l facts.Library) bool { return l.Ours }):
		v.fail(on(n), remedy, "process %d has loaded another plugin: %s", n.Process.PID, paths(plugins))
	}
}
