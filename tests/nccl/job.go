package nccl

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ncclmesh/tests/fabric"
)

// A Job is one rank on each node of a fabric, all with the same steps. The rank
// program's usage lists those.
type Job struct {
	Rank   string   // the program
	Plugin string   // the library; NCCL's own sockets without
	Env    []string // NAME=VALUE
	Steps  []string
	Apart  bool                    // each rank keeps to a processor, as far as there are
	Line   func(node, line string) // is given what the ranks print, one call at a time
	Ended  func(Result)            // is given how each ended, one call at a time
}

// A Result is how a rank ended.
type Result struct {
	Node   string
	Err    error
	Output string
}

// base are settings of every job: NCCL's own ways between processes are off, and it
// chooses nothing that is not emulated.
var base = []string{
	"NCCL_SOCKET_IFNAME=" + fabric.ManagementIface,
	"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1",
	"NCCL_CUMEM_ENABLE=0", "NCCL_CUMEM_HOST_ENABLE=0", "NCCL_MNNVL_ENABLE=0",
	"NCCL_NVLS_ENABLE=0", "NCCL_COLLNET_ENABLE=0", "NCCL_PROTO=^LL128",
	"NCCL_LOCAL_REGISTER=0", "NCCL_GRAPH_REGISTER=0", "NCCL_RAS_ENABLE=0",
	"NCCL_NET_PLUGIN_REF_COUNT=1", // 2.28.3 to 2.29.7 forget the plugin's name
	"NCCL_DEBUG=WARN",
}

// Settings returns the settings that NCCL needs on the pretend GPU, NAME=value.
func Settings() []string { return slices.Clone(base) }

// with are the settings that choose the network.
func (j *Job) with() []string {
	if j.Plugin == "" {
		return []string{"NCCL_NET=Socket", "NCCL_NET_PLUGIN=none"}
	}
	return []string{"NCCL_NET=mesh", "NCCL_NET_PLUGIN=" + j.Plugin}
}

// start waits for the management network, whose carrier the kernel notices in its own
// time, and makes the node's tree what programs find at /sys.
const start = `until grep -qx up /sys/class/net/` + fabric.ManagementIface + `/operstate; do sleep 0.01; done
mount --bind "$NCCL_MESH_SYSFS" /sys && unset NCCL_MESH_SYSFS && exec "$@"`

// Run runs the job and waits for all ranks.
func (j *Job) Run(ctx context.Context, f *fabric.Fabric) ([]Result, error) {
	dir, err := os.MkdirTemp(f.Dir, "job")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	results := make([]Result, len(f.Nodes))
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, node := range f.Nodes {
		args := []string{"-c", start, "sh"}
		if j.Apart {
			args = append(args, "taskset", "--cpu-list", strconv.Itoa(i%runtime.NumCPU()))
		}
		args = append(append(args, j.Rank, strconv.Itoa(i), strconv.Itoa(len(f.Nodes)), filepath.Join(dir, "id")), j.Steps...)
		cmd := f.Command(ctx, node, "sh", args...)
		cmd.Env = append(append(append(cmd.Env, base...), j.with()...), "NCCL_HOSTID="+node)
		cmd.Env = append(cmd.Env, j.Env...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		all.Go(func() {
			var text strings.Builder
			follow(out, func(line string) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintln(&text, line)
				if j.Line != nil {
					j.Line(node, line)
				}
			})
			results[i] = Result{node, cmd.Wait(), text.String()}
			mu.Lock()
			defer mu.Unlock()
			if j.Ended != nil {
				j.Ended(results[i])
			}
		})
	}
	all.Wait()
	return results, nil
}

func follow(out io.Reader, f func(line string)) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			f(strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

// Failed are the ranks that did not end well, in one error.
func Failed(results []Result) error {
	var errs []error
	for _, r := range results {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w\n%s", r.Node, r.Err, r.Output))
		}
	}
	return errors.Join(errs...)
}

// Checked is how many collectives every rank has compared.
func Checked(results []Result) int {
	least := -1
	for _, r := range results {
		n := 0
		for line := range strings.Lines(r.Output) {
			var rank, some int
			if _, err := fmt.Sscanf(line, "done rank %d: %d checked", &rank, &some); err == nil {
				n += some
			}
		}
		if least < 0 || n < least {
			least = n
		}
	}
	return max(least, 0)
}
