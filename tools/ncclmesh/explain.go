package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"ncclmesh/docs/checks"
	"ncclmesh/tools/ncclmesh/doctor"
)

func explainCommand(sys *system) *cobra.Command {
	return &cobra.Command{
		Use:               "explain ID",
		Short:             "Print what a check of doctor looks for, how, and what to do",
		Long:              "Prints the page of one of doctor's checks. Without an ID it lists them all.",
		Example:           "  ncclmesh explain port-down",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(checks.IDs(), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprintln(sys.stdout, strings.Join(checks.IDs(), "\n"))
				return err
			}
			page, ok := checks.Page(args[0])
			if !ok {
				return noCheck(args[0])
			}
			_, err := io.WriteString(sys.stdout, page)
			return err
		},
	}
}

// noCheck is the error for a name that is no check's.
func noCheck(id string) error {
	if nearest := doctor.Nearest(id); nearest != "" {
		return fmt.Errorf("there is no check %q; did you mean %s? `ncclmesh explain` lists all", id, nearest)
	}
	return fmt.Errorf("there is no check %q: `ncclmesh explain` lists all", id)
}
