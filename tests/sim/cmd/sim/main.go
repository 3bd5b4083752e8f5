// Command sim runs a job of tests/sim/mesh in virtual time, shows what happened, and makes a scenario that fails smaller. See
// docs/internals/simulation.md.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"ncclmesh/tests/sim/mesh"
)

const usage = `Runs a job in virtual time, on models of machines, cables, adapters and sockets, and shows what happened.

  go run ./tests/sim/cmd/sim [options] FILE                   the scenario of a file
  go run ./tests/sim/cmd/sim [options] -test NAME -seed N     the scenario that a test of tests/sim/mesh draws from a seed

It prints the scenario, then a line for each thing that was done to the machines (*) or that a process logged, each with its
virtual time, and whether the run shows what is expected. Exit status: 0 it does, 1 it does not, 2 there is no such scenario.

Options:
`

// errFailed is the error of a scenario that fails.
var errFailed = errors.New("the scenario fails")

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errFailed):
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(2)
	}
}

// options are what the command line says.
type options struct {
	test   string
	seed   uint64
	text   bool
	shrink bool
	out    string
	file   string
}

// parse reads the command line.
func parse(args []string, stderr io.Writer) (*options, error) {
	var o options
	flags := flag.NewFlagSet("sim", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.test, "test", "", "`NAME` of the test that draws the scenario, such as TestBusyCablesFail")
	flags.Uint64Var(&o.seed, "seed", 0, "seed that the test draws from, from 1 on")
	flags.BoolVar(&o.text, "text", false, "print the scenario's text, and run nothing")
	flags.BoolVar(&o.shrink, "shrink", false, "make a scenario that fails smaller, for as long as it fails in the same way")
	flags.StringVar(&o.out, "o", "smallest.txt", "`FILE` to which -shrink writes the smallest scenario")
	err := flags.Parse(args)
	switch o.file = flags.Arg(0); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stderr, usage)
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w; -help lists the options", err)
	case flags.NArg() > 1:
		return nil, fmt.Errorf("%q is too much: one scenario runs at a time, and options come before its file", flags.Args()[1:])
	case o.file != "" && (o.test != "" || o.seed != 0):
		return nil, errors.New("a file and a seed are two scenarios: leave out the file, or -test and -seed")
	case o.file == "" && (o.test == "" || o.seed == 0):
		return nil, errors.New("there is no scenario: name a file, or a test and a seed, as in -test TestBusyCablesFail -seed 7")
	}
	return &o, nil
}

// run does what the command line says.
func run(args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	p, err := build()
	if err != nil {
		return err
	}
	defer p.close()
	var text string
	if o.file != "" {
		b, err := os.ReadFile(o.file)
		if err != nil {
			return fmt.Errorf("%w; a scenario is a file like those in tests/sim/mesh/testdata/corpus", err)
		}
		text = string(b)
	} else if text, err = p.draw(o.test, o.seed); err != nil {
		return err
	}
	s, err := mesh.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w; docs/internals/simulation.md lists the lines of a scenario", o.file, err)
	}
	fmt.Fprint(stdout, s)
	if o.text {
		return nil
	}
	outcome, err := p.play(s)
	if err != nil {
		return err
	}
	show(stdout, outcome)
	switch {
	case !outcome.Failed && o.shrink:
		fmt.Fprintln(stdout, "There is nothing to make smaller.")
		return nil
	case !outcome.Failed:
		return nil
	case o.shrink:
		return shrink(stdout, p, s, outcome, o.out)
	}
	fmt.Fprintln(stdout, "Next: the same command with -shrink makes the scenario smaller.")
	return errFailed
}

// show prints what a run has shown.
func show(w io.Writer, o *mesh.Outcome) {
	fmt.Fprintln(w)
	for _, l := range o.Lines {
		fmt.Fprintln(w, l)
	}
	fmt.Fprintf(w, "\n%s\n", o.Counts)
	if !o.Failed {
		fmt.Fprintf(w, "passed: hash %s after %d events, commit %s\n", o.Hash, o.Events, mesh.Commit())
		return
	}
	fmt.Fprintf(w, "FAILED: hash %s after %d events, commit %s\n", o.Hash, o.Events, mesh.Commit())
	for _, f := range o.Failures {
		fmt.Fprintln(w, "  "+strings.ReplaceAll(strings.TrimSpace(f), "\n", "\n  "))
	}
}

// shrink makes a scenario that fails smaller, and writes the smallest to a file.
func shrink(w io.Writer, p *player, s *mesh.Scenario, o *mesh.Outcome, file string) error {
	class := o.Class()
	fmt.Fprintf(w, "\nmaking it smaller, while it fails with: %s\n", class)
	var failed error
	n := 0
	smallest := s.Shrink(func(s *mesh.Scenario) bool {
		o, err := p.play(s)
		if err != nil {
			failed = errors.Join(failed, err)
			return false
		}
		return o.Class() == class
	}, func(what string, kept bool, smallest *mesh.Scenario) {
		n++
		verdict := "no longer fails so"
		if kept {
			verdict = fmt.Sprintf("still fails; %d lines left", strings.Count(smallest.String(), "\n"))
		}
		fmt.Fprintf(w, "%4d  %s: %s\n", n, what, verdict)
	})
	if failed != nil {
		return failed
	}
	if err := os.WriteFile(file, []byte(smallest.String()), 0o644); err != nil {
		return fmt.Errorf("%w; -o names another file", err)
	}
	fmt.Fprintf(w, "\n%sNext: go run ./tests/sim/cmd/sim %s shows its run. Once it is repaired, add it to tests/sim/mesh/testdata/corpus,\nwith a comment that says what it found.\n", smallest, file)
	return errFailed
}
