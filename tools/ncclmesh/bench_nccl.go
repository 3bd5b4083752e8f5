package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/bench"
	"ncclmesh/tools/ncclmesh/fleet"
)

const ncclLong = `Measures collectives of NCCL in the memory of the GPUs, with a rank on each GPU of each
host, under the columns of nccl-tests, out of place and in place. The results are checked.
It needs neither MPI nor nccl-tests: NCCL and the CUDA driver of the hosts are loaded, and
the ranks meet over ssh. NCCL uses the plugin, with the settings of ncclmesh run.

With --env NCCL_DEBUG=INFO, or another level, NCCL's log comes on standard error.

A node on which a job runs, or whose ports carry traffic, is not measured, except with
--while-busy. Buffers take an eighth of the free memory at most, of the GPU and of the host.`

const ncclExample = `  ncclmesh bench nccl spark-1 spark-2
  ncclmesh bench nccl spark-1 spark-2 -b 8 -e 8G --op all_reduce,all_gather
  ncclmesh bench nccl spark-1 spark-2 --no-plugin --env NCCL_NET=Socket`

func benchNCCLCommand(sys *system) *cobra.Command {
	var f benchFlags
	var setting settingFlags
	var sizes sizeFlags
	var ops []string
	o := bench.NCCLOptions{}
	c := &cobra.Command{
		Use:     "nccl HOST...",
		Short:   "Measure NCCL's all-reduce and other collectives on the GPUs, without MPI",
		Long:    ncclLong,
		Example: ncclExample,
		Args:    someHost,
		RunE: func(c *cobra.Command, hosts []string) (err error) {
			for _, op := range ops {
				if !slices.Contains(bench.NCCLKinds, op) {
					return fmt.Errorf("--op %s: want of %s", op, strings.Join(bench.NCCLKinds, ", "))
				}
			}
			if o.GPUs < 0 {
				return fmt.Errorf("--gpus %d: want 1 or more, or 0 for all", o.GPUs)
			}
			o.Kinds, o.WhileBusy = ops, f.busy
			if err := sizes.read(&o.CollOptions); err != nil {
				return err
			}
			if o.Setting, err = setting.setting(sys); err != nil {
				return err
			}
			if slices.ContainsFunc(o.Setting.Env, func(kv string) bool { return strings.HasPrefix(kv, "NCCL_DEBUG=") }) {
				o.Log = sys.stderr
			}
			return f.measure(sys, hosts, &o.Options, func(fl *fleet.Fleet, hosts []string) (figures, int, error) {
				r, err := bench.NCCL(c.Context(), fl, hosts, o)
				if err != nil {
					return nil, 0, err
				}
				return r, r.Most, nil
			})
		},
	}
	f.add(sys, c, bench.NCCLSchema)
	setting.add(c)
	sizes.add(c, "1G", 2)
	c.Flags().StringSliceVar(&ops, "op", []string{bench.AllReduce}, "`KINDS` of collectives, separated by commas: "+strings.Join(bench.NCCLKinds, ", "))
	complete(c, "op", bench.AllReduce+"\tsums, to all ranks", bench.AllGather+"\tparts of all ranks, to all", bench.ReduceScatter+"\tsums, a part to each rank", bench.Broadcast+"\tfrom rank 0 to all")
	c.Flags().IntVar(&o.GPUs, "gpus", 0, "`N` GPUs of each host take part; 0 for all")
	c.Flags().StringVar(&o.File, "nccl", "", "NCCL is `FILE` on every host, as PyTorch's .../site-packages/nvidia/nccl/lib/libnccl.so.2, instead of looking for it")
	return c
}
