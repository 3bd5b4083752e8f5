// Mesh shows the plugin at work on a mesh of network namespaces. See the usage
// text below.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"ncclmesh/tests/internal/draw"
	"ncclmesh/tests/mesh"
)

const usage = `usage: mesh demo [flags]       three nodes, three cables, an all-reduce
       mesh run [flags] COMMAND...   the same nodes; COMMAND runs on each, with NODE, RANK and NRANKS set

Nodes are network namespaces, cables are veth pairs, and all of it is gone when the command ends, however it ends.
With --lanes tcp a demo needs nothing but the kernel; with --lanes fake the nodes have RDMA devices of tests/fakeverbs.

flags:
`

func main() {
	mesh.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mesh:", err)
	}
	os.Exit(status)
}

func run(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("mesh", flag.ContinueOnError)
	fs.Usage = func() { fmt.Fprint(fs.Output(), usage); fs.PrintDefaults() }
	build := fs.String("build", "build", "where the plugin and the driver are")
	lanes := fs.String("lanes", "tcp", "what carries the demo: tcp or fake")
	limit := fs.Duration("timeout", 2*time.Minute, "time limit")
	if len(args) == 0 {
		fs.Usage()
		return 2, nil
	}
	if err := fs.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0, nil
	} else if err != nil {
		return 2, nil // flag has said why
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("more than --timeout %v", *limit))
	defer cancel()
	switch {
	case args[0] == "demo" && fs.NArg() == 0:
		start, ok := map[string]starter{"tcp": overTCP, "fake": overFake}[*lanes]
		if !ok {
			return 2, fmt.Errorf("--lanes %s is neither tcp nor fake", *lanes)
		}
		if err := demo(ctx, os.Stdout, *build, start); err != nil {
			return 1, err
		}
		return 0, nil
	case args[0] == "run" && fs.NArg() > 0:
		return runEach(ctx, fs.Args())
	}
	fs.Usage()
	return 2, nil
}

// A starter runs the driver, args, on the nodes of a mesh, and says what each has printed.
type starter func(ctx context.Context, m mesh.Mesh, build string, args []string, line func(node, line string)) error

// demo runs the driver on the triangle and shows what happens.
func demo(ctx context.Context, out io.Writer, build string, start starter) error {
	build, err := filepath.Abs(build)
	if err != nil {
		return err
	}
	plugin, driver := filepath.Join(build, "libnccl-net-mesh.so"), filepath.Join(build, "netdriver")
	for _, f := range []string{plugin, driver} {
		if _, err := os.Stat(f); err != nil {
			return fmt.Errorf("%w; run: make build netdriver", err)
		}
	}
	m := mesh.Triangle()
	fmt.Fprintf(out, "\nThree nodes, a cable between each two, every cable a subnet of its own, no switch:\n\n%s\n", picture(m))
	fmt.Fprintf(out, "One rank on each, through %s:\n\n", filepath.Base(plugin))
	seen := draw.NewOutput(out, m.Nodes[0])
	seen.Show(true)
	var log []string
	begin := time.Now()
	err = start(ctx, m, build, []string{driver, "--plugin", plugin, "--nranks", fmt.Sprint(len(m.Nodes)),
		"--work", "sendrecv,allreduce", "--min", "8", "--max", "8M", "--factor", "16", "--iters", "3", "--warmup", "1"},
		func(node, line string) {
			log = append(log, node+": "+line)
			seen.Line(node, line)
		})
	if err != nil {
		for _, l := range log {
			fmt.Fprintln(out, l)
		}
		return err
	}
	fmt.Fprintf(out, "\nThe lane that each pair uses:\n\n%s", draw.Table(seen.Lanes()))
	fmt.Fprintf(out, "\n%d ranks, %.1f s, every byte checked: #wrong 0.\n", len(m.Nodes), time.Since(begin).Seconds())
	return nil
}

// overTCP needs nothing but the kernel.
func overTCP(ctx context.Context, m mesh.Mesh, _ string, args []string, line func(node, line string)) error {
	results, err := mesh.Run(ctx, mesh.Job{
		Mesh: m,
		Command: func(node string) []string {
			return append(args[:len(args):len(args)], "--rank", rank(m, node),
				"--rendezvous", netip.AddrPortFrom(m.Management(m.Nodes[0]), 7000).String())
		},
		// As users have it: NCCL sets up over one network, and the cables are the mesh.
		Env:  []string{"NCCL_DEBUG=INFO", "NCCL_MESH_TRANSPORT=tcp", "NCCL_SOCKET_IFNAME=" + mesh.ManagementIface},
		Line: line,
	})
	for _, r := range results {
		if r.Status != 0 && err == nil {
			err = fmt.Errorf("the rank on %s ended with status %d; its output is above", r.Node, r.Status)
		}
	}
	return err
}

func picture(m mesh.Mesh) string {
	var cables [3]draw.Cable
	for i, c := range m.Cables {
		cables[i] = draw.Cable{Net: c.Net, Ends: [2]draw.Port{{Name: c.Ends[0].Iface, Addr: c.Ends[0].Addr}, {Name: c.Ends[1].Iface, Addr: c.Ends[1].Addr}}}
	}
	return draw.Triangle([3]string(m.Nodes), cables)
}

func rank(m mesh.Mesh, node string) string {
	for i, n := range m.Nodes {
		if n == node {
			return fmt.Sprint(i)
		}
	}
	return "-1"
}

// runEach runs a command on every node.
func runEach(ctx context.Context, command []string) (int, error) {
	m := mesh.Triangle()
	results, err := mesh.Run(ctx, mesh.Job{
		Mesh: m,
		Command: func(node string) []string {
			return append([]string{"env", "NODE=" + node, "RANK=" + rank(m, node), fmt.Sprintf("NRANKS=%d", len(m.Nodes))}, command...)
		},
		Line: func(node, line string) { fmt.Printf("%s: %s\n", node, line) },
	})
	status := 0
	for _, r := range results {
		status = max(status, r.Status)
	}
	if err != nil {
		status = max(status, 1)
	}
	return status, err
}
