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
	base    string
	cpus    string
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
	flag.StringVar(&o.only, "only", "", "measure only figures whose name contains `NAME`, or is it with = before it; several are separated by commas. put: one-sided transfers")
	flag.StringVar(&o.base, "base", "", "measure beside the plugin and libncclmesh of `COMMIT`, which is built below BUILD/base; status 1 if anything is worse beyond the noise")
	flag.StringVar(&o.cpus, "cpus", "", "`A,B`: the processors of the first rank and of the second; where cost is measured both run on A (the first, and the first of another core)")
	flag.IntVar(&o.runs, "runs", 0, "measure everything `N` times (5; 15 beside a base)")
	flag.Float64Var(&o.seconds, "seconds", 0.5, "length of one measurement, about")
	flag.BoolVar(&o.quick, "quick", false, "one short run of everything: shows that it works, proves nothing")
	flag.BoolVar(&o.quiet, "quiet", false, "measure again what other programs disturb, a few times, and take what they disturbed least")
	flag.BoolVar(&o.lab, "lab", false, "also measure in virtual machines, beside ib_write_bw and iperf3; takes minutes")
	flag.StringVar(&o.json, "json", "", "keep the results in `FILE` (BUILD/bench.json); - for standard output, and the rest goes to standard error")
	flag.StringVar(&o.plots, "plots", "", "draw bandwidth.svg, latency.svg and tuner.svg in `DIR` (docs; BUILD with --quick)")
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

// settle fills in what was left open, and refuses what does not go together.
func (o *options) settle() error {
	if o.runs == 0 {
		o.runs = 5
		if o.base != "" {
			o.runs = 15
		}
	}
	if o.quick {
		o.runs, o.seconds = 1, 0.1
	}
	switch {
	case o.runs < 1 || o.seconds <= 0:
		return errors.New("--runs and --seconds must be positive")
	case o.base != "" && o.lab:
		return errors.New("--lab does not go with --base: it measures in machines of their own, once")
	case o.base != "" && o.runs < fewest:
		return fmt.Errorf("--base needs at least --runs %d, and no --quick: fewer tell no difference from noise", fewest)
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
	return nil
}

func run(ctx context.Context, o options) (err error) {
	if err := o.settle(); err != nil {
		return err
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
	if o.base == "" {
		fmt.Fprintf(b.out, "%s\n\n", res.Machine)
		err = b.measure(&res)
	} else {
		err = b.compare(&res)
	}
	if err != nil {
		return err
	}
	res.print(b.out)
	if err := res.keep(o.json); err != nil {
		return err
	}
	if bad := res.worse(); len(bad) > 0 {
		return fmt.Errorf("worse than %s beyond the noise: %s", o.base, strings.Join(bad, ", "))
	}
	return nil
}

// measure measures what is wanted beside its limits.
func (b *bench) measure(res *results) error {
	err := b.each(func(f figure) error {
		r, err := b.figure(f)
		res.Figures = append(res.Figures, r...)
		return err
	})
	if err != nil {
		return err
	}
	for _, c := range curves() {
		if !b.o.wants(c.name) {
			continue
		}
		if err := os.MkdirAll(b.o.plots, 0o755); err != nil {
			return err
		}
		r, err := b.curve(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := r.draw(b.o.plots); err != nil {
			return err
		}
		res.Curves = append(res.Curves, r)
	}
	if b.o.wants(tunerPlot) {
		if err := os.MkdirAll(b.o.plots, 0o755); err != nil {
			return err
		}
		err := errors.Join(drawTuner(b.o.plots), keepSweeps(b.o.plots, res.Machine, res.Figures, tunerRate*b.scale))
		if err != nil {
			return err
		}
	}
	inLab, err := b.lab()
	res.Figures = append(res.Figures, inLab...)
	if err == nil && b.runs > 0 {
		res.Figures = append(res.Figures, b.notReady())
	}
	return err
}

// compare measures what is wanted beside the plugin of a base.
func (b *bench) compare(res *results) error {
	b.progress("building the plugin of %s", b.o.base)
	base, err := buildBase(b.ctx, ".", b.o.base, b.build)
	if err != nil {
		return err
	}
	b.progress("")
	res.Base = base.commit
	fmt.Fprintf(b.out, "%s\nbeside %s, built in %s\n", res.Machine, b.o.base, filepath.Dir(base.plugin))
	if base.same {
		fmt.Fprintln(b.out, "both plugins are the same, byte by byte: all differences are noise")
	}
	fmt.Fprintln(b.out)
	hasLibrary := base.hasLibrary()
	return b.each(func(f figure) error {
		if f.library && !hasLibrary {
			return nil
		}
		r, err := b.against(f, base.plugin)
		res.Figures = append(res.Figures, r...)
		return err
	})
}

// each does all figures that are wanted.
func (b *bench) each(do func(f figure) error) error {
	var wanted []figure
	for _, f := range figures(b.scale, b.o.seconds) {
		if b.o.wants(f.name) {
			wanted = append(wanted, f)
		}
	}
	if len(wanted) == 0 && b.o.base != "" {
		return fmt.Errorf("--only %s: no figure has such a name", b.o.only)
	}
	for i, f := range wanted {
		b.at = fmt.Sprintf("%d/%d ", i+1, len(wanted))
		if err := do(f); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	b.at = ""
	return nil
}

func (o options) wants(name string) bool {
	if o.only == "" {
		return true
	}
	for part := range strings.SplitSeq(o.only, ",") {
		if whole, exact := strings.CutPrefix(part, "="); name == whole && exact || !exact && strings.Contains(name, part) {
			return true
		}
	}
	return false
}
