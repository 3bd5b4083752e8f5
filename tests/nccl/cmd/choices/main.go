// Choices asks each version of NCCL how it does an all-reduce of each size, and over
// how many channels, on 2, 3 and 4 machines like a GB10, with the tuner and without,
// and prints that as Markdown.
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
		fmt.Fprintln(os.Stderr, "choices:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, build string) error {
	build, err := filepath.Abs(build)
	if err != nil {
		return err
	}
	var all []nccl.Choices
	for nodes := 2; nodes <= 4; nodes++ {
		for _, v := range nccl.Versions {
			of, err := choices(ctx, build, v, nodes)
			if errors.Is(err, nccl.ErrUnable) {
				fmt.Fprintln(os.Stderr, "choices: left out:", err)
				continue
			}
			if err != nil {
				return fmt.Errorf("NCCL %s on %d nodes: %w", v.Name, nodes, err)
			}
			all = append(all, of...)
		}
	}
	fmt.Print(nccl.ChoiceTable(all))
	return nil
}

func choices(ctx context.Context, build string, v nccl.Version, nodes int) (all []nccl.Choices, err error) {
	rank, err := nccl.Program(ctx, v, build)
	if err != nil {
		return nil, err
	}
	f, err := fabric.Up(fabric.Tools(build), nccl.GB10([]string{"node-a", "node-b", "node-c", "node-d"}[:nodes]...))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := nccl.AddGPUs(f); err != nil {
		return nil, err
	}
	for _, tuned := range []bool{false, true} {
		j := nccl.AllLanes[0].Job(rank, filepath.Join(build, "libnccl-net-mesh.so"))
		c, err := nccl.Choose(ctx, f, v, j, tuned, filepath.Join(f.Dir, "arm.xml"))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}
