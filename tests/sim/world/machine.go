package world

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"ncclmesh/tests/sim/internet"
	"ncclmesh/transport/topology"
)

// A Machine is a host with RDMA adapters and with a sysfs that describes its devices and interfaces.
type Machine struct {
	*internet.Host
	Adapters []*Adapter

	world   *World
	sysfs   string
	started int // processes so far
}

// AddMachine adds a machine that has no interface yet but the loopback one.
func (w *World) AddMachine(name string) *Machine {
	m := &Machine{Host: w.Net.AddHost(name), world: w, sysfs: w.directory()}
	w.machines = append(w.machines, m)
	return m
}

// directory makes a directory that ends with the test, in memory where there is such a place: a machine's sysfs is many small files.
func (w *World) directory() string {
	dir, err := os.MkdirTemp("/dev/shm", "sysfs")
	if err != nil {
		return w.T.TempDir()
	}
	w.T.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			w.T.Error(err)
		}
	})
	return dir
}

// AddPort gives the machine an Ethernet port of a speed, in Mb/s.
func (m *Machine) AddPort(name string, mbps int, prefixes ...netip.Prefix) *internet.Interface {
	i := m.AddInterface(name, prefixes...)
	dir := filepath.Join(m.sysfs, "class/net", name)
	m.write(dir, "ifindex", strconv.Itoa(i.Index()))
	m.write(dir, "speed", strconv.Itoa(mbps))
	return i
}

// LoadPeerMemory makes nvidia-peermem one of the machine's kernel modules.
func (m *Machine) LoadPeerMemory() {
	m.write(filepath.Join(m.sysfs, "module/nvidia_peermem"), "version", "580.95.05")
}

// write makes a file of sysfs.
func (m *Machine) write(dir, name, text string) {
	write := func() error { return os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644) }
	err := write()
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			err = write()
		}
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
