package doctor

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"ncclmesh/tools/ncclmesh/doctor/facts"
)

// colours of severities on a terminal.
var colours = map[Severity]string{Fail: "\x1b[31;1m", Warn: "\x1b[33;1m", Info: "\x1b[36m", Unknown: "\x1b[35m"}

// WriteText writes the report for people, in lines of a width: findings of a check that have one remedy are one
// block, and what is not known one line for each reason, which holds for all nodes where it
// names none.
func (r *Report) WriteText(w io.Writer, colour bool, width int) error {
	b := bufio.NewWriter(w)
	for _, block := range r.blocks() {
		block.write(b, colour, width)
	}
	if r.Fine(r.Strict) {
		fmt.Fprintln(b, r.Verdict())
		return b.Flush()
	}
	for _, u := range r.unknowns() {
		fmt.Fprintf(b, "%s %s\n", head(Unknown, colour), wrap(u, margin, margin+2, width))
	}
	fmt.Fprintln(b, wrap(r.summary(), 0, 2, width))
	return b.Flush()
}

// margin is where all but the heads of lines begin.
const margin = len("FAIL ")

// wrap breaks a text at spaces, so that each line ends before the width where a word allows it. The first line begins in the
// column at, the others are indented to the column hang.
func wrap(text string, at, hang, width int) string {
	var b strings.Builder
	for text != "" {
		word := strings.TrimLeft(text, " ")
		gap := len(text) - len(word)
		word, _, _ = strings.Cut(word, " ")
		text = text[gap+len(word):]
		n := utf8.RuneCountInString(word)
		if at+gap+n > width && at > hang {
			b.WriteString("\n" + strings.Repeat(" ", hang))
			at, gap = hang, 0
		}
		b.WriteString(strings.Repeat(" ", gap) + word)
		at += gap + n
	}
	return b.String()
}

// Verdict is what people read of a report in which nothing was found: one line, and a second where checks could not be made.
func (r *Report) Verdict() string {
	what := []string{plural(len(r.Nodes), "node")}
	if r.Cables > 0 {
		halves := "halves"
		if r.Halves == 1 {
			halves = "half"
		}
		what = append(what, plural(r.Cables, "cable"), fmt.Sprintf("%d %s validated", r.Halves, halves))
	}
	said := []string{fmt.Sprintf("all is well: %s in %.1f s", strings.Join(what, ", "), r.Seconds)}
	if n := len(r.unknowns()); n > 0 {
		root := ""
		if r.needsRoot() {
			root = " (some need root)"
		}
		said = append(said, fmt.Sprintf("%d of %s could not be made%s: --strict lists them", r.Counts[Unknown], plural(len(r.Checks), "check"), root))
	}
	if _, ignored := r.notShown(); ignored > 0 {
		said = append(said, fmt.Sprintf("%d ignored", ignored))
	}
	return strings.Join(said, "\n")
}

// notShown counts the findings that follow from others, and those that the user has ignored.
func (r *Report) notShown() (hidden, ignored int) {
	for _, f := range r.Findings {
		if f.Ignored {
			ignored++
		} else if f.Cause != "" {
			hidden++
		}
	}
	return hidden, ignored
}

// block is findings that are read as one.
type block []Finding

// blocks are the findings that are shown, but for what is not known.
func (r *Report) blocks() (all []block) {
	for _, f := range r.Findings {
		if !f.Shown() || f.Severity == Unknown {
			continue
		}
		i := slices.IndexFunc(all, func(b block) bool {
			return b[0].Check == f.Check && b[0].Severity == f.Severity && b[0].Remedy == f.Remedy
		})
		if i < 0 {
			all = append(all, block{f})
		} else {
			all[i] = append(all[i], f)
		}
	}
	return all
}

func head(s Severity, colour bool) string {
	word := map[Severity]string{Fail: "FAIL", Warn: "WARN", Info: "info", Unknown: "?   "}[s]
	if colour {
		return colours[s] + word + "\x1b[0m"
	}
	return word
}

func (b block) write(w io.Writer, colour bool, width int) {
	lines := b.lines()
	wide := 0
	for _, l := range lines {
		wide = max(wide, utf8.RuneCountInString(l.where))
	}
	indent := margin + len(b[0].Check) + 2
	if indent+wide > width/2 {
		wide = 0 // in columns there would be no room for the evidence
	}
	for i, l := range lines {
		start := strings.Repeat(" ", indent)
		if i == 0 {
			start = head(b[0].Severity, colour) + " " + b[0].Check + "  "
		}
		pad := strings.Repeat(" ", max(0, wide-utf8.RuneCountInString(l.where)))
		fmt.Fprintln(w, start+wrap(l.where+pad+"  "+l.evidence, indent, margin+2, width))
	}
	if b[0].Remedy != "" {
		said := wrap(sentence(b[0].Remedy)+".", margin, margin, width)
		explain := "ncclmesh explain " + b[0].Check
		if last := said[strings.LastIndexByte(said, '\n')+1:]; strings.Contains(said, "\n") || margin+utf8.RuneCountInString(last)+3+len(explain) > width {
			explain = "\n" + strings.Repeat(" ", margin) + explain
		} else {
			explain = "   " + explain
		}
		fmt.Fprintln(w, strings.Repeat(" ", margin)+said+explain)
	}
}

// line is what people read of findings with the same evidence.
type line struct{ where, evidence string }

func (b block) lines() (all []line) {
	for _, f := range b {
		i := slices.IndexFunc(all, func(l line) bool { return l.evidence == f.Evidence })
		if i < 0 {
			all = append(all, line{f.Where(), f.Evidence})
		} else {
			all[i].where += ", " + f.Where()
		}
	}
	return all
}

// sentence begins with a capital, unless it begins with a name.
func sentence(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[n:]
}

// unknowns are lines of the checks that could not be made, by why.
func (r *Report) unknowns() (lines []string) {
	type reason struct {
		why           string
		checks, where []string
	}
	var all []*reason
	for _, f := range r.Findings {
		if !f.Shown() || f.Severity != Unknown {
			continue
		}
		i := slices.IndexFunc(all, func(u *reason) bool { return u.why == f.Evidence })
		if i < 0 {
			i = len(all)
			all = append(all, &reason{why: f.Evidence})
		}
		all[i].checks = add(all[i].checks, f.Check)
		for _, p := range f.Places {
			all[i].where = add(all[i].where, p.Node)
		}
	}
	for _, u := range all {
		line := strings.Join(u.checks, ", ") + "  "
		if len(u.where) > 0 && len(u.where) < len(r.Nodes) {
			line += strings.Join(u.where, ", ") + "  "
		}
		lines = append(lines, line+u.why)
	}
	return lines
}

func add(to []string, s string) []string {
	if slices.Contains(to, s) {
		return to
	}
	return append(to, s)
}

// summary is the last line: nodes, cables, checks, time, counts.
func (r *Report) summary() string {
	counts := []string{}
	for _, c := range []struct {
		s         Severity
		one, many string
	}{{Fail, "failed", "failed"}, {Warn, "warning", "warnings"}, {Unknown, "unknown", "unknown"}, {Info, "note", "notes"}} {
		n := r.Counts[c.s]
		switch {
		case n == 1:
			counts = append(counts, "1 "+c.one)
		case n > 1:
			counts = append(counts, fmt.Sprintf("%d %s", n, c.many))
		}
		if c.s == Unknown && n > 0 && r.needsRoot() {
			counts[len(counts)-1] += " (some need root)"
		}
	}
	hidden, ignored := r.notShown()
	if hidden == 1 {
		counts = append(counts, "1 more follows from these")
	} else if hidden > 0 {
		counts = append(counts, fmt.Sprintf("%d more follow from these", hidden))
	}
	if ignored > 0 {
		counts = append(counts, fmt.Sprintf("%d ignored", ignored))
	}
	if len(counts) == 0 {
		counts = append(counts, "all passed")
	}
	return fmt.Sprintf("%s, %s, %s in %.1f s: %s", plural(len(r.Nodes), "node"), plural(r.Cables, "cable"), plural(len(r.Checks), "check"), r.Seconds, strings.Join(counts, ", "))
}

func (r *Report) needsRoot() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Shown() && f.Severity == Unknown && strings.Contains(f.Evidence, facts.NeedsRoot)
	})
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
