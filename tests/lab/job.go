package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A DriverJob is one run of the program that stands in for NCCL: a rank on every node of the mesh. Plugin and program must be in
// /job.
type DriverJob struct {
	Args []string          // beside those that place the rank
	Env  map[string]string // of every rank
	Port int               // where rank 0 waits for the others
}

// Names of the files that a DriverJob expects in /job.
const (
	PluginFile = "libnccl-net-mesh.so"
	DriverFile = "netdriver"
)

// Script returns the script to be run in all machines of a mesh.
func (j DriverJob) Script(m Mesh) string {
	var b strings.Builder
	b.WriteString("export NCCL_DEBUG=${NCCL_DEBUG:-WARN}\n")
	for _, name := range slices.Sorted(maps.Keys(j.Env)) {
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(j.Env[name]))
	}
	for i, name := range m.Machines {
		fmt.Fprintf(&b, "[ $NODE = %s ] && rank=%d\n", name, i)
	}
	fmt.Fprintf(&b, "./%s --plugin ./%s --rank $rank --nranks %d --rendezvous %s:%d", DriverFile, PluginFile, len(m.Machines), m.ManagementAddr(m.Machines[0]), j.Port)
	for _, a := range j.Args {
		b.WriteString(" " + quote(a))
	}
	b.WriteString("\n")
	return b.String()
}

// quote makes any string one word of a shell command.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// CounterScript prints the named hardware counters of every RDMA device, a line each.
func CounterScript(names ...string) string {
	var b strings.Builder
	b.WriteString(". /lab/lib.sh\n")
	for _, n := range names {
		fmt.Fprintf(&b, "hw_counter %s\n", n)
	}
	return b.String()
}

// A Counter is one line of a CounterScript's output.
type Counter struct {
	Device, Name string
	Value        int64
}

// ParseCounters reads the output of a CounterScript.
func ParseCounters(output string) ([]Counter, error) {
	var all []Counter
	for line := range strings.Lines(output) {
		var c Counter
		if n, err := fmt.Sscanf(line, "%s %s %d", &c.Device, &c.Name, &c.Value); n != 3 {
			return nil, fmt.Errorf("hardware counters: cannot read %q: %w", strings.TrimSpace(line), err)
		}
		all = append(all, c)
	}
	return all, nil
}
