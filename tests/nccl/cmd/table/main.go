// Table measures each version of NCCL on a triangle, over each kind of lanes in turn,
// and prints medians as Markdown, or writes them into the README.
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
	readme := flag.String("readme", "", "the file to write the table into")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	rows, err := measure(ctx, *build, *rounds)
	stop()
	if err == nil {
		err = show(rows, *readme)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func show(rows []nccl.Row, readme string) error {
	note, busy := "", load() > float64(2*runtime.NumCPU())
	if busy {
		note = ", too busy for times"
	}
	text := fmt.Sprintf("%s; %d processors, load %.0f%s:\n\n%s", time.Now().Format("2 January 2006"), runtime.NumCPU(), load(), note, nccl.Markdown(rows, busy))
	if readme == "" {
		fmt.Print(text)
		return nil
	}
	was, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	before, _, after, err := nccl.CutTable(string(was))
	if err != nil {
		return fmt.Errorf("%s: %w", readme, err)
	}
	return os.WriteFile(readme, []byte(before+nccl.TableBegin+text+nccl.TableEnd+after), 0o644)
}

// load is how many threads wanted a processor in the last minute, of this program's
// ranks too.
func load() (one float64) {
	text, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(text), &one)
	return one
}

func measure(ctx context.Context, build string, rounds int) (rows []nccl.Row, err error) {
	if build, err = filepath.Abs(build); err != nil {
		return nil, err
	}
	for _, v := range nccl.Versions {
		rank, err := nccl.Program(ctx, v, build)
		if errors.Is(err, nccl.ErrUnable) {
			fmt.Fprintln(os.Stderr, "table: left out:", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		some, err := version(ctx, build, v, rank, rounds)
		if err != nil {
			return nil, fmt.Errorf("NCCL %s: %w", v.Name, err)
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// version measures one over all kinds of lanes: NCCL's own sockets last in each round.
func version(ctx context.Context, build string, v nccl.Version, rank string, rounds int) (rows []nccl.Row, err error) {
	var fabrics []*fabric.Fabric
	defer func() {
		for _, f := range fabrics {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, l := range nccl.AllLanes {
		f, err := fabric.Up(fabric.Tools(build), l.Mesh(fabric.Triangle()).Topology())
		if err != nil {
			return nil, err
		}
		fabrics = append(fabrics, f)
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
