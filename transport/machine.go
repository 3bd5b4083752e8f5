package transport

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ncclmesh/guard"
	"ncclmesh/ibv"
	"ncclmesh/random"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/sock"
	"ncclmesh/transport/stats"
	"ncclmesh/transport/topology"
)

// A Machine is what a transport runs on. The zero value is the machine that the process is on; a simulation sets others, so
// that one process plays those of many machines.
type Machine struct {
	Verbs    ibv.Driver   // nil: libibverbs
	Network  sock.Network // nil: the kernel's
	Source   Source       // nil: what the kernel tells, with the files below Options.Sysfs
	Identity *Identity    // nil: what the kernel calls the process and its machine
	Random   random.Source
	Clock    clock.Clock // makes all timers but those of what only the real machine has

	Descriptors uint64 // that the process may ever have; 0: as many as the kernel says

	// KeepGarbage leaves the memory of what was set up and closed to Go's collector. Otherwise the transport collects it while
	// nothing moves, as the collector does not run by itself in NCCL's process.
	KeepGarbage bool
	// Page makes the page that everything counts on, in place of one that Options.Status shows other processes; nil: as that says.
	Page func(who stats.Process) *stats.Page
}

// A Source tells what devices and network interfaces a machine has. Its methods may be called from any goroutine.
type Source interface {
	// Discover takes stock of them.
	Discover() (*topology.Node, error)
	// Watch tells of their changes until done is closed, as [topology.Watch] does.
	Watch(done <-chan struct{}, changed func(), link func(netdev string, carrier bool), caught func(*guard.Panic)) error
	// GPUs returns where the GPUs are that NCCL can use.
	GPUs() []topology.Slot
}

// Identity is what a process and its machine are called.
type Identity struct {
	Hostname string
	Boot     string // no other machine, boot of this one, or network namespace has the same
	PID      int
	Command  string // what the process calls itself
}

// library opens what does the verbs: the driver of the machine, else the first of the named libraries that is found.
func (m *Machine) library(names []string) (*ibv.Library, error) {
	if m.Verbs != nil {
		return ibv.Use(m.Verbs), nil
	}
	return ibv.Load(names...)
}

// kernel is the Source of the machine that the process is on.
type kernel struct{ sysfs string }

func (k kernel) Discover() (*topology.Node, error) {
	return topology.Discover(topology.Source{Sysfs: k.sysfs})
}

func (k kernel) Watch(done <-chan struct{}, changed func(), link func(string, bool), caught func(*guard.Panic)) error {
	return topology.Watch(done, changed, link, caught)
}

func (k kernel) GPUs() []topology.Slot { return topology.GPUs(k.sysfs) }

// collector returns what gives memory back that is not in use any more; nil where that is left to Go's runtime.
func (m *Machine) collector() func() {
	if m.KeepGarbage {
		return nil
	}
	return giveBack
}

// hostname returns the name of the machine.
func (m *Machine) hostname() (string, error) {
	if m.Identity != nil {
		return m.Identity.Hostname, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w", err)
	}
	return name, nil
}

// boot returns what tells the machine, its boot and the network namespace of the process from others.
func (m *Machine) boot() (string, error) {
	if m.Identity != nil {
		return m.Identity.Boot, nil
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("identify the node: %w; set NCCL_HOSTID", err)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return "", fmt.Errorf("identify the network namespace: %w; set NCCL_HOSTID", err)
	}
	return fmt.Sprintf("boot %s net %d", strings.TrimSpace(string(boot)), st.Ino), nil
}

// pid returns the number of the process.
func (m *Machine) pid() int {
	if m.Identity != nil {
		return m.Identity.PID
	}
	return os.Getpid()
}

// command returns what the process calls itself, which programs may set; "" where the kernel does not say.
func (m *Machine) command() string {
	if m.Identity != nil {
		return m.Identity.Command
	}
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}
