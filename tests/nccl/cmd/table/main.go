// Table measures each version of NCCL on a triangle, over each kind of lanes, and
// prints what came of it as Markdown.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/nccl"
)

func main() {
	build := flag.String("build", "build", "where the plugin and tests/fakeverbs are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, *build)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, build string) error {
	build, err := filepath.Abs(build)
	if err != nil {
		return err
	}
	plugin := filepath.Join(build, "libnccl-net-mesh.so")
	var rows []nccl.Row
	for _, v := range nccl.Versions {
		dir, err := nccl.Fetch(ctx, v)
		if errors.Is(err, nccl.ErrUnable) {
			fmt.Fprintln(os.Stderr, "table: left out:", err)
			continue
		}
		if err != nil {
			return err
		}
		rank, err := nccl.Build(dir, build)
		if err != nil {
			return err
		}
		for _, l := range nccl.AllLanes {
			row, err := measure(ctx, build, v, l, l.Job(rank, plugin))
			if err != nil {
				return fmt.Errorf("NCCL %s over %s: %w", v.Name, l.Name, err)
			}
			rows = append(rows, row)
		}
	}
	fmt.Print(nccl.Markdown(rows))
	return nil
}

func measure(ctx context.Context, build string, v nccl.Version, l nccl.Lanes, j nccl.Job) (row nccl.Row, err error) {
	f, err := fabric.Up(fabric.Tools(build), l.Mesh(fabric.Triangle()).Topology())
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return nccl.Measure(ctx, f, v, j, l.Name)
}
