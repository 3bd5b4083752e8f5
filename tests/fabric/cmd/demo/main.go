// Demo shows the plugin at work on a mesh of network namespaces. See the usage
// text below.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ncclmesh/tests/fabric"
	"ncclmesh/tests/internal/draw"
)

const usage = `usage: demo [flags]       three nodes, three cables, an all-reduce; or more in a ring, and all-to-all

Nodes are network namespaces, cables are veth pairs, and all of it is gone when the command ends, however it ends.
With --lanes tcp the kernel carries everything; with --lanes fake the nodes have RDMA devices of tests/fakeverbs. With
--lanes nccl they have these too, and unmodified NCCL runs there, which is fetched from Debian's archive the first time.

flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	os.Exit(status)
}

func run(ctx context.Context, args []string) (int, error) {
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.Usage = func() { fmt.Fprint(fs.Output(), usage); fs.PrintDefaults() }
	build := fs.String("build", "build", "where the plugin, the driver and tests/fakeverbs are")
	lanes := fs.String("lanes", "tcp", "what carries the demo: tcp, fake or nccl")
	nodes := fs.Int("nodes", 3, "how many nodes, in a ring: 3 to 8; from 4 on not every two share a cable")
	limit := fs.Duration("timeout", 2*time.Minute, "time limit")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0, nil
	case err != nil:
		return 2, nil // flag has said why
	case fs.NArg() > 0:
		return 2, fmt.Errorf("%q is no flag; --help lists them", fs.Arg(0))
	}
	if *nodes < 3 || *nodes > 8 || *nodes > 3 && *lanes == "nccl" {
		return 2, fmt.Errorf("--nodes %d is not 3 to 8, or not 3 with --lanes nccl", *nodes)
	}
	var names []string
	for i := range *nodes {
		names = append(names, "node-"+string(rune('a'+i)))
	}
	ring := fabric.Ring(names...)
	show, ok := map[string]func(context.Context) error{
		"tcp":  func(ctx context.Context) error { return demo(ctx, os.Stdout, *build, ring.Plain()) },
		"fake": func(ctx context.Context) error { return demo(ctx, os.Stdout, *build, ring) },
		"nccl": func(ctx context.Context) error { return demoNCCL(ctx, os.Stdout, *build) },
	}[*lanes]
	if !ok {
		return 2, fmt.Errorf("--lanes %s is none of tcp, fake and nccl", *lanes)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *limit, fmt.Errorf("more than --timeout %v", *limit))
	defer cancel()
	if err := show(ctx); err != nil {
		return 1, err
	}
	return 0, nil
}

// demo runs the driver on a ring and shows what happens.
func demo(ctx context.Context, out io.Writer, build string, m fabric.Mesh) error {
	build, err := filepath.Abs(build)
	if err != nil {
		return err
	}
	plugin, driver := filepath.Join(build, "libnccl-net-mesh.so"), filepath.Join(build, "netdriver")
	for _, f := range []string{plugin, driver, filepath.Join(fabric.Tools(build), "fakenet")} {
		if _, err := os.Stat(f); err != nil {
			return fmt.Errorf("%w; run: make build netdriver fakeverbs", err)
		}
	}
	title, work, size := "Three nodes, a cable between each two", "sendrecv,allreduce", "8M"
	if n := len(m.Nodes); n > 3 {
		title, work, size = fmt.Sprintf("%d nodes in a ring: those that share no cable talk through the nodes between them", n), "alltoall,allreduce", "1M"
	}
	fmt.Fprintf(out, "\n%s, every cable a subnet of its own, no switch:\n\n%s\n", title, picture(m))
	fmt.Fprintf(out, "One rank on each, through %s:\n\n", filepath.Base(plugin))
	seen := draw.NewOutput(out, m.Nodes[0])
	seen.Show(true)
	var log []string
	begin := time.Now()
	err = runEach(ctx, build, m, []string{driver, "--plugin", plugin, "--nranks", fmt.Sprint(len(m.Nodes)),
		"--work", work, "--min", "8", "--max", size, "--factor", "16", "--iters", "3", "--warmup", "1"},
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
	fmt.Fprintf(out, "\nThe lanes that each pair uses:\n\n%s", draw.Table(seen.Lanes()))
	fmt.Fprintf(out, "\n%d ranks, %.1f s, every byte checked: #wrong 0.\n", len(m.Nodes), time.Since(begin).Seconds())
	return nil
}

// runEach runs the driver, args, on the nodes of a mesh, and says what each has
// printed. As users have it NCCL sets up over one network, and the cables are the
// mesh.
func runEach(ctx context.Context, build string, m fabric.Mesh, args []string, line func(node, line string)) error {
	file, err := os.CreateTemp("", "topology")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString(m.Topology()); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	transport := "rdma"
	if m.Cables[0].Ends[0].Device == "" {
		transport = "tcp"
	}
	var script strings.Builder
	fmt.Fprintf(&script, "case $FAKEVERBS_NODE in\n")
	for i, n := range m.Nodes {
		fmt.Fprintf(&script, "%s) rank=%d;;\n", n, i)
	}
	fmt.Fprintf(&script, `esac
export NCCL_DEBUG=INFO NCCL_MESH_TRANSPORT=%s NCCL_SOCKET_IFNAME=%s NCCL_HOSTID=$FAKEVERBS_NODE
exec "$@" --rank $rank --rendezvous %s:7000
`, transport, fabric.ManagementIface, m.Nodes[0])
	cmd := exec.CommandContext(ctx, filepath.Join(fabric.Tools(build), "fakenet"),
		append([]string{"run", file.Name(), "sh", "-c", script.String(), "rank"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it takes its nodes down
	cmd.WaitDelay = 5 * time.Second
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		if node, text, ok := strings.Cut(lines.Text(), ":"); ok {
			line(node, strings.TrimPrefix(text, " "))
		}
	}
	return cmd.Wait()
}

func picture(m fabric.Mesh) string {
	var cables []draw.Cable
	for _, c := range m.Cables {
		cables = append(cables, draw.Cable{Net: c.Net, Ends: [2]draw.Port{{Name: c.Ends[0].Iface, Addr: c.Ends[0].Addr}, {Name: c.Ends[1].Iface, Addr: c.Ends[1].Addr}}})
	}
	if len(m.Nodes) > 3 {
		return draw.Ring(m.Nodes, cables)
	}
	return draw.Triangle([3]string(m.Nodes), [3]draw.Cable(cables))
}
