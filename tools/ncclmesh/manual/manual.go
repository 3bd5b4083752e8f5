package manual

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Page is what the manual page of a command has beside the command's help.
type Page struct {
	Status      string     // what its exit statuses mean; the description leaves this paragraph of the help out
	Environment []Variable // that it reads
}

// A Variable is one environment variable of a page.
type Variable struct{ Name, Meaning string }

// Write writes the pages of a command and of its subcommands that users see into a directory, each as a file such as
// ncclmesh-doctor.1. pages has what their help does not say, by the path of the command ("ncclmesh doctor"); a command
// that is not in it is an error.
func Write(dir string, c *cobra.Command, pages map[string]Page, date time.Time) error {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	page, ok := pages[c.CommandPath()]
	if !ok {
		return fmt.Errorf("%s: nothing says what its exit statuses mean", c.CommandPath())
	}
	if err := os.WriteFile(filepath.Join(dir, name(c)+".1"), []byte(text(c, page, date)), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			if err := Write(dir, sub, pages, date); err != nil {
				return err
			}
		}
	}
	return nil
}

// name returns the name of a command's page.
func name(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// text returns a page.
func text(c *cobra.Command, page Page, date time.Time) string {
	var b strings.Builder
	// Names of files and variables are not hyphenated, so that they can be copied.
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"%s\" \"ncclmesh\" \"ncclmesh\"\n.nh\n.ad l\n", escape(strings.ToUpper(name(c))), date.Format("Jan 2006"))
	section(&b, "NAME", escape(name(c))+" \\- "+escape(c.Short)+"\n")
	use := c.UseLine()
	if !c.Runnable() {
		use = c.CommandPath() + " COMMAND"
	}
	section(&b, "SYNOPSIS", "\\fB"+escape(use)+"\\fR\n")
	long := c.Long
	if long == "" {
		long = c.Short
	}
	section(&b, "DESCRIPTION", paragraphs(strings.Replace(long, page.Status, "", 1)))
	section(&b, "OPTIONS", options(c))
	section(&b, "EXIT STATUS", paragraphs(page.Status))
	var variables strings.Builder
	for _, v := range page.Environment {
		entry(&variables, "\\fB"+escape(v.Name)+"\\fR", v.Meaning)
	}
	section(&b, "ENVIRONMENT", variables.String())
	if c.Example != "" {
		section(&b, "EXAMPLES", verbatim(c.Example))
	}
	section(&b, "SEE ALSO", related(c))
	return b.String()
}

// section writes a section, unless it is empty.
func section(b *strings.Builder, title, body string) {
	if body != "" {
		fmt.Fprintf(b, ".SH %s\n%s", title, body)
	}
}

// entry writes an option or a variable and what it means.
func entry(b *strings.Builder, head, meaning string) {
	fmt.Fprintf(b, ".TP\n%s\n%s\n", head, lines(meaning))
}

// options lists the flags of a command, with the arguments and defaults that its help shows.
func options(c *cobra.Command) string {
	var b strings.Builder
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		argument, usage := pflag.UnquoteUsage(f)
		head := "\\fB" + escape("--"+f.Name) + "\\fR"
		if f.Shorthand != "" {
			head = "\\fB" + escape("-"+f.Shorthand) + "\\fR, " + head
		}
		if argument != "" {
			head += " \\fI" + escape(argument) + "\\fR"
		}
		switch f.DefValue {
		case "", "0", "0s", "false", "[]":
		default:
			usage += " (default " + strings.Trim(f.DefValue, "[]") + ")"
		}
		entry(&b, head, usage)
	})
	return b.String()
}

// related lists the pages of the command above and of those below.
func related(c *cobra.Command) string {
	var pages []string
	add := func(c *cobra.Command) { pages = append(pages, "\\fB"+escape(name(c))+"\\fR(1)") }
	if c.HasParent() {
		add(c.Parent())
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			add(sub)
		}
	}
	if len(pages) == 0 {
		return ""
	}
	return strings.Join(pages, ", ") + "\n"
}

// paragraphs writes a text whose paragraphs have an empty line between them.
func paragraphs(text string) string {
	var b strings.Builder
	for p := range strings.SplitSeq(text, "\n\n") {
		if p = strings.Trim(p, "\n"); p != "" {
			b.WriteString(".PP\n" + lines(p) + "\n")
		}
	}
	return b.String()
}

// verbatim writes lines that are not filled.
func verbatim(text string) string { return ".nf\n" + lines(strings.Trim(text, "\n")) + "\n.fi\n" }

// lines escapes each line of a text.
func lines(text string) string {
	all := strings.Split(text, "\n")
	for i, line := range all {
		all[i] = escape(line)
	}
	return strings.Join(all, "\n")
}

// special are the characters that a formatter would otherwise take for its own or replace with typographic ones.
var special = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", "\\(ga", `^`, `\(ha`, `~`, `\(ti`, `"`, `\(dq`)

// escape makes a line that shows as it is.
func escape(line string) string {
	line = special.Replace(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}
