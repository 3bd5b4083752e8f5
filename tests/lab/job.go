package lab

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A DriverJob is one run of the program that stands in for NCCL: a rank on every node of the mesh, or on some. Plugin and program must be in
// /job.
type DriverJob struct {
	Args []string          // beside those that place the rank
	Env  map[string]string // of every rank
	Port int               // where rank 0 waits for the others
	On   []string          // the machines that have a rank, of several; nil: all
}

// Names of the files that a DriverJob expects in /job.
const (
	PluginFile = "libnccl-net-mesh.so"
	DriverFile = "netdriver"
)

// Script returns the script to be run in all machines of a mesh. In one machine all ranks run beside each other, each with an
// identity and ports of its own; their output is prefixed with the rank's name.
func (j DriverJob) Script(m Mesh) string {
	var b strings.Builder
	b.WriteString("export NCCL_DEBUG=${NCCL_DEBUG:-WARN}\n")
	for _, name := range slices.Sorted(maps.Keys(j.Env)) {
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(j.Env[name]))
	}
	var args strings.Builder
	for _, a := range j.Args {
		args.WriteString(" " + quote(a))
	}
	start := func(nranks int, host string) string {
		return fmt.Sprintf("./%s --plugin ./%s --rank $rank --nranks %d --rendezvous %s:%d%s",
			DriverFile, PluginFile, nranks, host, j.Port, args.String())
	}
	if len(m.Machines) > 1 {
		on := m.Machines
		if j.On != nil {
			on = j.On
			b.WriteString("rank=\n")
		}
		for i, name := range on {
			fmt.Fprintf(&b, "[ $NODE = %s ] && rank=%d\n", name, i)
		}
		if j.On != nil {
			b.WriteString("[ -n \"$rank\" ] || exit 0\n")
		}
		b.WriteString(start(len(on), m.ManagementAddr(on[0]).String()) + "\n")
		return b.String()
	}
	ranks := m.ranks()
	names := slices.Sorted(maps.Keys(ranks))
	b.WriteString("rank=0 pids=\n")
	for _, name := range names {
		fmt.Fprintf(&b, "NCCL_HOSTID=%s NCCL_IB_HCA==%s %s > >(sed -u 's/^/%s: /') 2>&1 &\npids=\"$pids $!\" rank=$((rank+1))\n",
			Host(name), strings.Join(ranks[name], ","), start(len(ranks), "127.0.0.1"), name)
	}
	b.WriteString("worst=0\nfor p in $pids; do wait $p; s=$?; [ $s -gt $worst ] && worst=$s; done\nexit $worst\n")
	return b.String()
}

// ranks returns the devices of each rank in a mesh of one machine: the port xy belongs to rank x.
func (m Mesh) ranks() map[string][]string {
	r := make(map[string][]string)
	for _, e := range m.Ports(m.Machines[0]) {
		r[e.Iface[:1]] = append(r[e.Iface[:1]], e.Device)
	}
	return r
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
