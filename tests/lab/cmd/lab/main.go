// Lab boots small virtual machines that are cabled as a mesh and runs a job in them. See the usage text below.
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
	"sync"
	"syscall"
	"time"

	"ncclmesh/tests/lab"
)

const usage = `usage: lab COMMAND [flags] [JOB]

  lab prepare             make what the machines boot from (once; the other commands do it when needed)
  lab triangle JOB        three machines a, b, c, a cable between each two, a management network
  lab ring JOB            four machines a, b, c, d in a ring: opposite ones share no cable
  lab demo                the triangle with ncclmesh's plugin: a drawing, lanes, an all-reduce table

JOB is a directory or a script. A directory is copied to /job of every machine and its run.sh runs in each; a script runs as it is.
Scripts have NODE (a, b, ...), run as root and find functions in /lab/lib.sh. The exit status is the worst one of the machines,
124 after the time limit, 125 when a machine died twice.

flags:
`

// Exit statuses beside those of scripts.
const (
	statusTimeout     = 124
	statusMachine     = 125
	statusInterrupted = 130
)

type options struct {
	dir, accel     string
	timeout        time.Duration
	memory         int
	plugin, driver string
	copies         []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
	}
	os.Exit(status)
}

func run(ctx context.Context, args []string) (int, error) {
	o := options{}
	fs := o.flags()
	if len(args) == 0 {
		fs.Usage()
		return 2, nil
	}
	command := args[0]
	if err := fs.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return 0, nil
	} else if err != nil {
		return 2, nil // flag has said why
	}
	accel, err := lab.ParseAccel(o.accel)
	if err != nil {
		return 2, err
	}
	progress := lab.NewProgress(os.Stderr)
	cfg := lab.Config{Accel: accel, Memory: o.memory, Files: o.copies, Progress: progress}

	var mesh lab.Mesh
	switch command {
	case "prepare", "demo":
		if fs.NArg() != 0 {
			return 2, fmt.Errorf("%s takes no argument, not %q", command, fs.Arg(0))
		}
	case "triangle", "ring":
		mesh = map[string]lab.Mesh{"triangle": lab.Triangle(), "ring": lab.Ring()}[command]
		if fs.NArg() != 1 {
			return 2, fmt.Errorf("%s takes one argument, a job directory or script; see lab -h", command)
		}
	case "help", "-h", "-help", "--help":
		fs.Usage()
		return 0, nil
	default:
		return 2, fmt.Errorf("unknown command %q; there are prepare, triangle, ring and demo", command)
	}

	if err := o.check(command, fs.Arg(0)); err != nil {
		return 2, err
	}
	images, err := lab.Prepare(ctx, o.dir, progress)
	if err != nil {
		return 1, err
	}
	defer images.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("more than --timeout %v", o.timeout))
	defer cancel()
	switch command {
	case "prepare":
		progress.Say("%s is ready: Linux %s, %d packages", o.dir, images.Release, len(images.Packages))
		return 0, nil
	case "demo":
		return demo(ctx, images, cfg, o)
	}
	return runJob(ctx, images, mesh, cfg, fs.Arg(0))
}

// flags are those that set o.
func (o *options) flags() *flag.FlagSet {
	fs := flag.NewFlagSet("lab", flag.ContinueOnError)
	fs.Usage = func() { fmt.Fprint(fs.Output(), usage); fs.PrintDefaults() }
	fs.StringVar(&o.dir, "dir", filepath.Join(lab.ModuleRoot(), "build/lab"), "where kernel and root directory are kept")
	fs.StringVar(&o.accel, "accel", "auto", "auto, kvm or tcg (emulation)")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Minute, "time limit of the whole run, booting included")
	fs.IntVar(&o.memory, "memory", 1024, "memory of a machine in MB")
	fs.StringVar(&o.plugin, "plugin", filepath.Join(lab.ModuleRoot(), "build/libnccl-net-mesh.so"), "demo: the plugin")
	fs.StringVar(&o.driver, "driver", filepath.Join(lab.ModuleRoot(), "build/netdriver"), "demo: the program that stands in for NCCL")
	fs.Func("copy", "a file or directory to copy to /job (repeatable)", func(s string) error { o.copies = append(o.copies, s); return nil })
	return fs
}

// check looks for the files that a command cannot do without.
func (o options) check(command, job string) error {
	for _, f := range o.needed(command, job) {
		if _, err := os.Stat(f); err != nil {
			hint := ""
			if f == o.plugin || f == o.driver {
				hint = "; run make first"
			}
			return fmt.Errorf("%w%s", err, hint)
		}
	}
	return nil
}

// needed are the files that a command cannot do without.
func (o options) needed(command, job string) []string {
	switch command {
	case "demo":
		return append([]string{o.plugin, o.driver}, o.copies...)
	case "prepare":
		return nil
	}
	return append([]string{job}, o.copies...)
}

// runJob runs a job in all machines, and once more when a machine died.
func runJob(ctx context.Context, images *lab.Images, mesh lab.Mesh, cfg lab.Config, job string) (int, error) {
	st, err := os.Stat(job)
	if err != nil {
		return 2, err
	}
	script := ". /job/run.sh"
	if st.IsDir() {
		cfg.Files = append(cfg.Files, job)
	} else {
		b, err := os.ReadFile(job)
		if err != nil {
			return 2, err
		}
		script = string(b)
	}
	var mu sync.Mutex
	cfg.Log = func(machine, line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("[%s] %s\n", machine, line)
	}
	return onceMore(ctx, cfg.Progress, func() (int, error) { return runOnce(ctx, images, mesh, cfg, script) })
}

func runOnce(ctx context.Context, images *lab.Images, mesh lab.Mesh, cfg lab.Config, script string) (int, error) {
	l, err := images.Start(ctx, mesh, cfg)
	if err != nil {
		return 0, err
	}
	defer l.Close()
	results, err := l.RunAll(ctx, script)
	worst := 0
	for _, r := range results {
		worst = max(worst, r.Status)
	}
	return worst, err
}

func demo(ctx context.Context, images *lab.Images, cfg lab.Config, o options) (int, error) {
	d := lab.Demo{Out: os.Stdout, Plugin: o.plugin, Driver: o.driver, Config: cfg}
	return onceMore(ctx, cfg.Progress, func() (int, error) {
		if err := d.Run(ctx, images); err != nil {
			return 1, err
		}
		return 0, nil
	})
}

// onceMore calls f, and again when a machine died, and says how the program ends.
func onceMore(ctx context.Context, p *lab.Progress, f func() (int, error)) (int, error) {
	for try := 1; ; try++ {
		status, err := f()
		switch {
		case err == nil:
			return status, nil
		case errors.Is(context.Cause(ctx), context.Canceled):
			return statusInterrupted, errors.New("interrupted")
		case ctx.Err() != nil:
			return statusTimeout, err
		case !errors.Is(err, lab.ErrMachine):
			return 1, err
		case try == 2:
			return statusMachine, err
		}
		p.Say("%s; once more", strings.TrimSpace(err.Error()))
	}
}
