package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/bench"
	"ncclmesh/tools/ncclmesh/doctor/gather"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/jobenv"
	"ncclmesh/tools/ncclmesh/launch"
	"ncclmesh/tools/ncclmesh/setup"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport"
)

// handlers are what an agent does, by the name that asks for it.
func handlers(sys *system) fleet.Handlers {
	all := questions(sys)
	all[launch.Do] = launchNode(sys).Serve
	all[setup.Do] = setup.Serve(sys.getenv)
	return all
}

func launchNode(sys *system) launch.Node {
	return launch.Node{Environ: sys.environ, Look: func() (jobenv.Node, error) { return thisNode(sys.getenv) }, Address: bootstrapAddress}
}

// questions are those of them that neither start processes nor change anything.
func questions(sys *system) fleet.Handlers {
	options := func() (transport.Options, error) {
		c, err := config.Read(sys.getenv)
		return c.Transport, err
	}
	looks := func() (transport.Options, error) {
		o, err := options()
		o.Status = transport.StatusOff // who looks for a moment is no job
		return o, err
	}
	return fleet.Handlers{
		bench.Do:     bench.Serve(options),
		bench.DoNCCL: bench.ServeNCCL(launchNode(sys).Variables, sys.getenv),
		gather.Do:    gather.Agent(func() gather.Source { return source(sys, 0, 0) }),
		topo.Do:      topo.Probe(looks),
	}
}

func agentCommand(sys *system, stdin io.Reader) *cobra.Command {
	return &cobra.Command{
		Use:    "agent",
		Short:  "Do on this node what another node's command asks, in JSON lines",
		Hidden: true, // people have no use for it
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			answers, err := keepOutput(sys.stdout)
			if err != nil {
				return failure{err}
			}
			if err := fleet.Serve(c.Context(), stdin, answers, handlers(sys)); err != nil {
				return failure{err}
			}
			return nil
		},
	}
}

// keepOutput returns what leads to standard output, and from then on has all else that is written there go to standard error:
// libraries such as NCCL write into it.
func keepOutput(stdout io.Writer) (io.Writer, error) {
	if stdout != os.Stdout {
		return stdout, nil
	}
	own, err := unix.FcntlInt(os.Stdout.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate standard output: %w", err)
	}
	if err := unix.Dup3(int(os.Stderr.Fd()), int(os.Stdout.Fd()), 0); err != nil {
		return nil, fmt.Errorf("direct standard output to standard error: %w", err)
	}
	return os.NewFile(uintptr(own), "answers"), nil
}
