package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ncclmesh/tools/ncclmesh/doctor"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/doctor/gather"
	"ncclmesh/tools/ncclmesh/topo"
)

const doctorLong = `Looks for known faults of a node, or of a mesh of nodes, and says where each is, how
it is known and what to do. It changes nothing and needs neither root nor RDMA nor a
GPU. What it could not check is listed as unknown, with the reason, and never counts
as fine. Consequences of a fault that was found are hidden.

With hosts it checks all of them at once, over ssh, and sends packets between them as
a job would; "localhost" is this node. Every finding has an id: ncclmesh explain ID.

` + doctorStatus

const doctorExample = `  ncclmesh doctor                       # this node
  ncclmesh doctor localhost node-b node-c
  ncclmesh doctor --pid $(pgrep -n python)    # with a job's environment
  ncclmesh doctor node-a node-b --json --ignore mtu-small
  mpirun -x MASTER_ADDR=10.0.0.1 ncclmesh doctor --rank-env   # without ssh`

// doctorFlags are those of ncclmesh doctor.
type doctorFlags struct {
	hosts  hostFlags
	json   bool
	junit  string
	pick   doctor.Selection
	strict bool
	pid    int
	sample time.Duration
	wait   time.Duration
	expect string
	bench  bool
}

func doctorCommand(sys *system) *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:     "doctor [HOST...]",
		Short:   "Find what is wrong with a node or a mesh, and say what to do",
		Long:    doctorLong,
		Example: doctorExample,
		RunE:    func(c *cobra.Command, args []string) error { return runDoctor(c.Context(), sys, f, args) },
	}
	c.Flags().BoolVar(&f.json, "json", false, "write the report as JSON ("+doctor.Schema+")")
	c.Flags().StringVar(&f.junit, "junit", "", "write it as JUnit's XML into `FILE` too")
	c.Flags().StringSliceVar(&f.pick.Only, "only", nil, "make only these checks, by `ID`")
	c.Flags().StringSliceVar(&f.pick.Ignore, "ignore", nil, "do not count what these checks find, by `ID`")
	c.Flags().BoolVar(&f.strict, "strict", false, "count unknowns as findings, and list them")
	c.Flags().IntVar(&f.pid, "pid", 0, "check the environment, limits and libraries of process `N`, of a job on this node")
	c.Flags().DurationVar(&f.sample, "sample", 0, "watch the error counters for this `TIME`, while data moves")
	c.Flags().DurationVar(&f.wait, "wait", 0, "repeat until nothing is found, for this `TIME` at most")
	c.Flags().StringVar(&f.expect, "expect", "", "compare the cables with `FILE`: see ncclmesh topo")
	c.Flags().BoolVar(&f.bench, "bench", false, "also measure each half of each cable, unless a job runs")
	f.hosts.addRanks(sys, c)
	for _, flag := range []string{"only", "ignore"} {
		_ = c.RegisterFlagCompletionFunc(flag, completeChecks) // the flag is there
	}
	return c
}

// check says what is wrong with the flags.
func (f *doctorFlags) check(hosts []string) error {
	switch id, unknown := f.pick.Unknown(); {
	case unknown:
		return noCheck(id)
	case f.pid < 0:
		return fmt.Errorf("--pid %d: want the number of a process", f.pid)
	case f.expect != "" && len(hosts) == 0:
		return errors.New("--expect compares cables between nodes, and no host is named")
	case f.bench && len(hosts) == 0:
		return errors.New("--bench measures cables between nodes, and no host is named")
	case f.pid != 0 && len(hosts) > 0:
		return errors.New("--pid names a process of this node, and hosts are named too; give one of them")
	case f.sample < 0 || f.wait < 0:
		return errors.New("--sample and --wait: want 0 or more")
	}
	return nil
}

func runDoctor(ctx context.Context, sys *system, f doctorFlags, hosts []string) error {
	if err := f.check(hosts); err != nil {
		return err
	}
	expected, err := readExpected(f.expect)
	if err != nil {
		return err
	}
	until := time.Now().Add(f.wait)
	for {
		begun := time.Now()
		p := newProgress(sys, "looking for faults")
		mesh, err := look(ctx, sys, f, hosts)
		p.end()
		if err != nil {
			return err
		}
		mesh.Expected = expected
		r := doctor.NewReport(mesh, f.pick, time.Since(begun))
		r.Strict = f.strict
		fine := r.Fine(f.strict)
		if fine || !time.Now().Before(until) {
			if err := f.write(sys, r); err != nil || fine {
				return err
			}
			return errFound
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errFound is the status of a run that has found something, which it has said.
var errFound = errors.New("")

// readExpected reads the cables that --expect names; nil: none.
func readExpected(file string) (*topo.Expected, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--expect: %w", err)
	}
	expected, err := topo.ParseExpected(text)
	if err != nil {
		return nil, fmt.Errorf("--expect %s: %w", file, err)
	}
	return expected, nil
}

// notMeasured is why nothing is known of the speed of cables.
const notMeasured = "not measured: --bench with hosts does"

// look finds out what there is to know.
func look(ctx context.Context, sys *system, f doctorFlags, hosts []string) (*facts.Mesh, error) {
	if len(hosts) > 0 {
		return lookAtHosts(ctx, sys, f, hosts)
	}
	n := gather.Node(source(sys, f.pid, f.sample))
	if env := n.Process.Env; f.pid != 0 && env.Value == nil {
		return nil, fmt.Errorf("--pid %d: %s", f.pid, env.Because())
	}
	const alone = "no host was named: localhost is this one"
	n.Dials = facts.Unknown[[]facts.Dial](alone)
	return &facts.Mesh{Nodes: []facts.Node{n}, Map: facts.Unknown[topo.Map](alone), Flows: facts.Unknown[[]facts.Flow](notMeasured)}, nil
}

// source is this machine.
func source(sys *system, pid int, sample time.Duration) gather.Source {
	return gather.Source{Environ: sys.environ, Home: sys.getenv("HOME"), PID: pid, Sample: sample}
}

// write writes the report as the user wants it.
func (f *doctorFlags) write(sys *system, r *doctor.Report) error {
	if f.junit != "" {
		if err := writeFile(f.junit, r.WriteJUnit); err != nil {
			return fmt.Errorf("--junit: %w", err)
		}
	}
	if f.json {
		return r.WriteJSON(sys.stdout)
	}
	return r.WriteText(sys.stdout, colourful(sys), width(sys))
}

func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// width is that of the terminal that the output goes to, at least 40; 80 where it goes elsewhere.
func width(sys *system) int {
	if f, ok := sys.stdout.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			return max(columns, 40)
		}
	}
	return 80
}

// colourful reports whether the output is a terminal whose user wants colours.
func colourful(sys *system) bool {
	f, ok := sys.stdout.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && sys.getenv("NO_COLOR") == "" && sys.getenv("TERM") != "dumb"
}
