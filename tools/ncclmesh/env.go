package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/jobenv"
	"ncclmesh/tools/ncclmesh/library"
	"ncclmesh/transport/topology"
)

const envLong = `Prints what to set so that NCCL uses the plugin, as lines for a shell, and on
standard error what in the present environment works against it, and why.

The environment is what a job started here would have: that of this process, and
what NCCL reads from NCCL_CONF_FILE or ~/.nccl.conf, and /etc/nccl.conf. In a
container run it there: its environment and files differ.

` + envStatus

const envExample = `  # in a shell, or in the script that starts a job
  eval "$(ncclmesh env)"

  # and remove all that works against it
  eval "$(ncclmesh env --unset)"`

// envFlags are those of ncclmesh env.
type envFlags struct {
	library string
	unset   bool
	root    string // "/" but in tests
}

func envCommand(sys *system) *cobra.Command {
	f := envFlags{root: "/"}
	c := &cobra.Command{
		Use:     "env",
		Short:   "Print what to set so that NCCL uses the plugin, and what works against it",
		Long:    envLong,
		Example: envExample,
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return runEnv(sys, f) },
	}
	c.Flags().StringVar(&f.library, "library", "", "the plugin is `FILE`, instead of looking for it")
	c.Flags().BoolVar(&f.unset, "unset", false, "also unset the variables that work against it, if they are set in the environment")
	return c
}

func runEnv(sys *system, f envFlags) error {
	libraries, err := libraries(sys, f.library)
	if err != nil {
		return err
	}
	exports, err := jobenv.Exports(libraries)
	if err != nil {
		return failure{err}
	}
	present, err := jobenv.Read(sys.environ, f.root)
	if err != nil {
		fmt.Fprintf(sys.stderr, "ncclmesh: %v\n", err)
	}
	node, err := thisNode(sys.getenv)
	if err != nil {
		return failure{err}
	}
	return advise(sys, exports, present, node, f.unset)
}

// advise writes what to set for a shell, and what is in its way for people.
func advise(sys *system, exports, present jobenv.Variables, node jobenv.Node, unset bool) error {
	for _, v := range exports {
		fmt.Fprintf(sys.stdout, "export %s=%s\n", v.Name, jobenv.Quote(v.Value))
	}
	blocked := 0
	w := tabwriter.NewWriter(sys.stderr, 0, 0, 2, ' ', 0)
	for _, o := range jobenv.Against(exports.Over(present), node) {
		where := ""
		if o.Origin != "" {
			where = " (" + o.Origin + ")"
		}
		fmt.Fprintf(w, "%s\t%s=%s%s\t%s: %s\n", o.Severity, o.Name, jobenv.Shown(o.Name, o.Value), where, o.Why, o.Do)
		gone := unset && o.Origin == ""
		if gone {
			fmt.Fprintf(sys.stdout, "unset %s\n", o.Name)
		}
		if o.Severity == jobenv.Blocks && !gone {
			blocked++
		}
	}
	if err := w.Flush(); err != nil {
		return failure{err}
	}
	if blocked > 0 {
		return failure{errors.New("NCCL does not use the plugin in this environment: see the lines that begin with blocks")}
	}
	return nil
}

// libraries are those that are found, or the one that is named.
func libraries(sys *system, named string) ([]library.Library, error) {
	if named == "" {
		return library.Find(sys.getenv), nil
	}
	l, err := library.Named(named)
	if err != nil {
		return nil, fmt.Errorf("--library %s: %w", named, err)
	}
	return []library.Library{l}, nil
}

// thisNode is what objections are judged by.
func thisNode(getenv func(string) string) (jobenv.Node, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return jobenv.Node{}, fmt.Errorf("list the network interfaces: %w", err)
	}
	n := jobenv.Node{
		Exists:   func(path string) bool { _, err := os.Stat(path); return err == nil },
		Identify: func(path string) error { _, err := library.Identify(path); return err },
	}
	for _, i := range interfaces {
		n.Interfaces = append(n.Interfaces, i.Name)
	}
	if _, found, err := discover(getenv); err == nil {
		n.Ports = found.Ports
	}
	return n, nil
}

// discover returns the settings of a job by its variables, and what they find on this node. Where a value is not accepted, which is an
// objection, the settings are the defaults.
func discover(getenv func(string) string) (config.Config, *topology.Node, error) {
	c, _ := config.Read(getenv)
	found, err := topology.Discover(topology.Source{Sysfs: c.Transport.Sysfs})
	return c, found, err
}

// bootstrapAddress returns the address at which NCCL makes ranks meet on this node, by the variables of a job; "" where there
// is none that another node could reach.
func bootstrapAddress(getenv func(string) string) (string, error) {
	c, found, err := discover(getenv)
	if err != nil {
		return "", err
	}
	mesh := map[string]bool{}
	for _, p := range found.Ports {
		mesh[p.Netdev] = true
	}
	addrs := topology.BootstrapAddrs(found.Links, c.Transport.Interfaces, c.Transport.SocketFamily, mesh)
	if len(addrs) == 0 {
		return "", nil
	}
	return addrs[0].String(), nil
}
