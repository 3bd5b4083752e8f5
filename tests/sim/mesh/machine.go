package mesh

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"ncclmesh/guard"
	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/draw"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport"
	"ncclmesh/transport/topology"
)

// A World is all machines of a simulation.
type World struct {
	T        *testing.T
	Bus      *bus.Bus
	Net      *internet.Internet
	Fabric   *adapter.Fabric
	Clock    *bus.Source
	Machines []*Machine
	draws    *draw.Source // random numbers of the processes
	cables   map[int]*Cable
	last     time.Duration // when the last fault begins or ends, of those whose time is known so far

	mu       sync.Mutex
	notes    []line   // what was done to the world
	failures []string // of the test
}

// NewWorld makes a world without machines.
func NewWorld(t *testing.T, b *bus.Bus) *World {
	return &World{T: t, Bus: b, Net: internet.New(b), Fabric: adapter.New(b), Clock: b.Source("scenario"), draws: draw.New(^b.Seed()), cables: map[int]*Cable{}}
}

// A line is something that was noted or logged at a time.
type line struct {
	at   time.Duration
	text string
}

// note notes what is done to the world.
func (w *World) note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, line{w.Bus.Now(), text})
}

// Errorf fails the test, and keeps what it says.
func (w *World) Errorf(format string, args ...any) {
	w.T.Helper()
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	w.failures = append(w.failures, text)
	w.mu.Unlock()
	w.T.Error(text)
}

// machine returns the machine of a name, or nil.
func (w *World) machine(name string) *Machine {
	for _, m := range w.Machines {
		if m.Name() == name {
			return m
		}
	}
	return nil
}

// A Machine is a host with RDMA adapters and with a sysfs that describes its devices and interfaces.
type Machine struct {
	*internet.Host
	world    *World
	sysfs    string
	adapters []*Adapter
	started  int // processes so far

	processes []*Process
}

// AddMachine adds a machine that has no interface yet but the loopback one.
func (w *World) AddMachine(name string) *Machine {
	m := &Machine{Host: w.Net.AddHost(name), world: w, sysfs: w.T.TempDir()}
	w.Machines = append(w.Machines, m)
	return m
}

// AddPort gives the machine an Ethernet port of a speed, in Mb/s.
func (m *Machine) AddPort(name string, mbps int, prefixes ...netip.Prefix) *internet.Interface {
	i := m.AddInterface(name, prefixes...)
	dir := filepath.Join(m.sysfs, "class/net", name)
	m.write(dir, "ifindex", strconv.Itoa(i.Index()))
	m.write(dir, "speed", strconv.Itoa(mbps))
	return i
}

// write makes a file of sysfs.
func (m *Machine) write(dir, name, text string) {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644)
	}
	if err != nil {
		m.world.T.Fatal(err)
	}
}

// Delay makes all that the machine sends over sockets arrive later by so much.
func (m *Machine) Delay(by time.Duration) {
	for _, i := range m.Interfaces() {
		if i.Index() != 1 {
			i.Delay(by)
		}
	}
}

// links returns the interfaces as netlink describes them.
func (m *Machine) links() (all []topology.Link, _ error) {
	for _, i := range m.Interfaces() {
		up, carrier, addrs := i.Status()
		l := topology.Link{Name: i.Name(), Index: i.Index(), MTU: 9000, Kind: "device", Up: up, Carrier: carrier, Loopback: i.Index() == 1, Addrs: addrs}
		if !l.Loopback {
			l.MAC = m.mac(i)
		}
		all = append(all, l)
	}
	return all, nil
}

// mac returns the hardware address of an interface.
func (m *Machine) mac(i *internet.Interface) [6]byte {
	return [6]byte{2, 0, 0, m.Name()[0], m.Name()[len(m.Name())-1], byte(i.Index())}
}

// source reports the devices and interfaces of a machine to one of its processes.
type source struct {
	m      *Machine
	events *bus.Source
	gate   *bus.Gate // of the process
}

var _ transport.Source = (*source)(nil)

func (s *source) Discover() (*topology.Node, error) {
	return topology.Discover(topology.Source{Sysfs: s.m.sysfs, Links: s.m.links})
}

func (s *source) GPUs() []topology.Slot { return nil }

// news is a change of an interface that netlink reports.
type news struct {
	link    string // name of the interface whose carrier changed; "" when something else changed, such as an address
	carrier bool
}

// Watch reports each change after a delay, drawn as the time that netlink takes.
func (s *source) Watch(done <-chan struct{}, changed func(), link func(string, bool), caught func(*guard.Panic)) error {
	var mu sync.Mutex
	var queue []news
	was := map[string]bool{}
	for _, i := range s.m.Interfaces() {
		was[i.Name()] = i.Running()
	}
	wake := make(chan struct{}, 1)
	s.m.Watch(func() {
		all := []news{{}}
		for _, i := range s.m.Interfaces() {
			running := i.Running()
			mu.Lock()
			if was[i.Name()] != running {
				was[i.Name()] = running
				all = append(all, news{i.Name(), running})
			}
			mu.Unlock()
		}
		s.events.After(s.events.Between(50*time.Microsecond, 5*time.Millisecond), "netlink", func() {
			mu.Lock()
			queue = append(queue, all...)
			mu.Unlock()
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	})
	go guard.Run(func() {
		for {
			select {
			case <-wake:
			case <-done:
				return
			}
			s.gate.Wait()
			mu.Lock()
			all := queue
			queue = nil
			mu.Unlock()
			for _, n := range all {
				if n.link != "" {
					link(n.link, n.carrier)
				}
				changed()
			}
		}
	}, caught)
	return nil
}

// Management joins all machines by a switch of 1 Gb/s.
func (w *World) Management() *internet.Link {
	var all []*internet.Interface
	for k, m := range w.Machines {
		all = append(all, m.AddPort("mgmt0", 1000, netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 0, byte(1 + k)}), 24)))
	}
	return w.Net.Connect(internet.LinkConfig{Rate: 125e6, Latency: 100 * time.Microsecond, Jitter: 50 * time.Microsecond, Switch: true}, all...)
}
