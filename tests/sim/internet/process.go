package internet

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/transport/sock"
)

// A Process is the network of one process on a host. The descriptors that its sockets have are counted.
type Process struct {
	host *Host
	name string
	dead bool
	gate *bus.Gate // nil: it is never stopped

	descriptors []string // what each number is in use for, "" where it is free
	limit       int
	refusals    []*refusal
	led         map[string]uint32 // sockets so far, by where they lead
	listeners   []*listener
	ends        []*end // that it has a descriptor of
	packets     []*packets
	news        func()
}

var _ sock.Network = (*Process)(nil)

// standard is how many descriptors a process has from its start.
const standard = 3

// Process starts a process on the host. No other process of the host, also no earlier one, has its name.
func (h *Host) Process(name string) *Process {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if slices.ContainsFunc(h.processes, func(p *Process) bool { return p.name == name }) {
		panic("internet: " + h.name + " had a process " + name + " already")
	}
	p := &Process{host: h, name: name, limit: 1 << 20, led: map[string]uint32{}, descriptors: []string{"standard", "standard", "standard"}}
	h.processes = append(h.processes, p)
	return p
}

func (p *Process) String() string { return p.host.name + "/" + p.name }

// Host is where the process runs.
func (p *Process) Host() *Host { return p.host }

// LimitDescriptors says how many descriptors the process may have open, with the three that it has from its start.
func (p *Process) LimitDescriptors(n int) {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	p.limit = n
}

// Open is how many sockets of each kind the process has open. It is for leak checks.
func (p *Process) Open() map[string]int {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	all := map[string]int{}
	for _, kind := range p.descriptors[standard:] {
		if kind != "" {
			all[kind]++
		}
	}
	return all
}

// OnNews has f called when there is something new at any socket of the process: something to read or to accept, room to
// write, an error. f runs within an event; it must not wait, nor call the internet.
func (p *Process) OnNews(f func()) {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	p.news = f
}

// tell calls what OnNews was given.
// Preconditions: n.mu is locked.
func (p *Process) tell() {
	if p != nil && p.news != nil {
		p.news()
	}
}

// Through has no call of the process return while the gate is shut: the process is stopped then. Its host goes on.
func (p *Process) Through(g *bus.Gate) {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	p.gate = g
}

// wait waits for a condition, and then until the process is not stopped.
// Preconditions: n.mu is locked. wait unlocks it meanwhile.
func (p *Process) wait(c *sync.Cond) {
	c.Wait()
	p.host.net.mu.Unlock()
	defer p.host.net.mu.Lock()
	p.gate.Wait()
}

// Kill closes all sockets of the process, as the kernel does when a process dies. Calls fail from then on as if everything
// had been closed.
func (p *Process) Kill() {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	p.die(false)
}

// die ends the process. Without power the kernel says nothing to anybody.
// Preconditions: n.mu is locked.
func (p *Process) die(unpowered bool) {
	p.dead = true
	for _, l := range slices.Clone(p.listeners) {
		l.close(unpowered)
	}
	for _, e := range slices.Clone(p.ends) {
		for e.refs > 0 {
			e.release()
		}
		e.wake()
	}
	for _, s := range slices.Clone(p.packets) {
		s.close()
	}
	clear(p.descriptors)
	p.tell()
}

// A refusal makes calls fail.
type refusal struct {
	call        string
	errno       unix.Errno
	skip, times int
}

// Refuse makes a system call of the process fail: after skip calls that go well, times calls with that errno. Calls are
// named as in section 2 of the manual: socket, bind, connect, listen, accept4, fcntl (a stream of a connection), pipe2 (to
// pump), setsockopt, sendmsg, recvmsg.
func (p *Process) Refuse(call string, errno unix.Errno, skip, times int) {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	p.refusals = append(p.refusals, &refusal{call, errno, skip, times})
}

// refused is the errno that a call is to fail with, 0 if it is not to.
// Preconditions: n.mu is locked.
func (p *Process) refused(call string) unix.Errno {
	for _, r := range p.refusals {
		switch {
		case r.call != call || r.times == 0:
		case r.skip > 0:
			r.skip--
		default:
			r.times--
			p.host.net.count("refused " + call)
			return r.errno
		}
	}
	return 0
}

// open takes the first free descriptor for a kind of thing, by a call.
// Preconditions: n.mu is locked.
func (p *Process) open(call, kind string) (fd int, _ unix.Errno) {
	if p.dead {
		return -1, unix.EBADF
	}
	if errno := p.refused(call); errno != 0 {
		return -1, errno
	}
	return p.number(kind)
}

// number takes the first free descriptor.
// Preconditions: n.mu is locked.
func (p *Process) number(kind string) (fd int, _ unix.Errno) {
	fd = slices.Index(p.descriptors, "")
	if fd < 0 {
		fd = len(p.descriptors)
	}
	if fd >= p.limit {
		p.host.net.count("out of descriptors")
		return -1, unix.EMFILE
	}
	if fd == len(p.descriptors) {
		p.descriptors = append(p.descriptors, "")
	}
	p.descriptors[fd] = kind
	return fd, 0
}

// shut gives a descriptor back.
// Preconditions: n.mu is locked.
func (p *Process) shut(fd int) {
	if fd >= 0 {
		p.descriptors[fd] = ""
	}
}

// interfaceOf finds the interface that a socket is to be bound to; nil where it is to none.
func (p *Process) interfaceOf(netdev string) (*Interface, error) {
	if netdev == "" {
		return nil, nil
	}
	if i := p.host.named(netdev); i != nil {
		return i, nil
	}
	return nil, fmt.Errorf("bind to interface %s: %w", netdev, unix.ENODEV)
}

// turn is how many sockets the process has had that lead to the same place.
// Preconditions: n.mu is locked.
func (p *Process) turn(place string) uint32 {
	p.led[place]++
	return p.led[place]
}

// Interfaces lists the interfaces of the host.
func (p *Process) Interfaces() (all []sock.Interface, _ error) {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	if errno := p.refused("netlink"); errno != 0 {
		return nil, os.NewSyscallError("netlinkrib", errno)
	}
	for _, i := range p.host.present() {
		all = append(all, i.describe())
	}
	return all, nil
}

// Prefixes lists the addresses of an interface.
func (p *Process) Prefixes(index int) []netip.Prefix {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	if i := p.host.numbered(index); i != nil {
		return slices.Clone(i.addresses())
	}
	return nil
}

// Streams describes the streams that the process has, in the order of their names. It is for a person who looks for why
// something stands still.
func (p *Process) Streams() (all []string) {
	p.host.net.mu.Lock()
	defer p.host.net.mu.Unlock()
	for _, e := range p.ends {
		all = append(all, e.String())
	}
	slices.Sort(all)
	return all
}
