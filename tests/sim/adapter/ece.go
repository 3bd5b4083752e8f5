package adapter

import (
	"syscall"

	"ncclmesh/ibv"
)

// ece is what a queue pair has of enhanced connection establishment, by which both ends agree on options. As with mlx5, it
// first tells what its adapter can do. What the program sets takes effect with the next change of state up to RTR, reduced to
// that; from then on the queue pair tells what it has. Packets between ends that have not the same options are lost.
type ece struct {
	told     uint32 // options that QueryECE returns
	wanted   uint32 // by SetECE
	pending  bool   // wanted waits for a change of state
	inEffect uint32
}

// KnowECE gives the device enhanced connection establishment: a vendor, which is not 0, and the options that it can do. With no
// options its provider library knows the calls and its firmware does not. A device that was not told knows nothing of it.
// It is to be called before a process makes queue pairs.
func (d *Device) KnowECE(vendor, options uint32) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	d.ece = ibv.ECE{VendorID: vendor, Options: options}
}

// ECEOptions returns the options in effect of a queue pair, and whether there is one of that number.
func (f *Fabric) ECEOptions(qpn uint32) (options uint32, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.qps[qpn]
	if q == nil {
		return 0, false
	}
	return q.ece.inEffect, true
}

func (p *Process) QueryECE(handle uintptr, out *ibv.ECE) syscall.Errno {
	q := find(p, p.qps, handle)
	d := q.device()
	errno := p.enter(d, "query_ece")
	defer p.fabric.mu.Unlock()
	switch {
	case errno != 0:
		return errno
	case d.ece.VendorID == 0:
		return syscall.EOPNOTSUPP
	}
	*out = ibv.ECE{VendorID: d.ece.VendorID, Options: q.ece.told}
	return 0
}

func (p *Process) SetECE(handle uintptr, in *ibv.ECE) syscall.Errno {
	q := find(p, p.qps, handle)
	d := q.device()
	errno := p.enter(d, "set_ece")
	defer p.fabric.mu.Unlock()
	switch {
	case errno != 0:
		return errno
	case in.VendorID == 0 || d.ece.VendorID == 0:
		return syscall.EOPNOTSUPP
	case in.CompMask != 0 || in.VendorID != d.ece.VendorID:
		return syscall.EINVAL
	case d.ece.Options == 0:
		return syscall.EOPNOTSUPP
	}
	q.ece.told, q.ece.wanted, q.ece.pending = 0, in.Options, true
	return 0
}

// agree makes options that were set take effect, if the change of state is one of those that take them.
// Preconditions: f.mu is locked.
func (q *queuePair) agree(to uint32) {
	if !q.ece.pending || to != ibv.IBV_QPS_INIT && to != ibv.IBV_QPS_RTR {
		return
	}
	has := q.ece.wanted & q.device().ece.Options
	q.ece = ece{told: has, inEffect: has}
}

// disagree makes the queue pair one that has agreed on nothing.
func (q *queuePair) disagree() { q.ece = ece{told: q.device().ece.Options} }
