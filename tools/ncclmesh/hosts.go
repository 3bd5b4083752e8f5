package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ncclmesh/tools/ncclmesh/fleet"
)

// hostFlags are those of the commands that ask hosts.
type hostFlags struct {
	ssh  string
	push bool
}

func (h *hostFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&h.ssh, "ssh", "", "`COMMAND` that leads to a host, which is named after it (default NCCLMESH_SSH, or \""+fleet.DefaultSSH+"\")")
	c.Flags().BoolVar(&h.push, "push", false, "copy this program to the hosts for as long as it is needed, instead of using theirs")
}

// fleet is what asks hosts, and their names: this node's own name means this node itself,
// and with one host, or none, this node takes part as well.
func (h *hostFlags) fleet(sys *system, hosts []string) (*fleet.Fleet, []string, error) {
	own, err := os.Hostname()
	if err != nil {
		return nil, nil, failure{err}
	}
	hosts = slices.Clone(hosts)
	for i, name := range hosts {
		if name == "localhost" || name == own || name == strings.SplitN(own, ".", 2)[0] {
			hosts[i] = fleet.Here
		}
	}
	if len(hosts) < 2 && !slices.Contains(hosts, fleet.Here) {
		hosts = append([]string{fleet.Here}, hosts...)
	}
	if err := fleet.Check(hosts); err != nil {
		return nil, nil, err
	}
	f := &fleet.Fleet{Env: sys.environ}
	command := h.ssh
	if command == "" {
		command = sys.getenv("NCCLMESH_SSH")
	}
	if f.SSH, err = fleet.Words(command); err != nil {
		return nil, nil, err
	}
	if f.Here, err = os.Executable(); err != nil {
		return nil, nil, failure{fmt.Errorf("this program's own file is not known: %w", err)}
	}
	if h.push {
		f.Push = f.Here
	}
	return f, hosts, nil
}
