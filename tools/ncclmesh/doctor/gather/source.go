package gather

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/ncclnet/config"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/transport/topology"
)

// Source is where Node looks. Zero values mean the machine that it runs on.
type Source struct {
	Name    string                          // what people call the node; its host name
	Root    string                          // of /proc, /etc, /run and /dev; "/"
	Sysfs   string                          // what NCCL_MESH_SYSFS says, or "/sys"
	Links   func() ([]topology.Link, error) // the kernel's
	Routes  func() ([]facts.Route, error)   // the kernel's
	Verbs   Verbs                           // libibverbs, as NCCL_MESH_IBVERBS says
	Environ []string                        // "NAME=value"; the process's is its caller's to give
	Home    string                          // of the user
	PID     int                             // of a job, whose environment is judged instead of Environ; 0: none
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
	own  config.Config // as Environ says
	node *facts.Node
}

// Node looks at everything. What fails is part of the answer.
func Node(s Source) facts.Node {
	l := &looker{Source: s, node: &facts.Node{Schema: facts.Schema, Build: handshake.Build(), Arch: runtime.GOARCH}}
	own, err := config.Read(getenv(s.Environ))
	if err == nil {
		l.own = own
	}
	l.defaults()
	n := l.node
	n.Name = l.Name
	l.process()
	l.host()
	l.network()
	l.adapters()
	l.owners()
	l.loops()
	l.counters()
	return *n
}

func (l *looker) defaults() {
	if l.Root == "" {
		l.Root = "/"
	}
	if l.Sysfs == "" {
		l.Sysfs = l.own.Transport.Sysfs
	}
	if l.Sysfs == "" {
		l.Sysfs = filepath.Join(l.Root, "sys")
	}
	if l.Routes == nil {
		l.Routes = kernelRoutes
	}
	if l.Verbs == nil {
		l.Verbs = &libibverbs{names: l.own.Transport.Libraries}
	}
	if l.Echo == nil {
		l.Echo = echo
	}
	if l.Sleep == nil {
		l.Sleep = time.Sleep
	}
	if l.Name == "" {
		l.Name, _ = os.Hostname()
	}
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
