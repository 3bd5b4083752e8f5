package gather

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/handshake"
	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// Source is where Node looks. Zero values mean the machine that it runs on.
type Source struct {
	Name   string                          // what people call the node; its host name
	Root   string                          // of /proc, /etc, /run and /dev; "/"
	Sysfs  string                          // what NCCL_MESH_SYSFS says, or "/sys"
	Links  func() ([]topology.Link, error) // the kernel's
	Routes func() ([]facts.Route, error)   // the kernel's
	// Carrier is how often each interface gained or lost its carrier; nil: the kernel is asked.
	Carrier func() (map[string]uint64, error)
	// Neighbours and Shapers are what the kernel has of them; nil: it is asked.
	Neighbours func() ([]facts.Neighbour, error)
	Shapers    func() ([]facts.Shaper, error)
	// Lookup returns the interface by which the kernel sends to an address; nil: it is asked.
	Lookup func(netip.Addr) (dev string, err error)
	// Outward returns the node's address towards the world; nil: the kernel is asked.
	Outward func() (netip.Addr, error)
	Verbs   Verbs    // libibverbs, as NCCL_MESH_IBVERBS says
	Environ []string // "NAME=value"; the process's is its caller's to give
	Home    string   // of the user
	PID     int      // of a job, whose environment is judged instead of Environ; 0: none
	Salt    string   // the same on all nodes that are compared, and another at each run
	// Load loads a library, and returns the error of that; nil: in a child process, which is this program with the arguments load FILE.
	Load     func(path string) error
	LoadWait time.Duration // how long that may take; 0: 20 s, where some ten milliseconds are usual
	// Free returns how many bytes are free in a file system; nil: as the kernel says.
	Free func(path string) (uint64, error)
	// Sample is how long counters are watched; 0: they are not.
	Sample time.Duration
	// Sleep waits; time.Sleep.
	Sleep func(time.Duration)
	// Echo calls out of interfaces, by index, and returns pairs of those that heard and were
	// heard; nil: it does so for real.
	Echo func(indices []int) (heard [][2]int, err error)
}

// looker is a Source at work.
type looker struct {
	Source
	node *facts.Node
}

// Node looks at everything. What fails is part of the answer.
func Node(s Source) facts.Node {
	l := &looker{Source: s, node: &facts.Node{Schema: facts.Schema, Build: handshake.Build(), Arch: runtime.GOARCH}}
	l.defaults()
	n := l.node
	n.Name = l.Name
	l.process()
	l.host()
	l.network()
	before, _ := l.Carrier()
	l.adapters()
	l.owners()
	l.loops()
	l.counters()
	n.Carrier = l.flaps(before)
	return *n
}

func (s *Source) defaults() {
	own, _ := config.Read(getenv(s.Environ)) // what it does not accept is a finding
	s.Name, s.Root, s.Sysfs = cmp.Or(s.Name, hostname()), cmp.Or(s.Root, "/"), cmp.Or(s.Sysfs, own.Transport.Sysfs)
	s.Sysfs = cmp.Or(s.Sysfs, filepath.Join(s.Root, "sys"))
	if s.Verbs == nil {
		s.Verbs = &libibverbs{names: own.Transport.Libraries}
	}
	if s.Routes == nil {
		s.Routes = kernelRoutes
	}
	if s.Carrier == nil {
		s.Carrier = kernelCarrier
	}
	if s.Neighbours == nil {
		s.Neighbours = kernelNeighbours
	}
	if s.Shapers == nil {
		s.Shapers = kernelShapers
	}
	if s.Lookup == nil {
		s.Lookup = kernelLookup
	}
	if s.Outward == nil {
		s.Outward = outward
	}
	s.LoadWait = cmp.Or(s.LoadWait, 20*time.Second)
	if s.Load == nil {
		s.Load = s.loadInChild
	}
	if s.Free == nil {
		s.Free = free
	}
	if s.Echo == nil {
		s.Echo = echo
	}
	if s.Sleep == nil {
		s.Sleep = time.Sleep
	}
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

// getenv looks variables up in an environment, where the last of a name holds.
func getenv(environ []string) func(name string) string {
	return func(name string) (value string) {
		for _, kv := range environ {
			if k, v, ok := strings.Cut(kv, "="); ok && k == name {
				value = v
			}
		}
		return value
	}
}

// path is where a file of the machine is.
func (l *looker) path(elem ...string) string { return filepath.Join(l.Root, filepath.Join(elem...)) }

// sys is where a file of sysfs is.
func (l *looker) sys(elem ...string) string { return filepath.Join(l.Sysfs, filepath.Join(elem...)) }

// text is a short file without the space around its contents.
func text(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), plain(err)
}

// number is a file with a number.
func number(path string) (uint64, error) {
	s, err := text(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s has %q, which is no number", path, s)
	}
	return n, nil
}

// plain is an error for people, who need no name of a system call.
func plain(err error) error {
	var p *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &p):
		return fmt.Errorf("%s to read %s", facts.NeedsRoot, p.Path)
	case errors.As(err, &p):
		return fmt.Errorf("%s: %w", p.Path, p.Err)
	}
	return err
}

// free is how many bytes are free in the file system of a path.
func free(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}
