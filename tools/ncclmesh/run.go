package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/launch"
)

const runLong = `Starts a command on every HOST, as one job, and prints its output line by line, with
the name of the host before each.

Each process has RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, NNODES,
MASTER_ADDR and MASTER_PORT, as torch.distributed and others read them, and what
ncclmesh env says on that host. The command is started everywhere or nowhere: a host
that cannot be reached, has no plugin, or has settings that keep NCCL from using it,
ends the job before it begins.

The first process that fails ends the others: they get SIGTERM, and are killed
--grace later. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on; a second
SIGINT, SIGTERM or SIGHUP kills them. Standard input is not passed on.

` + launchStatus

const runExample = `  ncclmesh run spark-1 spark-2 -- python3 train.py
  ncclmesh run spark-1 spark-2 --env NCCL_DEBUG=INFO --per-host 2 -- ./worker`

// runFlags are those of ncclmesh run.
type runFlags struct {
	hosts      hostFlags
	order      launch.Order
	setting    settingFlags
	masterAddr string
	masterPort int
	grace      time.Duration
}

func runCommand(sys *system) *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:     "run HOST... -- COMMAND [ARGUMENT...]",
		Short:   "Start a command on several hosts, as one job",
		Long:    runLong,
		Example: runExample,
		RunE:    func(c *cobra.Command, args []string) error { return runRun(c, sys, f, args) },
	}
	f.hosts.add(sys, c)
	c.Flags().IntVar(&f.order.Processes, "per-host", 1, "start `N` processes on each host")
	c.Flags().StringVar(&f.order.Directory, "dir", "", "start it in `DIRECTORY`; by default where ssh leads to")
	f.setting.add(c)
	c.Flags().StringVar(&f.masterAddr, "master-addr", "", "MASTER_ADDR is this `ADDRESS` (default where ssh has reached the first host, or its address on the bootstrap interface)")
	c.Flags().IntVar(&f.masterPort, "master-port", 0, "MASTER_PORT is this `PORT` (default one that is free there)")
	c.Flags().DurationVar(&f.grace, "grace", 10*time.Second, "the other processes may take this `TIME` to end after the first failure")
	return c
}

func runRun(c *cobra.Command, sys *system, f runFlags, args []string) error {
	j, hosts, err := f.job(sys, c.ArgsLenAtDash(), args)
	if err != nil {
		return err
	}
	fleet, hosts, err := f.hosts.fleet(sys, hosts)
	if err != nil {
		return err
	}
	j.Hosts = hosts[len(hosts)-c.ArgsLenAtDash():] // what was named, also where that is one
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	j.Signals = signals
	p := newProgress(sys, "waiting for "+count(len(hosts), "host"))
	defer p.end()
	j.Ready = p.end
	if err := j.Run(c.Context(), fleet); err != nil {
		return failure{err}
	}
	return nil
}

// job is what a command line asks for, and the hosts that it names.
func (f *runFlags) job(sys *system, dash int, args []string) (*launch.Job, []string, error) {
	if dash < 1 || dash == len(args) {
		return nil, nil, errors.New("want hosts, then -- and a command, as in: ncclmesh run node-a node-b -- hostname")
	}
	if f.order.Processes < 1 || f.order.Processes > 1024 {
		return nil, nil, fmt.Errorf("--per-host %d: want 1 to 1024", f.order.Processes)
	}
	if f.masterPort < 0 || f.masterPort > 65535 {
		return nil, nil, fmt.Errorf("--master-port %d: want 1 to 65535", f.masterPort)
	}
	if f.grace < 0 {
		return nil, nil, fmt.Errorf("--grace %v: want 0 or more", f.grace)
	}
	if f.masterAddr != "" {
		if err := launch.CheckAddress(f.masterAddr); err != nil {
			return nil, nil, fmt.Errorf("--master-addr %s: %w", f.masterAddr, err)
		}
	}
	var err error
	if f.order.Setting, err = f.setting.setting(sys); err != nil {
		return nil, nil, err
	}
	f.order.Command = args[dash:]
	return &launch.Job{Order: f.order, MasterAddress: f.masterAddr, MasterPort: f.masterPort, Grace: f.grace, Stdout: sys.stdout, Stderr: sys.stderr}, args[:dash], nil
}

// settingFlags say how processes on hosts use the plugin.
type settingFlags struct {
	launch.Setting
	env []string
}

func (f *settingFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.Library, "library", "", "the plugin is `FILE` on every host, instead of looking for it")
	c.Flags().BoolVar(&f.NoPlugin, "no-plugin", false, "do not set the plugin's variables, to compare")
	c.Flags().BoolVar(&f.Anyway, "anyway", false, "start also where settings keep NCCL from using the plugin")
	c.Flags().StringArrayVar(&f.env, "env", nil, "set `NAME=VALUE`, or pass NAME on, for every process")
}

// setting is what the flags say.
func (f *settingFlags) setting(sys *system) (launch.Setting, error) {
	s := f.Setting
	if s.NoPlugin && s.Library != "" {
		return s, errors.New("--no-plugin and --library are both given; leave one out")
	}
	for _, e := range f.env {
		name, _, given := strings.Cut(e, "=")
		if name == "" {
			return s, fmt.Errorf("--env %s: want NAME=VALUE or NAME", e)
		}
		if !given {
			if !slices.ContainsFunc(sys.environ, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }) {
				return s, fmt.Errorf("--env %s: it is not set here, so there is no value to pass on", name)
			}
			e = name + "=" + sys.getenv(name)
		}
		s.Env = append(s.Env, e)
	}
	return s, nil
}
