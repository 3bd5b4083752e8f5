package main

import (
	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/library"
)

// loadCommand is what doctor starts to find out whether a library can be loaded: that may end the process.
func loadCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "load FILE",
		Short:  "Load a library as a job would, and say what is wrong with it",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := library.Open(args[0]); err != nil {
				return failure{err}
			}
			return nil
		},
	}
}
