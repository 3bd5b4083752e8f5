//go:build man

package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func init() { manual = manCommand }

// manCommand writes the manual pages of all commands into a directory. Only the command that makes the packages has it,
// since what turns Markdown into a page is of no use to anybody else.
func manCommand(sys *system) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the manual pages",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			seconds, err := strconv.ParseInt(sys.getenv("SOURCE_DATE_EPOCH"), 10, 64)
			if err != nil {
				return fmt.Errorf("SOURCE_DATE_EPOCH=%q: want the date of the pages in seconds since 1970", sys.getenv("SOURCE_DATE_EPOCH"))
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return failure{err}
			}
			date := time.Unix(seconds, 0).UTC()
			root := c.Root()
			root.DisableAutoGenTag = true
			for _, c := range root.Commands() {
				if c.Name() == "completion" { // what packages bring is installed
					root.RemoveCommand(c)
				}
			}
			header := &doc.GenManHeader{Section: "1", Source: "ncclmesh", Manual: "ncclmesh", Date: &date}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return failure{err}
			}
			return nil
		},
	}
}
