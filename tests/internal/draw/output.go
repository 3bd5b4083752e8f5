package draw

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Output sorts what the ranks of a job print: lanes are collected, warnings and
// the first host's table are shown, the rest is the plugin's log.
type Output struct {
	out   io.Writer
	first string

	mu      sync.Mutex
	showing bool
	lanes   []Lane
}

// NewOutput shows to out what is worth it. first is the host of rank 0.
func NewOutput(out io.Writer, first string) *Output { return &Output{out: out, first: first} }

// Show says whether lines are shown from now on. At first they are not.
func (o *Output) Show(showing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.showing = showing
}

// Line takes a line that a host has printed.
func (o *Output) Line(host, line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, lane := range ParseLanes(line) { // as the sender has them, who knows the way
		if lane.From == host && lane.From != lane.To && !slices.Contains(o.lanes, lane) {
			o.lanes = append(o.lanes, lane)
		}
	}
	switch {
	case !o.showing:
	case strings.Contains(line, "NCCL WARN"):
		fmt.Fprintf(o.out, "  [%s] %s\n", host, line)
	case strings.Contains(line, "NCCL INFO"), strings.HasPrefix(line, "# Longest calls"):
	case host == o.first:
		fmt.Fprintf(o.out, "  %s\n", line)
	}
}

// Lanes returns those between different hosts, each once.
func (o *Output) Lanes() []Lane {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.lanes)
}
