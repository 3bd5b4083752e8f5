package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/meet"
)

// hostFlags are those of the commands that ask hosts.
type hostFlags struct {
	ssh  string
	push bool

	ranks   bool // hosts are the nodes of the job that this process is started in
	port    int
	meeting *meet.Meeting
}

const sshUsage = "`COMMAND` that runs a program on a host, whose name is appended (default NCCLMESH_SSH, or \"" + fleet.DefaultSSH + "\")"

func (h *hostFlags) add(sys *system, c *cobra.Command) {
	c.ValidArgsFunction = completeHosts(sys)
	c.Flags().StringVar(&h.ssh, "ssh", "", sshUsage)
	c.Flags().BoolVar(&h.push, "push", false, "copy this program to the hosts, instead of using theirs, and remove it afterwards")
}

// args are the flags as another command takes them.
func (h *hostFlags) args() (args []string) {
	if h.ssh != "" {
		args = append(args, "--ssh", h.ssh)
	}
	if h.push {
		args = append(args, "--push")
	}
	return args
}

// addRanks adds those of the commands that may run as a job's ranks.
func (h *hostFlags) addRanks(sys *system, c *cobra.Command) {
	h.add(sys, c)
	c.Flags().BoolVar(&h.ranks, "rank-env", false, "this is a rank that mpirun, torchrun or srun has started: rank 0 asks one of each node, at MASTER_ADDR, instead of hosts")
	c.Flags().IntVar(&h.port, "rank-port", meet.DefaultPort, "TCP `PORT` at which ranks meet")
	args, do := c.Args, c.RunE
	c.Args = func(c *cobra.Command, hosts []string) error {
		if h.ranks || args == nil {
			return nil
		}
		return args(c, hosts)
	}
	c.RunE = func(c *cobra.Command, hosts []string) error {
		if !h.ranks {
			return do(c, hosts)
		}
		return h.asRank(sys, c, hosts, do)
	}
}

// meetWithin is how long ranks wait for each other: a job starts on all nodes at about the same time.
const meetWithin = time.Minute

// asRank has rank 0 do what the command does, and the others what it asks of them.
func (h *hostFlags) asRank(sys *system, c *cobra.Command, hosts []string, do func(*cobra.Command, []string) error) error {
	if len(hosts) > 0 || h.ssh != "" || h.push {
		return errors.New("--rank-env asks the nodes of the job: want no host, --ssh or --push beside it")
	}
	if h.port < 1 || h.port > 65535 {
		return fmt.Errorf("--rank-port %d: want 1 to 65535", h.port)
	}
	place, err := meet.Find(sys.getenv)
	if err != nil {
		return fmt.Errorf("--rank-env: %w", err)
	}
	key := sys.getenv("NCCL_MESH_KEY")
	if key != "" {
		if err := config.CheckKey(key); err != nil {
			return fmt.Errorf("NCCL_MESH_KEY: %w", err)
		}
	}
	if place.Rank > 0 {
		if err := meet.Attend(c.Context(), place, h.port, key, meetWithin, questions(sys)); err != nil {
			return failure{err}
		}
		return nil
	}
	m, err := meet.Open(place, h.port, key)
	if err != nil {
		return failure{err}
	}
	h.meeting = m
	patience := time.AfterFunc(3*time.Second, func() {
		fmt.Fprintf(sys.stderr, "ncclmesh: waiting for %d of %d ranks to come to %s, TCP port %d\n", m.Missing(), place.Size, place.Master, h.port)
	})
	names, err := m.Hosts(c.Context(), meetWithin)
	patience.Stop()
	if err == nil {
		err = do(c, names)
	}
	_ = m.Close() // nobody comes any more either way
	return err
}

// fleet is what asks hosts, and their names: this node's own name means this node itself,
// and with one host, or none, this node takes part as well.
func (h *hostFlags) fleet(sys *system, hosts []string) (*fleet.Fleet, []string, error) {
	f := &fleet.Fleet{Env: sys.environ}
	var err error
	if f.Here, err = os.Executable(); err != nil {
		return nil, nil, failure{fmt.Errorf("this program's own file is not known: %w", err)}
	}
	if h.meeting != nil {
		f.Dial = h.meeting.Dial
		return f, hosts, nil
	}
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
	command := h.ssh
	if command == "" {
		command = sys.getenv("NCCLMESH_SSH")
	}
	if f.SSH, err = fleet.Words(command); err != nil {
		return nil, nil, err
	}
	if h.push {
		f.Push = f.Here
	}
	return f, hosts, nil
}

// someHost is what commands that cannot do without a host want.
func someHost(c *cobra.Command, hosts []string) error {
	if len(hosts) == 0 {
		return fmt.Errorf("want the names of hosts: %s", c.UseLine())
	}
	return nil
}
