package mesh

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"ncclmesh/tests/sim/bus"
)

// An Outcome is what a run has shown.
type Outcome struct {
	Scenario string
	Failed   bool
	Failures []string // what the test said, the first first
	Lines    []Line   // what was done to the world, and what the processes logged
	Counts   string   // what the models counted
	Hash     string   // of the trace
	Events   int

	bus *bus.Bus
}

// A Line is something that was done or logged.
type Line struct {
	At   time.Duration
	Done bool // to the world
	Text string
}

func (l Line) String() string {
	mark := " "
	if l.Done {
		mark = "*"
	}
	return fmt.Sprintf("%14v %s %s", l.At, mark, l.Text)
}

// take takes from a world what a run has shown.
func (o *Outcome) take(w *World) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o.bus, o.Failures = w.Bus, w.failures
	for _, l := range w.notes {
		o.Lines = append(o.Lines, Line{l.at, true, l.text})
	}
	for _, m := range w.Machines {
		for _, p := range m.processes {
			for _, l := range p.log() {
				o.Lines = append(o.Lines, Line{l.at, false, l.text})
			}
		}
	}
	slices.SortStableFunc(o.Lines, func(a, b Line) int { return int(a.At - b.At) })
	o.Counts = fmt.Sprintf("sockets: %v, verbs: %v", w.Net.Counts(), w.Fabric.Counts())
}

// end completes the outcome when the bubble has ended.
func (o *Outcome) end(failed bool) {
	o.Failed = failed
	if o.bus != nil {
		s := o.bus.Summary()
		o.Hash, o.Events = fmt.Sprintf("%016x", s.Hash), s.Events
	}
}

var (
	cause   = regexp.MustCompile(`^.*? returned nccl\w+(: \S+ WARN NET/Mesh : \w+: [^:]+)?`)
	numbers = regexp.MustCompile(`[0-9][0-9a-f]*(\.[0-9]+)?(ns|µs|ms|s|m|h)?`)
)

// Class returns what is alike in two failures of one cause, as far as the first that was reported says: its text without
// numbers, times and machines, and without the words of a log. It is "" of a run that did not fail.
func (o *Outcome) Class() string {
	if !o.Failed {
		return ""
	}
	if len(o.Failures) == 0 {
		return "unknown"
	}
	text, _, _ := strings.Cut(o.Failures[0], "\n")
	if c := cause.FindString(text); c != "" {
		text = c
	}
	text = strings.NewReplacer("sender of", "end of", "receiver of", "end of").Replace(text)
	text = numbers.ReplaceAllString(text, "#")
	for _, l := range strings.Split(o.Scenario, "\n") {
		if m, ok := strings.CutPrefix(l, "machine "); ok {
			text = regexp.MustCompile(`\b`+m+`\b`).ReplaceAllString(text, "MACHINE")
		}
	}
	if head, _, ok := strings.Cut(text, "; "); ok {
		text = head
	}
	return text
}

// String returns the whole outcome, for a person.
func (o *Outcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "commit %s\n\n%s\nwhat was done (*) and logged:\n", Commit(), o.Scenario)
	for _, l := range o.Lines {
		fmt.Fprintln(&b, l)
	}
	fmt.Fprintf(&b, "%s\nhash %s after %d events", o.Counts, o.Hash, o.Events)
	return b.String()
}
