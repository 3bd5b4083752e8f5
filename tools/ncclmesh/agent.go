package main

import (
	"io"

	"github.com/spf13/cobra"

	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/bench"
	"ncclmesh/tools/ncclmesh/doctor/gather"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/jobenv"
	"ncclmesh/tools/ncclmesh/launch"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport"
)

// handlers are what an agent does, by the name that asks for it.
func handlers(sys *system) fleet.Handlers {
	all := questions(sys)
	all[launch.Do] = launch.Node{Environ: sys.environ, Look: func() (jobenv.Node, error) { return thisNode(sys.getenv) }, Address: bootstrapAddress}.Serve
	return all
}

// questions are those of them that start no processes.
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
		bench.Do:  bench.Serve(options),
		gather.Do: gather.Agent(func() gather.Source { return source(sys, 0, 0) }),
		topo.Do:   topo.Probe(looks),
	}
}

func agentCommand(sys *system, stdin io.Reader) *cobra.Command {
	return &cobra.Command{
		Use:    "agent",
		Short:  "Do on this node what another node's command asks, in JSON lines",
		Hidden: true, // people have no use for it
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fleet.Serve(c.Context(), stdin, sys.stdout, handlers(sys)); err != nil {
				return failure{err}
			}
			return nil
		},
	}
}
