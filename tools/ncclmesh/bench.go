package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/bench"
	"ncclmesh/tools/ncclmesh/fleet"
)

const benchLong = `Measurements use the transport of the plugin, on the nodes themselves: no GPU, no NCCL
and no root are needed. The contents of the buffers are checked at the end of each
measurement. With one HOST this node takes part as well.

A node on which a job runs, or whose ports carry traffic, is not measured, except with
--while-busy. Buffers take an eighth of the free memory at most.`

const linkExample = `  ncclmesh bench link spark-2                 # between this node and another
  ncclmesh bench link spark-1 spark-2 spark-3 --svg links.svg`

const collExample = `  ncclmesh bench coll spark-1 spark-2 spark-3
  ncclmesh bench coll spark-1 spark-2 --op all_reduce -b 1M -e 1G -f 4 --json`

// benchFlags are those that all of ncclmesh bench have.
type benchFlags struct {
	hosts hostFlags
	busy  bool
	json  bool
	svg   string
}

func (f *benchFlags) add(sys *system, c *cobra.Command, schema string) {
	f.hosts.addRanks(sys, c)
	c.Flags().BoolVar(&f.busy, "while-busy", false, "measure although a job runs; that slows the job down")
	c.Flags().BoolVar(&f.json, "json", false, "write the figures in JSON, schema "+schema)
	c.Flags().StringVar(&f.svg, "svg", "", "draw the figures into `FILE` too; - is standard output, instead of text")
}

func benchCommand(sys *system) *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure cables and collectives between nodes", Long: benchLong}
	c.AddCommand(benchLinkCommand(sys), benchCollCommand(sys), benchNCCLCommand(sys))
	return c
}

func benchLinkCommand(sys *system) *cobra.Command {
	var f benchFlags
	var bytes string
	var lasts time.Duration
	c := &cobra.Command{
		Use:     "link HOST...",
		Short:   "Measure bandwidth and latency of every cable, and of paths through other nodes",
		Long:    "Measures every cable between the hosts: each function of it alone and all together, in one\ndirection and in both at once, and the latency of 8 bytes; and the paths through other\nnodes between hosts that share no cable. The column ALLOWED is what link and PCIe allow;\na rate over RDMA below three quarters of it is marked with ↓, and the status is 1 then.\n\n" + benchLong,
		Example: linkExample,
		Args:    someHost,
		RunE: func(c *cobra.Command, hosts []string) error {
			o := bench.LinkOptions{Options: bench.Options{WhileBusy: f.busy}, For: lasts}
			var err error
			if o.Bytes, err = sizeOf("--size", bytes); err != nil {
				return err
			}
			if lasts <= 0 || lasts > time.Minute {
				return fmt.Errorf("--time %v: want more than 0 and at most 1m", lasts)
			}
			return f.measure(sys, hosts, &o.Options, func(fl *fleet.Fleet, hosts []string) (figures, int, error) {
				r, err := bench.Links(c.Context(), fl, hosts, o)
				return r, 0, err
			})
		},
	}
	f.add(sys, c, bench.LinkSchema)
	c.Flags().StringVar(&bytes, "size", "4M", "`BYTES` of a message; K, M and G may follow")
	c.Flags().DurationVar(&lasts, "time", time.Second, "each measurement lasts this `TIME`, as 500ms or 2s")
	return c
}

func benchCollCommand(sys *system) *cobra.Command {
	var f benchFlags
	var ops []string
	var sizes sizeFlags
	o := bench.CollOptions{}
	c := &cobra.Command{
		Use:     "coll HOST...",
		Short:   "Measure collectives: ring all-reduce, all-to-all, send and receive",
		Long:    "Measures collectives with a rank on each host, in the order of their names, under\nthe columns of nccl-tests: a ring all-reduce, an all-to-all, and a send to the next rank.\nBuffers are in host memory, and the processor adds them, which may limit an all-reduce.\n\n" + benchLong,
		Example: collExample,
		Args:    someHost,
		RunE: func(c *cobra.Command, hosts []string) (err error) {
			for _, op := range ops {
				if !slices.Contains(bench.Kinds, op) {
					return fmt.Errorf("--op %s: want of %s", op, strings.Join(bench.Kinds, ", "))
				}
			}
			o.Kinds, o.WhileBusy = ops, f.busy
			if err := sizes.read(&o); err != nil {
				return err
			}
			return f.measure(sys, hosts, &o.Options, func(fl *fleet.Fleet, hosts []string) (figures, int, error) {
				r, err := bench.Collectives(c.Context(), fl, hosts, o)
				if err != nil {
					return nil, 0, err
				}
				return r, r.Most, nil
			})
		},
	}
	f.add(sys, c, bench.CollSchema)
	c.Flags().StringSliceVar(&ops, "op", bench.Kinds, "`KINDS` of collectives, separated by commas")
	complete(c, "op", bench.AllReduce+"\tsums on the processor, round a ring", bench.AllToAll+"\tevery rank sends to every other", bench.SendRecv+"\tto the next rank")
	sizes.add(c, "64M", 8)
	return c
}

// sizeFlags say which sizes of a collective are measured, and how often.
type sizeFlags struct {
	least, most         string
	factor, times, warm int
}

// add adds the flags, with the largest size and the factor that hold by default.
func (f *sizeFlags) add(c *cobra.Command, most string, factor int) {
	c.Flags().StringVarP(&f.least, "minbytes", "b", "8", "`BYTES` to begin with; K, M and G may follow")
	c.Flags().StringVarP(&f.most, "maxbytes", "e", most, "`BYTES` to end with, if memory leaves room")
	c.Flags().IntVarP(&f.factor, "stepfactor", "f", factor, "factor `N` from one size to the next")
	c.Flags().IntVarP(&f.times, "iters", "n", 20, "`N` timed repetitions")
	c.Flags().IntVarP(&f.warm, "warmup_iters", "w", 5, "`N` repetitions before those")
}

func (f *sizeFlags) read(o *bench.CollOptions) (err error) {
	o.Factor, o.Times, o.Warm = f.factor, f.times, f.warm
	if o.Least, err = sizeOf("--minbytes", f.least); err != nil {
		return err
	}
	if o.Most, err = sizeOf("--maxbytes", f.most); err != nil {
		return err
	}
	switch {
	case o.Least > o.Most:
		return fmt.Errorf("--minbytes %s is more than --maxbytes %s", f.least, f.most)
	case o.Factor < 2:
		return fmt.Errorf("--stepfactor %d: want 2 or more", o.Factor)
	case o.Times < 1 || o.Warm < 0:
		return fmt.Errorf("--iters %d, --warmup_iters %d: want 1 or more, and 0 or more", o.Times, o.Warm)
	}
	return nil
}

// measure runs a benchmark on the hosts, and writes what it has measured. The benchmark also returns the size in bytes at which its sizes
// end because of a node's memory, or 0.
func (f *benchFlags) measure(sys *system, hosts []string, o *bench.Options, run func(*fleet.Fleet, []string) (r figures, most int, err error)) error {
	fl, hosts, err := f.hosts.fleet(sys, hosts)
	if err != nil {
		return err
	}
	p := newProgress(sys, "starting agents")
	o.Progress = p.say
	r, most, err := run(fl, hosts)
	p.end()
	if err != nil {
		return failure{err}
	}
	if most > 0 {
		fmt.Fprintf(sys.stderr, "ncclmesh: sizes end at %d bytes, for which there is memory on every node\n", most)
	}
	return f.tell(sys, r)
}

// figures are what was measured.
type figures interface {
	WriteText(io.Writer) error
	WriteSVG(io.Writer) error
	Err() error // what went wrong
}

// tell writes figures as the flags ask for them, and says what went wrong.
func (f *benchFlags) tell(sys *system, r figures) error {
	err := f.write(sys, r)
	if err == nil {
		err = r.Err()
	}
	if err != nil {
		return failure{err}
	}
	return nil
}

func (f *benchFlags) write(sys *system, r figures) error {
	if f.svg != "" {
		if err := toFile(f.svg, sys.stdout, r.WriteSVG); err != nil {
			return err
		}
	}
	switch {
	case f.json:
		return writeJSON(sys.stdout, r)
	case f.svg == "-":
		return nil
	}
	return r.WriteText(sys.stdout)
}

// sizeOf reads a number of bytes: 8, 64K, 4M, 1G.
func sizeOf(flag, text string) (int, error) {
	number, shift := text, 0
	if i := strings.IndexAny(text, "KMG"); i == len(text)-1 && i > 0 {
		number, shift = text[:i], 10*(1+strings.IndexByte("KMG", text[i]))
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > 1<<36>>shift {
		return 0, fmt.Errorf("%s %s: want a number of bytes from 1 to 64G, as 8, 64K, 4M or 1G", flag, text)
	}
	return n << shift, nil
}
