package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// options of the command line.
type options struct {
	only    string
	runs    int
	seconds float64
	quick   bool
	quiet   bool
	lab     bool
	json    string
	plots   string
	build   string
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "measure only figures whose name contains `NAME`; several are separated by commas")
	flag.IntVar(&o.runs, "runs", 5, "measure everything `N` times")
	flag.Float64Var(&o.seconds, "seconds", 0.5, "length of one measurement, about")
	flag.BoolVar(&o.quick, "quick", false, "one short run of everything: shows that it works, proves nothing")
	flag.BoolVar(&o.quiet, "quiet", false, "measure again what other programs disturb, a few times, and take what they disturbed least")
	flag.BoolVar(&o.lab, "lab", false, "also measure in virtual machines, beside ib_write_bw and iperf3; takes minutes")
	flag.StringVar(&o.json, "json", "", "keep the results in `FILE` (BUILD/bench.json)")
	flag.StringVar(&o.plots, "plots", "", "draw bandwidth.svg and latency.svg in `DIR` (docs; BUILD with --quick)")
	flag.StringVar(&o.build, "build", "build", "where the plugin, netdriver, fakeverbs and bench were built")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.quick {
		o.runs, o.seconds = 1, 0.1
	}
	if o.runs < 1 || o.seconds <= 0 {
		return errors.New("--runs and --seconds must be positive")
	}
	if o.json == "" {
		o.json = filepath.Join(o.build, "bench.json")
	}
	if o.plots == "" {
		o.plots = "docs"
		if o.quick {
			o.plots = o.build
		}
	}
	for _, dir := range []string{filepath.Dir(o.json), o.plots} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.calibrate(); err != nil {
		return err
	}
	res := results{Machine: b.machine()}
	fmt.Printf("%s\n\n", res.Machine)
	for _, f := range figures(b.scale) {
		if !o.wants(f.name) {
			continue
		}
		r, err := b.figure(f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		res.Figures = append(res.Figures, r...)
	}
	for _, c := range curves() {
		if !o.wants(c.name) {
			continue
		}
		r, err := b.curve(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		res.Curves = append(res.Curves, r)
	}
	inLab, err := b.lab()
	if err != nil {
		return err
	}
	res.Figures = append(res.Figures, inLab...)
	if b.runs > 0 {
		res.Figures = append(res.Figures, b.notReady())
	}
	if err := res.keep(o.json); err != nil {
		return err
	}
	for _, c := range res.Curves {
		if err := c.draw(o.plots); err != nil {
			return err
		}
	}
	res.print(os.Stdout)
	return nil
}

func (o options) wants(name string) bool {
	if o.only == "" {
		return true
	}
	for part := range strings.SplitSeq(o.only, ",") {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}
