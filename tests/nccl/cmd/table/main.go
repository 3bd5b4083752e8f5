// Table measures each version of NCCL on a triangle, over each kind of lanes in turn,
// and prints medians as Markdown, or writes them into a page. With -latency it
// measures 8 bytes between two nodes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/nccl"
)

func main() {
	build := flag.String("build", "build", "where the plugin and tests/fakeverbs are")
	rounds := flag.Int("rounds", 5, "how often each is measured")
	page := flag.String("page", "", "the file to write the table into")
	latency := flag.Bool("latency", false, "8 bytes between two nodes, by protocol, each rank on a processor of its own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, *build, *rounds, *page, *latency)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, build string, rounds int, page string, latency bool) error {
	build, err := filepath.Abs(build)
	if err != nil {
		return err
	}
	if latency {
		return ofVersions(ctx, build, func(v nccl.Version, rank string) error { return pair(ctx, build, v, rank, rounds) })
	}
	var rows []nccl.Row
	err = ofVersions(ctx, build, func(v nccl.Version, rank string) error {
		some, err := version(ctx, build, v, rank, rounds)
		rows = append(rows, some...)
		return err
	})
	if err != nil {
		return err
	}
	return show(rows, page)
}

func show(rows []nccl.Row, page string) error {
	note, busy := "", load() > float64(2*runtime.NumCPU())
	if busy {
		note = ", too busy for times"
	}
	text := fmt.Sprintf("%s; %d processors, load %.0f%s:\n\n%s", time.Now().Format("2 January 2006"), runtime.NumCPU(), load(), note, nccl.Markdown(rows, busy))
	if page == "" {
		fmt.Print(text)
		return nil
	}
	was, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, _, after, err := nccl.CutTable(string(was))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(before+nccl.TableBegin+text+nccl.TableEnd+after), 0o644)
}

// load is how many threads wanted a processor in the last minute, of this program's
// ranks too.
func load() (one float64) {
	text, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(text), &one)
	return one
}

// ofVersions calls f for each version that can be had, with the rank program for it.
func ofVersions(ctx context.Context, build string, f func(v nccl.Version, rank string) error) error {
	for _, v := range nccl.Versions {
		rank, err := nccl.Program(ctx, v, build)
		if errors.Is(err, nccl.ErrUnable) {
			fmt.Fprintln(os.Stderr, "table: left out:", err)
			continue
		}
		if err != nil {
			return err
		}
		if err := f(v, rank); err != nil {
			return fmt.Errorf("NCCL %s: %w", v.Name, err)
		}
	}
	return nil
}

// version measures one over all kinds of lanes: NCCL's own sockets last in each round.
func version(ctx context.Context, build string, v nccl.Version, rank string, rounds int) (rows []nccl.Row, err error) {
	fabrics, down, err := up(build, fabric.Triangle())
	defer func() { err = errors.Join(err, down()) }()
	if err != nil {
		return nil, err
	}
	of := make([][]nccl.Row, len(nccl.AllLanes))
	for range rounds {
		for i, l := range nccl.AllLanes {
			row, err := nccl.Measure(ctx, fabrics[i], v, l.Job(rank, filepath.Join(build, "libnccl-net-mesh.so")), l.Name, filepath.Join(fabrics[i].Dir, "arm.xml"))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.Name, err)
			}
			of[i] = append(of[i], row)
		}
		own := of[len(of)-1]
		for i := range of[:len(of)-1] {
			row := &of[i][len(of[i])-1]
			row.LatencyRatio, row.BandwidthRatio = row.Latency/own[len(own)-1].Latency, row.Bandwidth/own[len(own)-1].Bandwidth
		}
	}
	for i := range of {
		rows = append(rows, nccl.Median(of[i]))
	}
	return rows, nil
}

// up brings a mesh up for each kind of lanes. down takes down what is up, after an error too.
func up(build string, m fabric.Mesh) (fabrics []*fabric.Fabric, down func() error, err error) {
	down = func() (err error) {
		for _, f := range fabrics {
			err = errors.Join(err, f.Close())
		}
		return err
	}
	for _, l := range nccl.AllLanes {
		f, err := fabric.Up(fabric.Tools(build), l.Mesh(m).Topology())
		if err != nil {
			return fabrics, down, err
		}
		fabrics = append(fabrics, f)
	}
	return fabrics, down, nil
}
