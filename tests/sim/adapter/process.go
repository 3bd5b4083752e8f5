package adapter

import (
	"fmt"
	"slices"
	"syscall"

	"ncclmesh/ibv"
	"ncclmesh/tests/sim/bus"
)

// A Process is the driver of one process on a node: it lists the devices of the node, and has the objects that the process
// made.
type Process struct {
	fabric *Fabric
	node   string
	source *bus.Source // for what verbs wait for
	gate   *bus.Gate   // nil: it is never stopped

	// All objects by their handles; guarded by the fabric's mu.
	contexts map[uintptr]*context
	pds      map[uintptr]*domain
	mrs      map[uintptr]*region
	channels map[uintptr]*channel
	cqs      map[uintptr]*compQueue
	qps      map[uintptr]*queuePair
	gone     bool
}

var _ ibv.Driver = (*Process)(nil)

// Process starts a process on a node. The name stands for it in the trace, and no other process has it.
func (f *Fabric) Process(node, name string) *Process {
	return &Process{fabric: f, node: node, source: f.bus.Source("process " + node + "/" + name),
		contexts: map[uintptr]*context{}, pds: map[uintptr]*domain{}, mrs: map[uintptr]*region{},
		channels: map[uintptr]*channel{}, cqs: map[uintptr]*compQueue{}, qps: map[uintptr]*queuePair{}}
}

// Through holds the verbs of the process, its posts of sends, and its waits for completions and events while the gate is shut: the
// process is stopped then. The adapters go on. It is to be called before the process does anything.
func (p *Process) Through(g *bus.Gate) { p.gate = g }

// Kill takes everything from the process that it has, as the kernel does when a process dies. Peers hear nothing of it but
// that nobody answers. Calls of the driver fail from then on.
func (p *Process) Kill() {
	f := p.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	p.gone = true
	for _, d := range f.devices {
		for _, c := range slices.Clone(d.opened) {
			if c.process != p {
				continue
			}
			for _, q := range slices.Clone(c.qps) {
				q.remove()
			}
			c.leave()
		}
	}
	for _, r := range p.mrs {
		r.gone = true
	}
}

// Objects is how many objects of a kind the process has. It is for leak checks.
func (p *Process) Objects() map[string]int {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	all := map[string]int{}
	for kind, n := range map[string]int{"contexts": len(p.contexts), "domains": len(p.pds), "regions": len(p.mrs),
		"channels": len(p.channels), "completion queues": len(p.cqs), "queue pairs": len(p.qps)} {
		if n > 0 {
			all[kind] = n
		}
	}
	return all
}

func (p *Process) Name() string            { return "the simulated adapters of node " + p.node }
func (p *Process) Missing(string) string   { return "" }
func (p *Process) ForkInit() syscall.Errno { return 0 }

func (p *Process) Devices() (list []ibv.DeviceInfo, _ error) {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	for _, d := range p.fabric.devices {
		if d.node == p.node {
			list = append(list, ibv.DeviceInfo{Name: d.name, GUID: d.guid})
		}
	}
	return list, nil
}

func (p *Process) OpenDevice(name string, guid uint64) (ibv.ContextInfo, error) {
	f := p.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.devices {
		if d.node != p.node || d.name != name || d.guid != guid {
			continue
		}
		if errno := p.refused(d, "open_device"); errno != 0 {
			return ibv.ContextInfo{}, &ibv.Error{Op: "open_device", Device: name, Errno: errno}
		}
		c := &context{device: d, process: p, handle: f.handle(), come: make(chan struct{}, 1)}
		p.contexts[c.handle] = c
		d.opened = append(d.opened, c)
		return ibv.ContextInfo{Handle: c.handle, CmdFD: -1, AsyncFD: -1}, nil
	}
	return ibv.ContextInfo{}, &ibv.Error{Op: "open_device", Device: name, Errno: syscall.ENODEV,
		Detail: fmt.Sprintf("node %s has no such device with GUID %016x", p.node, guid)}
}

// find looks an object up.
func find[T any](p *Process, objects map[uintptr]T, handle uintptr) T {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	return objects[handle]
}

// refused is the errno of a call on a device; 0 where it may go on.
// Preconditions: f.mu is locked.
func (p *Process) refused(d *Device, verb string) syscall.Errno {
	if p.gone {
		return syscall.EIO
	}
	return d.refused(verb)
}

// enter waits as long as a verb is to take, and begins it: f.mu is locked when it returns.
func (p *Process) enter(d *Device, verb string) syscall.Errno {
	p.gate.Wait()
	f := p.fabric
	f.mu.Lock()
	if by := d.slow[verb]; by > 0 {
		s := p.source
		f.mu.Unlock()
		s.Sleep(by)
		p.gate.Wait()
		f.mu.Lock()
	}
	return p.refused(d, verb)
}

func (p *Process) CloseDevice(ctx uintptr) syscall.Errno {
	f := p.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	c := p.contexts[ctx]
	if c.users > 0 {
		return syscall.EBUSY
	}
	c.leave()
	delete(p.contexts, ctx)
	return 0
}

func (p *Process) QueryDevice(ctx uintptr, attr *ibv.DeviceAttr) syscall.Errno {
	d := find(p, p.contexts, ctx).device
	errno := p.enter(d, "query_device")
	defer p.fabric.mu.Unlock()
	if errno != 0 {
		return errno
	}
	l := &d.limits
	*attr = ibv.DeviceAttr{
		MaxQPWR: int32(l.QPWR), MaxCQE: int32(l.CQE), MaxQPRdAtom: int32(l.Reads), MaxQPInitRdAtom: int32(l.Reads),
		PhysPortCnt: byte(len(d.ports)),
	}
	return 0
}

// onPort begins a verb on a port: the port is nil where the errno is not 0. f.mu is locked when it returns.
func (p *Process) onPort(ctx uintptr, num uint8, verb string) (*Port, syscall.Errno) {
	d := find(p, p.contexts, ctx).device
	if errno := p.enter(d, verb); errno != 0 {
		return nil, errno
	}
	if port := d.port(num); port != nil {
		return port, 0
	}
	return nil, syscall.EINVAL
}

func (p *Process) QueryPort(ctx uintptr, num uint8, attr *ibv.PortAttr) syscall.Errno {
	port, errno := p.onPort(ctx, num, "query_port")
	defer p.fabric.mu.Unlock()
	if errno != 0 {
		return errno
	}
	*attr = ibv.PortAttr{
		State: ibv.IBV_PORT_DOWN, ActiveMTU: port.config.MTU, MaxMsgSz: uint32(port.device.limits.MsgSize),
		LinkLayer: ibv.IBV_LINK_LAYER_ETHERNET, ActiveWidth: 2, ActiveSpeed: 32,
	}
	if port.active() {
		attr.State = ibv.IBV_PORT_ACTIVE
	}
	if port.config.LID != 0 {
		attr.LinkLayer, attr.LID = ibv.IBV_LINK_LAYER_INFINIBAND, port.config.LID
	}
	return 0
}

func (p *Process) QueryPortSpeed(ctx uintptr, num uint8) (uint64, syscall.Errno) {
	port, errno := p.onPort(ctx, num, "query_port_speed")
	defer p.fabric.mu.Unlock()
	if errno != 0 {
		return 0, errno
	}
	return uint64(port.config.Mbps / 100), 0
}

func (p *Process) StatusText(uint32) string { return "" }
func (p *Process) EventText(uint32) string  { return "" }
