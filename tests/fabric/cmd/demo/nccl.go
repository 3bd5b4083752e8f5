package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/internal/draw"
	"ncclmesh/tests/nccl"
)

// ncclSteps are what every rank does: all-reduces of growing size, each checked and
// then timed.
func ncclSteps() []string {
	steps := []string{"init"}
	for bytes, n := 8, 200; bytes <= 8<<20; bytes *= 16 {
		order := fmt.Sprintf("allreduce f32 sum %d", bytes/4)
		steps = append(steps, "check "+order, fmt.Sprintf("time %d %s", n, order))
		n = max(n/4, 3)
	}
	return append(steps, "destroy")
}

// demoNCCL runs unmodified NCCL on a triangle and shows what happens.
func demoNCCL(ctx context.Context, out io.Writer, build string) (err error) {
	if build, err = filepath.Abs(build); err != nil {
		return err
	}
	m := fabric.Triangle()
	rank, v, err := newestNCCL(ctx, out, build)
	if err != nil {
		return err
	}
	f, err := fabric.Up(fabric.Tools(build), m.Topology())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	plugin := filepath.Join(build, "libnccl-net-mesh.so")
	fmt.Fprintf(out, "\nThree nodes, a cable between each two, every cable a subnet of its own, no switch:\n\n%s\n", picture(m))
	fmt.Fprintf(out, "Unmodified NCCL %s on each, its GPU a pretended one, through %s:\n\n", v.Name, filepath.Base(plugin))
	fmt.Fprintf(out, "  %12s  %12s  %14s\n", "bytes", "time, µs", "busbw, MB/s")
	seen := draw.NewOutput(out, m.Nodes[0])
	j := nccl.AllLanes[0].Job(rank, plugin, ncclSteps()...)
	j.Env = append(j.Env, "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET")
	j.Line = func(node, line string) {
		seen.Line(node, line)
		if t, ok := nccl.ParseTime(line); ok {
			fmt.Fprintf(out, "  %12d  %12.1f  %14.1f\n", t.Bytes, t.Micro, t.BusBandwidth(len(m.Nodes)))
		}
	}
	begin := time.Now()
	results, err := j.Run(ctx, f)
	if err = errors.Join(err, nccl.Failed(results)); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe lane that each pair uses:\n\n%s", draw.Table(seen.Lanes()))
	fmt.Fprintf(out, "\n%d ranks, %.1f s, every element checked: #wrong 0.\n", len(m.Nodes), time.Since(begin).Seconds())
	return nil
}

// newestNCCL is the newest that can be had.
func newestNCCL(ctx context.Context, out io.Writer, build string) (rank string, v nccl.Version, err error) {
	var unable []string
	for i := len(nccl.Versions) - 1; i >= 0; i-- {
		v := nccl.Versions[i]
		fmt.Fprintf(out, "NCCL %s, from Debian %s\n", v.Name, v.Suite)
		rank, err := nccl.Program(ctx, v, build)
		if errors.Is(err, nccl.ErrUnable) {
			unable = append(unable, err.Error())
			continue
		}
		return rank, v, err
	}
	return "", v, errors.New(strings.Join(unable, "\n"))
}
