package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"ncclmesh/tests/internal/draw"
)

// A Demo runs ncclmesh's main job in the triangle and shows it to a person.
type Demo struct {
	Out            io.Writer
	Plugin, Driver string   // host paths
	Args           []string // of the driver; default: a short all-reduce, then messages between every pair
	Config         Config
}

const demoPort = 7000

// rnrCounters count arrivals for which no receive was posted: the plugin promises that there are none.
var rnrCounters = []string{"rcvd_rnr_err", "send_rnr_err"}

// Run draws the mesh, boots it and runs the job. The error says what did not hold.
func (d Demo) Run(ctx context.Context, images *Images) error {
	mesh := Triangle()
	fmt.Fprintf(d.Out, "\nThree machines, a cable between each two, every cable a subnet of its own, no switch:\n\n%s\n", Draw(mesh))
	cfg := d.Config
	cfg.Files = append(cfg.Files, d.Plugin, d.Driver)
	seen := draw.NewOutput(d.Out, Host(mesh.Machines[0]))
	cfg.Log = func(machine, line string) { seen.Line(Host(machine), line) }
	l, err := images.Start(ctx, mesh, cfg)
	if err != nil {
		return err
	}
	defer l.Close()

	args := d.Args
	if args == nil {
		args = []string{"--work", "sendrecv,allreduce", "--min", "8", "--max", "8M", "--factor", "16", "--iters", "3", "--warmup", "1"}
	}
	job := DriverJob{Args: args, Env: map[string]string{"NCCL_DEBUG": "INFO"}, Port: demoPort}
	fmt.Fprintf(d.Out, "\nOne rank on each, through %s, over the kernel's rdma_rxe:\n\n", PluginFile)
	seen.Show(true)
	begin := time.Now()
	results, err := l.RunAll(ctx, job.Script(mesh))
	took := time.Since(begin)
	if err != nil {
		return err
	}
	if err := failed(results); err != nil {
		return err
	}
	seen.Show(false)
	counts, err := l.RunAll(ctx, CounterScript(rnrCounters...))
	if err != nil {
		return err
	}
	if err := errors.Join(failed(counts), checkZero(counts)); err != nil {
		return err
	}
	fmt.Fprintf(d.Out, "\nThe lane that each pair uses:\n\n%s", draw.Table(seen.Lanes()))
	fmt.Fprintf(d.Out, "\n%d ranks, %.1f s, every byte checked: #wrong 0. No receiver was ever unready (RNR 0).\n", len(results), took.Seconds())
	if l.accel != AccelKVM {
		fmt.Fprintf(d.Out, "The machines are emulated (no KVM here), so the figures say nothing about speed.\n")
	}
	return nil
}

// failed is the error of results with a status other than 0: their output, whole.
func failed(results []Result) error {
	var errs []error
	for _, r := range results {
		if r.Status != 0 {
			errs = append(errs, fmt.Errorf("%s: status %d:\n%s", Host(r.Machine), r.Status, r.Output))
		}
	}
	return errors.Join(errs...)
}

// checkZero reads the outputs of a CounterScript and names the counters that are not zero.
func checkZero(results []Result) error {
	var errs []error
	for _, r := range results {
		counters, err := ParseCounters(r.Output)
		errs = append(errs, err)
		if err == nil && len(counters) == 0 {
			errs = append(errs, fmt.Errorf("%s: no RDMA device has counters", Host(r.Machine)))
		}
		for _, c := range counters {
			if c.Value != 0 {
				errs = append(errs, fmt.Errorf("%s: %s %s is %d, expected 0", Host(r.Machine), c.Device, c.Name, c.Value))
			}
		}
	}
	return errors.Join(errs...)
}
