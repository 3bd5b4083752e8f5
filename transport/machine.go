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

// A Machine is the environment of a transport. The zero value is the machine that the process runs on. A simulation
// replaces its parts, so that one process simulates many machines.
type Machine struct {
	Verbs    ibv.Driver   // nil: libibverbs
	Network  sock.Network // nil: the kernel's
	Source   Source       // nil: the kernel, with the files below Options.Sysfs
	Identity *Identity    // nil: the identity that the kernel reports
	Random   random.Source
	Clock    clock.Clock // makes all timers, except those of functions that only a real machine has

	Descriptors uint64 // limit of the process's descriptors; 0: the kernel's limit

	// KeepGarbage leaves the memory of closed connections to Go's collector. Otherwise the transport runs a collection
	// while no data moves, because the collector does not run by itself in NCCL's process.
	KeepGarbage bool
	// Page makes the page of counters. Nil: a page that other processes can read as Options.Status says.
	Page func(who stats.Process) *stats.Page
}

// A Source reports the devices and network interfaces of a machine. Its methods may be called from any goroutine.
type Source interface {
	// Discover returns the current devices and interfaces.
	Discover() (*topology.Node, error)
	// Watch calls the functions on changes until done is closed, as [topology.Watch] does.
	Watch(done <-chan struct{}, changed func(), link func(netdev string, carrier bool), caught func(*guard.Panic)) error
	GPUs() []topology.Slot // GPUs returns the PCI locations of the GPUs that NCCL can use.
	PeerMemory() bool      // PeerMemory reports whether network adapters can register GPU memory by its address.
}

// Identity is the identity of a process and its machine.
type Identity struct {
	Hostname string
	Boot     string // unique to this machine, its boot, and its network namespace
	PID      int
	Command  string // the name that the process has given itself
}

// library opens the verbs library: the driver of the machine, or else the first of the named libraries that is found.
func (m *Machine) library(names []string) (*ibv.Library, error) {
	if m.Verbs != nil {
		return ibv.Use(m.Verbs), nil
	}
	return ibv.Load(names...)
}

// kernel is the Source of the machine that the process runs on.
type kernel struct{ sysfs string }

func (k kernel) Discover() (*topology.Node, error) {
	return topology.Discover(topology.Source{Sysfs: k.sysfs})
}

func (k kernel) Watch(done <-chan struct{}, changed func(), link func(string, bool), caught func(*guard.Panic)) error {
	return topology.Watch(done, changed, link, caught)
}

func (k kernel) GPUs() []topology.Slot { return topology.GPUs(k.sysfs) }

func (k kernel) PeerMemory() bool { return topology.PeerMemory(k.sysfs) }

// collector returns the function that frees unused memory, or nil if Go's runtime does that.
func (m *Machine) collector() func() {
	if m.KeepGarbage {
		return nil
	}
	return freeMemory
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

// boot returns a text that is unique to the machine, its boot, and the network namespace of the process.
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

// pid returns the process ID.
func (m *Machine) pid() int {
	if m.Identity != nil {
		return m.Identity.PID
	}
	return os.Getpid()
}

// command returns the name that the process has given itself, or "" if the kernel does not report it.
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
