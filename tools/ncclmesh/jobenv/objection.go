package jobenv

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ncclmesh/ncclnet/config"
	"ncclmesh/transport/topology"
)

// How much a variable is in the way.
const (
	Blocks  = "blocks"  // the plugin is not used, or refuses to start
	Hinders = "hinders" // it is used, and not as well as it might be
	Idle    = "idle"    // says nothing to the plugin, though it looks so
)

// An Objection is a variable that works against the plugin.
type Objection struct {
	Variable
	Severity string `json:"severity"`
	Why      string `json:"why"`
	Do       string `json:"do"`
}

// A Node is what objections are judged by beside the variables.
type Node struct {
	Interfaces []string                // names of network interfaces
	Ports      []topology.Port         // of RDMA devices
	Exists     func(path string) bool  // whether a file is there
	Identify   func(path string) error // why a file is not this project's library; nil if it is
}

// Against returns what works against the plugin, the worst first.
func Against(v Variables, node Node) []Objection {
	var list []Objection
	if strings.EqualFold(strings.TrimSpace(v.Getenv("NCCL_MESH_TRANSPORT")), "tcp") {
		node.Ports = nil // which nothing has to select then
	}
	for _, s := range config.Settings(v.Getenv) {
		if s.Err != nil {
			x, _ := v.Get(s.Err.Name)
			list = append(list, Objection{x, Blocks, "the plugin does not start with it: " + s.Err.Err.Error(), "correct it or unset it"})
		}
	}
	for _, x := range v {
		for _, line := range config.Unknown([]string{x.Name + "="}) {
			list = append(list, Objection{x, Idle, strings.TrimPrefix(line, x.Name+" "), "correct its name or unset it"})
		}
		if r, ok := rules[x.Name]; ok {
			if o := r(strings.TrimSpace(x.Value), node); o != nil {
				o.Variable = x
				list = append(list, *o)
			}
		}
	}
	order := []string{Blocks, Hinders, Idle}
	slices.SortStableFunc(list, func(a, b Objection) int {
		return slices.Index(order, a.Severity) - slices.Index(order, b.Severity)
	})
	return list
}

// A rule says what a value does to the plugin; nil where that is nothing.
type rule func(value string, node Node) *Objection

const unset = "unset it"

// rules are NCCL's and the loader's variables that people have set for other networks, other cabling or other libraries.
var rules = map[string]rule{
	"NCCL_NET_PLUGIN": plugin,
	"NCCL_NET": func(value string, _ Node) *Objection {
		if value == "" || strings.EqualFold(value, "mesh") {
			return nil
		}
		return &Objection{Severity: Blocks, Why: "NCCL uses the network of that name and no other; the plugin's is mesh", Do: "set it to mesh"}
	},
	"NCCL_TUNER_PLUGIN": func(value string, _ Node) *Objection {
		if value == "" || value == "mesh" || filepath.Base(value) == "libnccl-net-mesh.so" {
			return nil
		}
		return &Objection{Severity: Hinders, Why: "another tuner decides, which does not know the mesh", Do: unset}
	},
	"NCCL_IB_GID_INDEX": func(value string, _ Node) *Objection {
		switch value {
		case "-1":
			return nil
		case "":
			return &Objection{Severity: Idle, Why: "the plugin takes an empty value for unset, NCCL's own transport for 0", Do: unset}
		}
		return &Objection{Severity: Hinders, Why: "the index differs between nodes, and changes when a neighbour reboots; the plugin finds the right one", Do: unset}
	},
	"NCCL_SOCKET_IFNAME": interfaces("the network that connections are set up over"),
	"NCCL_MESH_IFNAME":   interfaces("the network of TCP lanes"),
	"NCCL_IB_HCA":        devices,
	"NCCL_IB_DISABLE": func(value string, _ Node) *Objection {
		if value == "" || value == "0" {
			return nil
		}
		return &Objection{Severity: Idle, Why: "is the switch of NCCL's own transport, and no longer rules RDMA out", Do: "set NCCL_MESH_TRANSPORT=tcp if RDMA is to be ruled out"}
	},
	"NCCL_ALGO":                    recipe("NCCL's choice of algorithm, which the plugin's tuner makes by size and cabling"),
	"NCCL_PROTO":                   recipe("NCCL's choice of protocol, which the plugin's tuner makes by size and cabling"),
	"NCCL_MAX_NCHANNELS":           recipe("how many channels NCCL uses, which the plugin's tuner chooses by size"),
	"NCCL_MIN_NCHANNELS":           recipe("how many channels NCCL uses, which the plugin's tuner chooses by size"),
	"NCCL_MAX_CTAS":                recipe("how many channels NCCL uses, which the plugin's tuner chooses by size"),
	"NCCL_MIN_CTAS":                recipe("how many channels NCCL uses, which the plugin's tuner chooses by size"),
	"NCCL_IB_SUBNET_AWARE_ROUTING": idle,
	"NCCL_IB_MERGE_NICS":           idle,
	"NCCL_DEBUG_FILE": func(value string, node Node) *Objection {
		if value == "" || strings.Contains(filepath.Dir(value), "%") || node.Exists(filepath.Dir(value)) {
			return nil
		}
		return &Objection{Severity: Hinders, Why: "its directory does not exist here, so the errors of NCCL and the plugin are lost", Do: "make or mount " + filepath.Dir(value) + ", or unset it"}
	},
	"LD_PRELOAD": func(value string, node Node) *Objection {
		for _, path := range strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' }) {
			if strings.Contains(path, "/") && !node.Exists(path) {
				return &Objection{Severity: Hinders, Why: path + " does not exist here, and the loader ignores that", Do: "correct it or unset it"}
			}
		}
		return nil
	},
	"VLLM_NCCL_SO_PATH": func(value string, node Node) *Objection {
		if value == "" || node.Exists(value) {
			return nil
		}
		return &Objection{Severity: Blocks, Why: "the NCCL that vLLM should load does not exist here", Do: "correct it or unset it"}
	},
}

// plugin judges what NCCL is told to load. From 2.27 on that is a list.
func plugin(value string, node Node) *Objection {
	const do = "set it to mesh, or to the path of libnccl-net-mesh.so"
	if value == "" {
		return &Objection{Severity: Blocks, Why: "empty counts as unset: NCCL looks for libnccl-net.so, which may be another plugin", Do: do}
	}
	var why []string
	for name := range strings.SplitSeq(value, ",") {
		switch {
		case name == "mesh":
			return nil
		case name == "none":
			why = append(why, "none loads no plugin at all")
		case strings.Contains(name, "/"):
			err := node.Identify(name)
			if err == nil {
				return nil
			}
			why = append(why, err.Error())
		case name == "libnccl-net-mesh.so":
			return nil
		default:
			why = append(why, name+" is another plugin")
		}
	}
	return &Objection{Severity: Blocks, Why: strings.Join(why, "; "), Do: do}
}

// interfaces judges a list of those to use. What it excludes does not have to be there.
func interfaces(what string) rule {
	return func(value string, node Node) *Objection {
		if value == "" || strings.HasPrefix(value, "^") {
			return nil
		}
		list, whole := strings.CutPrefix(value, "=")
		for name := range strings.SplitSeq(list, ",") {
			if slices.ContainsFunc(node.Interfaces, func(here string) bool { return here == name || !whole && strings.HasPrefix(here, name) }) {
				return nil
			}
		}
		return &Objection{Severity: Blocks, Why: fmt.Sprintf("%s: this node has no such interface (it has %s)", what, strings.Join(node.Interfaces, ", ")),
			Do: "set it on each node to what that node has, or unset it"}
	}
}

// devices judges a list of RDMA devices. One that selects no port of the node keeps the plugin from starting.
func devices(value string, node Node) *Objection {
	if _, err := topology.ParseHCA(value); err != nil {
		return nil // a value that is not accepted is an objection already
	}
	selects := func(list string) bool {
		filter, err := topology.ParseHCA(list)
		return err != nil || len(node.Ports) == 0 || len(filter.Select(node.Ports)) > 0
	}
	has := strings.Join(topology.Names(node.Ports), ", ")
	const do = "set it on each node to what that node has, or unset it"
	if !selects(value) {
		return &Objection{Severity: Blocks, Why: "matches none of the RDMA ports of this node (it has " + has + ")", Do: do}
	}
	if value == "" || strings.HasPrefix(value, "^") {
		return nil
	}
	list, whole := strings.CutPrefix(value, "=")
	for name := range strings.SplitSeq(list, ",") {
		if whole {
			name = "=" + name
		}
		if strings.Trim(name, "=") != "" && !selects(name) {
			return &Objection{Severity: Hinders, Why: fmt.Sprintf("%s is none of the RDMA ports of this node (it has %s)", strings.Trim(name, "="), has), Do: do}
		}
	}
	return &Objection{Severity: Hinders, Why: "only these ports are used, and names differ between nodes; without it the plugin uses all with a validated path, both halves of each cable", Do: "unset it, unless that is what you want"}
}

func recipe(what string) rule {
	return func(value string, _ Node) *Objection {
		if value == "" {
			return nil
		}
		return &Objection{Severity: Hinders, Why: "overrides " + what, Do: "unset it, unless you have measured that it helps"}
	}
}

func idle(string, Node) *Objection {
	return &Objection{Severity: Idle, Why: "is a setting of NCCL's own transport, and has no effect here", Do: unset}
}

// String is an objection in one line.
func (o Objection) String() string {
	where := ""
	if o.Origin != "" {
		where = " (" + o.Origin + ")"
	}
	return fmt.Sprintf("%s=%s%s %s: %s; %s", o.Name, Shown(o.Name, o.Value), where, o.Severity, o.Why, o.Do)
}
