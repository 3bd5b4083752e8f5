package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ncclmesh/docs/checks"
	"ncclmesh/tools/ncclmesh/doctor"
)

func explainCommand(sys *system) *cobra.Command {
	return &cobra.Command{
		Use:               "explain ID",
		Short:             "Print what a check of doctor looks for, how, and what to do",
		Long:              "Prints the page of one of doctor's checks. Without an ID it lists all of them,\nwith what people see.",
		Example:           "  ncclmesh explain port-down",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeChecks,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listChecks(sys.stdout)
			}
			page, ok := checks.Page(args[0])
			if !ok {
				return noCheck(args[0])
			}
			if n := columns(sys.stdout); n > 0 {
				page = fill(page, min(n, helpWidth))
			}
			_, err := io.WriteString(sys.stdout, page)
			return err
		},
	}
}

// listChecks writes the checks and their titles.
func listChecks(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, id := range checks.IDs() {
		fmt.Fprintf(t, "%s\t%s\n", id, title(id, 80-24))
	}
	return t.Flush()
}

// title is what people see of a fault, from the page of its check: the first sentence, cut after so many letters.
func title(id string, most int) string {
	page, _ := checks.Page(id)
	_, symptom, _ := strings.Cut(page, "## Symptom\n\n")
	symptom, _, _ = strings.Cut(symptom, "\n\n")
	symptom = strings.ReplaceAll(strings.Join(strings.Fields(symptom), " "), "`", "")
	for _, end := range []string{". ", "; "} {
		symptom, _, _ = strings.Cut(symptom, end)
	}
	symptom = strings.TrimSuffix(symptom, ".")
	if letters := []rune(symptom); len(letters) > most {
		cut := string(letters[:most-2])
		symptom = cut[:max(strings.LastIndexByte(cut, ' '), 1)] + " …"
	}
	return symptom
}

// completeChecks offers a shell the checks, with their titles.
func completeChecks(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 && c.Name() == "explain" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	before := typed[:strings.LastIndexByte(typed, ',')+1] // of a list
	var all []cobra.Completion
	for _, id := range checks.IDs() {
		all = append(all, cobra.CompletionWithDesc(before+id, title(id, 60)))
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}

// complete offers a shell fixed values for a flag; each is a value, a tab and what it means.
func complete(c *cobra.Command, flag string, values ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// noCheck is the error for a name that is no check's.
func noCheck(id string) error {
	if nearest := doctor.Nearest(id); nearest != "" {
		return fmt.Errorf("there is no check %q; did you mean %s? `ncclmesh explain` lists all", id, nearest)
	}
	return fmt.Errorf("there is no check %q: `ncclmesh explain` lists all", id)
}
