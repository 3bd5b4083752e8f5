package main

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is the most columns of a help text: longer lines are hard to read.
const helpWidth = 80

// fitHelp has the help of all commands fit into the terminal, with hanging indents.
func fitHelp(sys *system, root *cobra.Command) {
	columns := min(width(sys), helpWidth)
	root.SetUsageFunc(func(c *cobra.Command) error { return usage(c, columns) })
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		long := c.Long
		defer func() { c.Long = long }()
		c.Long = fill(long, columns)
		help(c, args)
	})
}

// usage writes how a command is called.
func usage(c *cobra.Command, columns int) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.Runnable() {
		b.WriteString("  " + c.UseLine() + "\n")
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("  " + c.CommandPath() + " [command]\n")
	}
	if c.HasExample() {
		b.WriteString("\nExamples:\n" + strings.Trim(c.Example, "\n") + "\n")
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\nAvailable Commands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				head := "  " + sub.Name() + strings.Repeat(" ", max(0, sub.NamePadding()-len(sub.Name()))) + " "
				pad := strings.Repeat(" ", len(head))
				b.WriteString(head + strings.TrimPrefix(hangBy(pad+sub.Short, columns, pad), pad) + "\n")
			}
		}
	}
	for _, flags := range []struct{ title, text string }{
		{"Flags", c.LocalFlags().FlagUsagesWrapped(columns)}, {"Global Flags", c.InheritedFlags().FlagUsagesWrapped(columns)},
	} {
		if flags.text != "" {
			b.WriteString("\n" + flags.title + ":\n" + flags.text)
		}
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\nUse \"" + c.CommandPath() + " [command] --help\" for more information about a command.\n")
	}
	_, err := c.OutOrStdout().Write([]byte(b.String()))
	return err
}

// fill fills the lines of a text's paragraphs, but for those that have a line of a list, a table, a heading or code.
func fill(text string, columns int) string {
	all := strings.Split(text, "\n\n")
	for i, p := range all {
		body := strings.TrimRight(p, "\n")
		if !apart.MatchString(body) {
			all[i] = hangBy(strings.ReplaceAll(body, "\n", " "), columns, "") + p[len(body):]
		}
	}
	return strings.Join(all, "\n\n")
}

// apart matches a line that stands by itself.
var apart = regexp.MustCompile("(?m)^([ \t|]|#+ |[*-] |[0-9]+\\. |```)")
