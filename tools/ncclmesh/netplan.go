package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/netplan"
	"ncclmesh/transport/topology"
)

const netplanLong = `Writes a netplan file that gives each cable of this node a subnet: for software
that needs addresses there. The plugin needs none.

The subnet follows from the hardware addresses of the two ends: run on every node,
in any order, it gives both ends of a cable addresses that fit, and the same ones
again. The other end is found by a query on the cable itself, for which the ports
have to be up and IPv6 enabled; nothing has to run there.

Interfaces with a default route, the one you are connected over, and interfaces that
another file configures or that have another address are left alone.

With --apply, as root, the file is written as /etc/netplan/70-ncclmesh.yaml, beside
which the one before it is kept, and applied. Unless the default routes, and your
own connection by ssh, are there again within 10 s and stay for 3, everything is
restored, and the status is 1. A process of its own does this, which does not end
with your terminal or connection: it also restores everything when this command is
interrupted or killed. netplan itself has 30 s each time it is run.`

const netplanExample = `  # look first, on every node
  ncclmesh netplan

  sudo ncclmesh netplan --apply`

// netplanFlags are those of ncclmesh netplan.
type netplanFlags struct {
	apply      bool
	interfaces []string
	within     string
	listen     time.Duration
	root       string // "/" but in tests
	detached   bool   // this is the process that applies
}

func netplanCommand(sys *system) *cobra.Command {
	f := netplanFlags{root: "/"}
	c := &cobra.Command{
		Use:     "netplan",
		Short:   "Write addresses for the cables of this node, and apply them",
		Long:    netplanLong,
		Example: netplanExample,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if f.apply && !f.detached {
				return f.detach(sys)
			}
			return runNetplan(sys, f)
		},
	}
	c.Flags().BoolVar(&f.apply, "apply", false, "write the file and apply it, or restore everything")
	c.Flags().StringSliceVar(&f.interfaces, "interface", nil, "only these `INTERFACES`; by default those of RDMA ports or, where there are none, all adapters")
	c.Flags().StringVar(&f.within, "range", netplan.Range.String(), "take subnets from this `PREFIX`, the same on all nodes")
	c.Flags().DurationVar(&f.listen, "listen", 2*time.Second, "listen for the other ends for this `TIME`")
	c.Flags().BoolVar(&f.detached, "detached", false, "this is the process that applies; standard input ends with the one that has started it")
	_ = c.Flags().MarkHidden("detached") // it is there
	return c
}

// check reads the flags.
func (f netplanFlags) check() (within netip.Prefix, err error) {
	if within, err = netplan.ParseRange(f.within); err != nil {
		return within, fmt.Errorf("--range %s: %w", f.within, err)
	}
	if f.listen <= 0 {
		return within, fmt.Errorf("--listen %v: want more than 0", f.listen)
	}
	if f.apply && os.Geteuid() != 0 {
		return within, errors.New("--apply writes below /etc and needs root: sudo ncclmesh netplan --apply")
	}
	return within, nil
}

// detach has a process of its own do what the flags say, and returns how it has ended.
func (f netplanFlags) detach(sys *system) error {
	if _, err := f.check(); err != nil {
		return err
	}
	args := []string{"netplan", "--apply", "--detached", "--range", f.within, "--listen", f.listen.String()}
	for _, name := range f.interfaces {
		args = append(args, "--interface", name)
	}
	a := netplan.Applier{Root: f.root}
	_, err := os.Stat(a.Path())
	byHand := a.ByHand(err == nil)
	if err = detach(sys, args); errors.As(err, &failure{}) {
		return failure{fmt.Errorf("%w; %s", err, byHand)}
	}
	return err
}

func runNetplan(sys *system, f netplanFlags) error {
	within, err := f.check()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	if f.detached {
		var done func()
		ctx, done = attached(ctx, os.Stdin)
		defer done()
	}
	management, err := netplan.NewManagement(ctx, sys.getenv)
	if err != nil {
		return failure{err}
	}
	plan, err := makePlan(ctx, sys, f, within, management)
	if err != nil {
		return err
	}
	if !f.apply {
		fmt.Fprint(sys.stdout, plan.File())
		return nil
	}
	if _, err := exec.LookPath("netplan"); err != nil {
		return failure{fmt.Errorf("%w: install netplan.io, or write the addresses that ncclmesh netplan shows where this node keeps its own", err)}
	}
	mtus, err := plan.MTUs()
	if err != nil {
		return failure{err}
	}
	say := func(what string) { fmt.Fprintln(sys.stderr, lines(what)) }
	say("watching " + management.String())
	a := netplan.Applier{
		Root: f.root, Netplan: netplan.Run, Lost: management.Lost, Undo: mtus, Say: say,
		Patience: netplan.Patience, Steady: netplan.Steady, Limit: netplan.Limit,
	}
	if err := a.Apply(ctx, plan.File()); err != nil {
		return failure{err}
	}
	for _, e := range plan {
		fmt.Fprintf(sys.stdout, "%s %v\n", e.Name, e.Address)
	}
	return nil
}

// makePlan looks at the node and its cables, and says which interfaces get nothing and why.
func makePlan(ctx context.Context, sys *system, f netplanFlags, within netip.Prefix, management *netplan.Management) (netplan.Plan, error) {
	c, err := config.Read(sys.getenv)
	if err != nil {
		return nil, err
	}
	node, err := topology.Discover(topology.Source{Sysfs: c.Transport.Sysfs})
	if err != nil {
		return nil, failure{err}
	}
	node.Ports = c.Transport.HCA.Select(node.Ports)
	present := netplan.Present{Node: node, Management: management.Interfaces()}
	if present.Owners, err = netplan.ReadOwners(f.root); err != nil {
		return nil, failure{err}
	}
	if present.Own, err = netplan.Own(f.root); err != nil {
		return nil, failure{err}
	}
	links, left, err := present.Choose(f.interfaces)
	if err != nil {
		return nil, err
	}
	used, err := present.InUse(links)
	if err != nil {
		return nil, failure{err}
	}
	functions, silent, err := netplan.Neighbours(ctx, links, f.listen)
	if err != nil {
		return nil, failure{err}
	}
	if ctx.Err() != nil {
		return nil, failure{context.Cause(ctx)}
	}
	cables, why := netplan.Cables(functions)
	for _, l := range append(left, silent...) {
		fmt.Fprintln(sys.stderr, lines(l.Link+" "+l.Why))
	}
	for _, fn := range functions {
		if w, ok := why[fn.Name]; ok {
			fmt.Fprintf(sys.stderr, "%s: %s\n", fn.Name, w)
		}
	}
	plan, err := netplan.New(cables, within, used)
	switch {
	case err != nil:
		return nil, failure{err}
	case len(plan) == 0:
		return nil, failure{errors.New("no cable was found that could have addresses")}
	}
	return plan, nil
}
