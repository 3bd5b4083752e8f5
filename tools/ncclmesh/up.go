package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ncclmesh/tools/ncclmesh/doctor"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/library"
	"ncclmesh/tools/ncclmesh/setup"
)

const upLong = `Brings hosts to where a job can use the mesh: copies this command and the library to
hosts without them, switches on the ports that are off, looks for faults as ncclmesh
doctor does, measures every cable, and says the next command. With one HOST this node
takes part as well. Addresses are not needed.

It says first what it would change, and changes nothing without a yes. With root on a
host, or sudo without a password, the files go below /usr/local; else, or with --user,
below ~/.local. Nothing that is installed is replaced, and nothing else is configured.

The hosts must be reachable by ssh without a password, and have the same processor as
this node: for others install the packages there, which up finds.

` + upStatus

const upExample = `  ncclmesh up spark-2 --plan        # show what would be done
  ncclmesh up spark-2               # this node and another
  ncclmesh up spark-1 spark-2 spark-3 --yes`

// upFlags are those of ncclmesh up.
type upFlags struct {
	hosts hostFlags
	plan  bool
	yes   bool
	user  bool
	pick  doctor.Selection
	stdin io.Reader // that a person answers on; nil: there is none
}

func upCommand(sys *system) *cobra.Command {
	var f upFlags
	c := &cobra.Command{
		Use:     "up HOST...",
		Short:   "Bring hosts to where a job can use the mesh, and measure their cables",
		Long:    upLong,
		Example: upExample,
		Args:    someHost,
		RunE: func(c *cobra.Command, hosts []string) error {
			if term.IsTerminal(int(os.Stdin.Fd())) {
				f.stdin = os.Stdin
			}
			return f.run(c.Context(), sys, hosts)
		},
	}
	c.ValidArgsFunction = completeHosts(sys)
	c.Flags().StringVar(&f.hosts.ssh, "ssh", "", sshUsage)
	c.Flags().BoolVar(&f.plan, "plan", false, "show what would be done, and change nothing")
	c.Flags().BoolVar(&f.yes, "yes", false, "change what is shown, without a question")
	c.Flags().BoolVar(&f.user, "user", false, "install below ~/.local of the user there, also where root can be had")
	c.Flags().StringSliceVar(&f.pick.Ignore, "ignore", nil, "do not count what these checks of doctor find, by `ID`")
	_ = c.RegisterFlagCompletionFunc("ignore", completeChecks) // the flag is there
	c.MarkFlagsMutuallyExclusive("plan", "yes")
	return c
}

func (f *upFlags) run(ctx context.Context, sys *system, names []string) error {
	if id, unknown := f.pick.Unknown(); unknown {
		return noCheck(id)
	}
	f.hosts.push = true // to look, nothing has to be installed
	fl, names, err := f.hosts.fleet(sys, names)
	if err != nil {
		return err
	}
	p := newProgress(sys, "looking at "+count(len(names), "host"))
	hosts, err := setup.Hosts(ctx, fl, names, setup.Request{User: f.user})
	p.end()
	defer func() {
		for _, h := range hosts {
			h.Close()
		}
	}()
	if err != nil {
		return failure{err}
	}
	steps := f.show(sys, hosts)
	own := ownLibrary(sys)
	if err := check(hosts, own); err != nil || f.plan {
		return err
	}
	if steps > 0 {
		if err := f.apply(sys, hosts, own); err != nil {
			return err
		}
	}
	return f.prove(ctx, sys, hosts, names)
}

// show says what each host has, and what is to be done there, and returns how many steps that are.
func (f *upFlags) show(sys *system, hosts []*setup.Host) (steps int) {
	wide := 0
	for _, h := range hosts {
		wide = max(wide, len(h.Name))
	}
	for _, h := range hosts {
		fmt.Fprintf(sys.stdout, "%-*s  %s\n", wide, h.Name, h.Summary())
		for _, st := range h.Steps() {
			fmt.Fprintf(sys.stdout, "%-*s  → %s\n", wide, "", st)
		}
		steps += len(h.Todo())
	}
	if steps == 0 {
		fmt.Fprintln(sys.stdout, "nothing has to be changed")
	}
	return steps
}

// ownLibrary returns where this node has the library; "" where it has none.
func ownLibrary(sys *system) string {
	for _, l := range library.Find(sys.getenv) {
		if l.Err == nil {
			return l.Path
		}
	}
	return ""
}

// check says which steps cannot be done.
func check(hosts []*setup.Host, own string) error {
	var errs []error
	for _, h := range hosts {
		errs = append(errs, h.Check(own))
	}
	if err := errors.Join(errs...); err != nil {
		return failure{err}
	}
	return nil
}

// apply does the steps, if a person agrees; own is the library here.
func (f *upFlags) apply(sys *system, hosts []*setup.Host, own string) error {
	if !f.yes {
		if f.stdin == nil {
			return errors.New("nothing was changed: --yes changes what is shown, where nobody can be asked")
		}
		fmt.Fprint(sys.stdout, "Do this? [y/N] ")
		answer, err := bufio.NewReader(f.stdin).ReadString('\n')
		if a := strings.ToLower(strings.TrimSpace(answer)); err != nil && err != io.EOF || a != "y" && a != "yes" {
			return failure{errors.New("nothing was changed")}
		}
	}
	p := newProgress(sys, "changing "+count(len(hosts), "host"))
	begun := time.Now()
	err := setup.Apply(hosts, own)
	p.end()
	if err != nil {
		return failure{err}
	}
	fmt.Fprintf(sys.stdout, "done in %.1f s\n", time.Since(begun).Seconds())
	return nil
}

// prove looks for faults and measures, and says what comes next.
func (f *upFlags) prove(ctx context.Context, sys *system, hosts []*setup.Host, names []string) error {
	d := doctorFlags{hosts: hostFlags{ssh: f.hosts.ssh}, bench: true}
	gpus := 0
	for _, h := range hosts {
		d.hosts.push = d.hosts.push || !h.InPath
		if h.GPU {
			gpus++
		}
	}
	p := newProgress(sys, "looking for faults, and measuring every cable")
	begun := time.Now()
	mesh, err := look(ctx, sys, d, names)
	p.end()
	if err != nil {
		return failure{err}
	}
	r := doctor.NewReport(mesh, f.pick, time.Since(begun))
	writeFlows(sys, mesh)
	if !r.Fine(false) {
		if err := d.write(sys, r); err != nil {
			return err
		}
		fmt.Fprintf(sys.stdout, "\nNext: do what stands above, and repeat: ncclmesh up %s\n", strings.Join(f.typed(names), " "))
		return errFound
	}
	fmt.Fprintln(sys.stdout, r.Verdict())
	next := []string{"ncclmesh", "bench", "nccl"}
	if gpus < len(hosts) {
		next[2] = "coll"
	}
	if d.hosts.push {
		next = append(next, "--push")
	}
	fmt.Fprintf(sys.stdout, "\nNext: %s\n", strings.Join(append(next, f.typed(names)...), " "))
	return nil
}

// typed are the names of hosts as a person types them: this node is named, or left out where it takes part by itself.
func (f *upFlags) typed(names []string) []string {
	others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == fleet.Here })
	if len(others) == len(names) || len(others) == 1 {
		return others
	}
	return append([]string{"localhost"}, others...)
}

// writeFlows writes what was measured of each cable over RDMA, and why nothing was.
func writeFlows(sys *system, mesh *facts.Mesh) {
	flows, ok := mesh.Flows.Get()
	if !ok {
		fmt.Fprintln(sys.stdout, "not measured: "+mesh.Flows.Because())
	}
	for _, l := range flows {
		text := fmt.Sprintf("%.1f Gb/s →  %.1f Gb/s ←  %.1f Gb/s ⇄", l.Forth, l.Back, l.Both)
		if l.Allowed > 0 {
			text += fmt.Sprintf("  of %.1f Gb/s one way", l.Allowed)
		}
		if l.Busy() >= 0 {
			text += ", while other programs took the processors"
		}
		if l.Error != "" {
			text = "not measured: " + l.Error
		}
		fmt.Fprintf(sys.stdout, "%v – %v  %s\n", l.From, l.To, text)
	}
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
