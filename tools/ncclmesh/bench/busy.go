package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ncclmesh/transport/window"
)

// plugin is what a job has mapped that uses the mesh.
const plugin = "libnccl-net-mesh.so"

// watch is how long ports are looked at for traffic, and quiet what they may carry meanwhile.
const (
	watch = 250 * time.Millisecond
	quiet = 4 << 20 // bytes
)

// host is where signs of running jobs are looked for.
type host struct{ proc, sysfs string }

// busy says what runs on the node that a measurement would disturb, one line for each.
func (h host) busy() (signs []string) {
	before := h.traffic()
	time.Sleep(watch)
	for port, bytes := range h.traffic() {
		if moved := bytes - before[port]; moved > quiet && before[port] > 0 {
			signs = append(signs, fmt.Sprintf("%s carries %.2f GB/s", port, float64(moved)/watch.Seconds()/1e9))
		}
	}
	slices.Sort(signs)
	if pids := h.mapped(); len(pids) > 0 {
		signs = append(signs, fmt.Sprintf("a job has the plugin loaded (process %s)", strings.Join(pids, ", ")))
	} else if n := h.windows(); n > 0 { // of others' processes the mappings cannot be read
		signs = append(signs, fmt.Sprintf("%d processes show counters of the mesh (@ncclmesh/ in /proc/net/unix)", n))
	}
	return signs
}

// traffic is what ports have carried so far, in both directions, in bytes. sysfs counts words.
func (h host) traffic() map[string]int64 {
	all := map[string]int64{}
	files, _ := filepath.Glob(filepath.Join(h.sysfs, "class/infiniband/*/ports/*/counters/port_*_data"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		words, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil {
			part := strings.Split(file, "/")
			all[part[len(part)-5]+":"+part[len(part)-3]] += 4 * words
		}
	}
	return all
}

// mapped are the processes of this node that have the plugin loaded, of those that may be looked
// at. Others of the machine, in network namespaces of their own, are other nodes.
func (h host) mapped() (pids []string) {
	own, _ := os.Readlink(filepath.Join(h.proc, "self/ns/net"))
	files, _ := filepath.Glob(filepath.Join(h.proc, "[0-9]*/maps"))
	for _, file := range files {
		dir := filepath.Dir(file)
		if net, err := os.Readlink(filepath.Join(dir, "ns/net")); err != nil || net != own {
			continue
		}
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), plugin) {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}

// windows are the sockets by which processes show their counters.
func (h host) windows() int {
	f, err := os.Open(filepath.Join(h.proc, "net/unix"))
	if err != nil {
		return 0
	}
	defer f.Close()
	names, _ := window.Find(f)
	return len(names)
}

// fraction of the memory that is free which buffers may take: a host whose memory is also the
// GPU's freezes when it runs out.
const fraction = 8

// memBytes is how much memory may be used for buffers: a part of MemAvailable, or 64 MiB where
// that is not known.
func (h host) memBytes() int64 {
	text, _ := os.ReadFile(filepath.Join(h.proc, "meminfo"))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			if kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64); err == nil {
				return kib << 10 / fraction
			}
		}
	}
	return 64 << 20
}
