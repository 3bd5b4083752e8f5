package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/nccl"
)

// protocols are what NCCL is told to choose: what it may in all jobs, and each by itself.
var protocols = []struct{ name, value string }{{"NCCL's choice", "^LL128"}, {"Simple", "Simple"}, {"LL", "LL"}}

// pair prints what 8 bytes take between two nodes over each kind of lanes, and the ratio to
// NCCL's own sockets in the same round: medians.
func pair(ctx context.Context, build string, v nccl.Version, rank string, rounds int) (err error) {
	m := fabric.Triangle()
	m.Nodes, m.Cables = m.Nodes[:2], m.Cables[:1]
	fabrics, down, err := up(build, m)
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return err
	}
	for _, p := range protocols {
		line := []string{fmt.Sprintf("NCCL %-7s %-14s", v.Name, p.name)}
		micros, ratios := make([][]float64, len(fabrics)), make([][]float64, len(fabrics))
		for range rounds {
			for i, l := range nccl.AllLanes {
				t, err := eight(ctx, fabrics[i], l.Job(rank, filepath.Join(build, "libnccl-net-mesh.so")), p.value)
				if err != nil {
					return fmt.Errorf("%s: %w", l.Name, err)
				}
				micros[i] = append(micros[i], t)
			}
			own := micros[len(micros)-1]
			for i, all := range micros {
				ratios[i] = append(ratios[i], all[len(all)-1]/own[len(own)-1])
			}
		}
		for i, l := range nccl.AllLanes {
			line = append(line, fmt.Sprintf("%s %.0f us (%.2f)", l.Name, median(micros[i]), median(ratios[i])))
		}
		fmt.Println(strings.Join(line, "  "))
	}
	return nil
}

// eight is what an all-reduce of 8 bytes takes.
func eight(ctx context.Context, f *fabric.Fabric, j nccl.Job, protocol string) (micros float64, err error) {
	j.Apart = true
	j.Steps = []string{"env NCCL_PROTO=" + protocol, "init", "time 2000 allreduce f32 sum 2", "destroy"}
	results, err := j.Run(ctx, f)
	if err == nil {
		err = nccl.Failed(results)
	}
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(results[0].Output) {
		if t, ok := nccl.ParseTime(strings.TrimSpace(line)); ok {
			return t.Micro, nil
		}
	}
	return 0, fmt.Errorf("rank 0 says no time:\n%s", results[0].Output)
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
