package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/manual"
)

// manCommand writes the manual pages of all commands into a directory, for the packages.
func manCommand(sys *system) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages",
		Args:   cobra.ExactArgs(1),
		Hidden: true, // packages bring the pages
		RunE: func(c *cobra.Command, args []string) error {
			seconds, err := strconv.ParseInt(sys.getenv("SOURCE_DATE_EPOCH"), 10, 64)
			if err != nil {
				return fmt.Errorf("SOURCE_DATE_EPOCH=%q: want the date of the pages in seconds since 1970", sys.getenv("SOURCE_DATE_EPOCH"))
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return failure{err}
			}
			root := c.Root()
			for _, c := range root.Commands() {
				if c.Name() == "completion" { // what packages bring is installed
					root.RemoveCommand(c)
				}
			}
			if err := manual.Write(args[0], root, pages(), time.Unix(seconds, 0).UTC()); err != nil {
				return failure{err}
			}
			return nil
		},
	}
}
