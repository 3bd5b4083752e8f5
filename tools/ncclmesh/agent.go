package main

import (
	"io"

	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/fleet"
)

// handlers are what an agent does, by the name that asks for it.
func handlers(*system) fleet.Handlers {
	return fleet.Handlers{}
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
