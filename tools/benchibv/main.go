package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ncclmesh/transport/topology"
)

const usage = `usage: benchibv [flags]

Runs on a node of tests/fakeverbs: "make bench-ibv" sets that up. Prints one line:
bench name=post+poll-8B value=NS unit=ns limit=NS-OF-C ratio=R

flags:
`

func main() {
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage); flag.PrintDefaults() }
	loop := flag.String("loop", "", "the C loop")
	runs := flag.Int("runs", 41, "runs of each, in turn and on one processor; the medians are printed, and that of the ratios")
	count := flag.Int("count", 20000, "writes of a run")
	flag.Parse()
	if err := run(*loop, *runs, *count); err != nil {
		fmt.Fprintln(os.Stderr, "benchibv:", err)
		os.Exit(1)
	}
}

func run(loop string, runs, count int) error {
	if runs < 1 || count < 1 {
		return fmt.Errorf("--runs %d and --count %d have to be at least 1", runs, count)
	}
	if err := stay(); err != nil {
		return err
	}
	p, err := newPair()
	if err != nil {
		return err
	}
	var ours, limits, ratios []float64
	for range runs {
		ns, err := p.writes(count)
		if err != nil {
			return err
		}
		ours = append(ours, ns)
		var stderr bytes.Buffer
		cmd := exec.Command(loop, strconv.Itoa(p.gidIndex), strconv.Itoa(count))
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", filepath.Base(loop), err, &stderr)
		}
		limit, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			return fmt.Errorf("%s printed %q, want a number", filepath.Base(loop), out)
		}
		limits, ratios = append(limits, limit), append(ratios, ns/limit)
	}
	fmt.Printf("bench name=post+poll-8B value=%.0f unit=ns limit=%.0f ratio=%.2f\n", median(ours), median(limits), median(ratios))
	return p.close()
}

// stay keeps this thread, and with it the loop that it starts, on the first
// processor that it may use.
func stay() error {
	runtime.LockOSThread()
	var usable, first unix.CPUSet
	if err := unix.SchedGetaffinity(0, &usable); err != nil {
		return err
	}
	cpu := 0
	for !usable.IsSet(cpu) {
		cpu++
	}
	first.Set(cpu)
	return unix.SchedSetaffinity(0, &first)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// firstRoCE returns the first RoCE v2 GID of a device.
func firstRoCE(device string) (topology.Address, error) {
	node, err := topology.Discover(topology.Source{})
	if err != nil {
		return topology.Address{}, err
	}
	for _, p := range node.Ports {
		for _, g := range p.GIDs {
			if p.Device == device && g.Type == topology.GIDTypeRoCEv2 {
				return g, nil
			}
		}
	}
	return topology.Address{}, fmt.Errorf("%s has no RoCE v2 GID", device)
}
