package internet

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/transport/sock"
)

// A Host is a machine with its network interfaces and its kernel's sockets.
type Host struct {
	net        *Internet
	name       string
	off        bool
	interfaces []*Interface // the first is the loopback interface
	changes    uint64       // of interfaces and addresses so far
	watchers   []func()
	kernel     *bus.Source // of what belongs to no socket

	pairs     map[pair][]*end
	ports     map[uint16][]*binding // of streams and listeners
	udp       map[uint16][]*binding
	listeners []*listener // in the order of their opening
	packets   []*packets  // in the order of their opening
	processes []*Process
}

// AddHost adds a host with a loopback interface.
func (n *Internet) AddHost(name string) *Host {
	h := &Host{net: n, name: name, kernel: n.bus.Source("kernel " + name), pairs: map[pair][]*end{}, ports: map[uint16][]*binding{}, udp: map[uint16][]*binding{}}
	lo := h.AddInterface("lo", netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128"))
	lo.line.latency, lo.line.rate = 10*time.Microsecond, 5_000_000_000
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts = append(n.hosts, h)
	return h
}

// Name is the name that the host was added with.
func (h *Host) Name() string { return h.name }

// An Interface is a network interface of a host.
type Interface struct {
	host      *Host
	name      string
	index     int
	down      bool
	removed   bool           // it is down then, and has no addresses
	prefixes  []netip.Prefix // those of IPv4 first
	linkLocal netip.Addr     // one of them, also after a change of its name
	link      *Link          // nil: nothing is plugged in
	line      *line          // that it sends on
	nearby    map[netip.Addr]*neighbour
}

// AddInterface gives the host its next interface, which is up. It gets a link-local address of IPv6 besides its prefixes,
// each of which is an own address with the length of its subnet.
func (h *Host) AddInterface(name string, prefixes ...netip.Prefix) *Interface {
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	i := &Interface{host: h, name: name, index: len(h.interfaces) + 1, nearby: map[netip.Addr]*neighbour{}}
	i.line = &line{from: i, source: n.bus.Source(fmt.Sprintf("line %v", i))}
	i.linkLocal = linkLocal(i.String())
	i.set(prefixes)
	h.interfaces = append(h.interfaces, i)
	return i
}

func (i *Interface) String() string { return i.host.name + "/" + i.name }

// Name is the interface's name on its host.
func (i *Interface) Name() string { return i.name }

// Index is the interface's number on its host.
func (i *Interface) Index() int { return i.index }

// loopback reports whether the interface is its host's way to itself.
func (i *Interface) loopback() bool { return i.index == 1 }

// set replaces the addresses.
func (i *Interface) set(prefixes []netip.Prefix) {
	i.prefixes = slices.Clone(prefixes)
	if !i.loopback() {
		i.prefixes = append(i.prefixes, netip.PrefixFrom(i.linkLocal, 64))
	}
	slices.SortStableFunc(i.prefixes, func(a, b netip.Prefix) int { return cmp.Compare(a.Addr().BitLen(), b.Addr().BitLen()) })
}

// linkLocal makes the address of an interface on its link, of IPv6; it is the same on every run.
func linkLocal(name string) netip.Addr {
	f := fnv.New64a()
	_, _ = f.Write([]byte(name))
	return netip.AddrFrom16([16]byte(f.Sum([]byte{0xfe, 0x80, 0, 0, 0, 0, 0, 0})))
}

// running reports whether the interface is up and has a carrier. The other end of a cable has to be up for that, a switch
// does not.
// Preconditions: n.mu is locked.
func (i *Interface) running() bool {
	if i.down || i.host.off || i.loopback() {
		return i.loopback() && !i.down
	}
	return i.link != nil && !i.link.cut && (len(i.link.interfaces) > 2 || i.link.config.Switch ||
		!slices.ContainsFunc(i.link.interfaces, func(other *Interface) bool { return other.down || other.host.off }))
}

// addresses are the prefixes that can be used: an interface that is down has none of IPv6.
// Preconditions: n.mu is locked.
func (i *Interface) addresses() []netip.Prefix {
	if !i.down {
		return i.prefixes
	}
	return slices.DeleteFunc(slices.Clone(i.prefixes), func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// has reports whether an address is the interface's own.
// Preconditions: n.mu is locked.
func (i *Interface) has(a netip.Addr) bool {
	if i.loopback() && a.Is4() && a.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(i.addresses(), func(p netip.Prefix) bool { return p.Addr() == a.WithZone("") })
}

// Prefixes returns the interface's addresses, as a process sees them.
func (i *Interface) Prefixes() []netip.Prefix {
	i.host.net.mu.Lock()
	defer i.host.net.mu.Unlock()
	return slices.Clone(i.addresses())
}

// Running reports whether the interface is up and has a carrier.
func (i *Interface) Running() bool {
	i.host.net.mu.Lock()
	defer i.host.net.mu.Unlock()
	return i.running()
}

// SetUp takes the interface up or down. The other end of a cable loses its carrier with it.
func (i *Interface) SetUp(up bool) {
	i.host.net.change(i.linked(), func() { i.down = !up })
}

// SetPrefixes replaces the addresses, but for the link-local one.
func (i *Interface) SetPrefixes(prefixes ...netip.Prefix) {
	i.host.net.change([]*Interface{i}, func() { i.set(prefixes) })
}

// linked are the interfaces that see what happens to this one.
func (i *Interface) linked() []*Interface {
	i.host.net.mu.Lock()
	defer i.host.net.mu.Unlock()
	if i.link == nil {
		return []*Interface{i}
	}
	return slices.Clone(i.link.interfaces)
}

// change does what may change interfaces, and tells the watchers of their hosts. An interface without a carrier forgets
// who is on its link.
func (n *Internet) change(interfaces []*Interface, do func()) {
	n.mu.Lock()
	do()
	var hosts []*Host
	for _, i := range interfaces {
		if !i.running() {
			i.forget()
		}
		i.host.changes++
		if !slices.Contains(hosts, i.host) && !i.host.off {
			hosts = append(hosts, i.host)
		}
	}
	var watchers []func()
	for _, h := range hosts {
		watchers = append(watchers, h.watchers...)
	}
	n.mu.Unlock()
	for _, w := range watchers {
		w()
	}
}

// Watch has f called after each change of the host's interfaces: of their addresses, of being up, of the carrier. f runs
// in whoever makes the change, so it must not wait.
func (h *Host) Watch(f func()) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.watchers = append(h.watchers, f)
}

// Interface returns the interface of a name, nil where the host has none.
func (h *Host) Interface(name string) *Interface {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	return h.named(name)
}

// named finds an interface.
func (h *Host) named(name string) *Interface {
	for _, i := range h.interfaces {
		if i.name == name && !i.removed {
			return i
		}
	}
	return nil
}

// numbered finds an interface.
func (h *Host) numbered(index int) *Interface {
	if index < 1 || index > len(h.interfaces) || h.interfaces[index-1].removed {
		return nil
	}
	return h.interfaces[index-1]
}

// owner finds the interface that has an address; nil where the address is not the host's own.
// Preconditions: n.mu is locked.
func (h *Host) owner(a netip.Addr) *Interface {
	for _, i := range h.interfaces {
		if i.has(a) && (a.Zone() == "" || a.Zone() == i.name) {
			return i
		}
	}
	return nil
}

// streams are all that the kernel knows, in the order of their names.
// Preconditions: n.mu is locked.
func (h *Host) streams() (all []*end) {
	for _, ends := range h.pairs {
		all = append(all, ends...)
	}
	slices.SortFunc(all, func(a, b *end) int { return cmp.Compare(a.name, b.name) })
	return all
}

// PowerOff takes the power from the host: its processes are gone, and nobody hears a word. Streams that lead to it stay
// half open.
func (h *Host) PowerOff() {
	h.net.mu.Lock()
	for _, p := range h.processes {
		p.die(true)
	}
	for _, e := range h.streams() {
		e.vanish()
	}
	h.net.mu.Unlock()
	h.power(true)
}

// PowerOn starts the host again. It has its interfaces and no processes.
func (h *Host) PowerOn() { h.power(false) }

func (h *Host) power(off bool) {
	var all []*Interface
	for _, i := range h.interfaces {
		all = append(all, i.linked()...)
	}
	h.net.change(all, func() { h.off = off })
}

// describe is the interface as package sock has it.
// Preconditions: n.mu is locked.
func (i *Interface) describe() sock.Interface {
	return sock.Interface{Name: i.name, Index: i.index, Running: i.running()}
}

// newCond makes a condition of the internet's mutex.
func (n *Internet) newCond() *sync.Cond { return sync.NewCond(&n.mu) }
