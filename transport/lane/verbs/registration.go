package verbs

import (
	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
)

// regKey identifies a registration. Requests with equal keys share one memory region.
type regKey struct {
	addr, length uintptr
	access       uint32
}

// registration is a memory region with the number of its holders.
type registration struct {
	port *Port
	key  regKey
	mr   *ibv.MR
	refs int // guarded by port.regMu
}

// access returns the access flags for user memory.
func (p *Port) access() uint32 {
	a := uint32(ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE)
	if p.opts.RelaxedOrdering {
		a |= ibv.IBV_ACCESS_RELAXED_ORDERING
	}
	return a
}

// register returns the registration of a range, a shared one if the range is already registered.
func (p *Port) register(k regKey) (*registration, error) {
	p.regMu.Lock()
	defer p.regMu.Unlock()
	if r := p.regs[k]; r != nil {
		r.refs++
		return r, nil
	}
	mr, err := p.pd.RegMR(k.addr, k.length, k.access)
	if err != nil {
		return nil, err
	}
	r := &registration{port: p, key: k, mr: mr, refs: 1}
	p.regs[k] = r
	return r, nil
}

func (r *registration) Keys() (local, remote uint32) { return r.mr.LKey(), r.mr.RKey() }

// Release drops a reference. The last one deregisters the memory.
func (r *registration) Release() error {
	r.port.regMu.Lock()
	defer r.port.regMu.Unlock()
	if r.refs > 1 {
		r.refs--
		return nil
	}
	return r.endLocked()
}

// ReleaseAlone deregisters the memory if the caller has the only reference, and returns false otherwise.
func (r *registration) ReleaseAlone() (alone bool, err error) {
	r.port.regMu.Lock()
	defer r.port.regMu.Unlock()
	if r.refs > 1 {
		return false, nil
	}
	return true, r.endLocked()
}

// endLocked deregisters the memory. If that fails, the registration stays with its last holder.
//
// Preconditions: port.regMu is held.
func (r *registration) endLocked() error {
	if err := r.mr.Close(); err != nil {
		return err
	}
	delete(r.port.regs, r.key)
	return nil
}

// dmaBuf is the registration of a DMA-BUF. It is never shared.
type dmaBuf struct{ mr *ibv.MR }

func (r dmaBuf) Keys() (local, remote uint32)        { return r.mr.LKey(), r.mr.RKey() }
func (r dmaBuf) Release() error                      { return r.mr.Close() }
func (r dmaBuf) ReleaseAlone() (alone bool, _ error) { return true, r.mr.Close() }

// Register registers host memory on the device.
func (d *domain) Register(addr, length uintptr) (lane.Registration, error) {
	return d.port.Register(addr, length)
}

// RegisterDmaBuf registers the memory of a DMA-BUF on the device.
func (d *domain) RegisterDmaBuf(addr, length uintptr, offset uint64, fd int) (lane.Registration, error) {
	return d.port.RegisterDmaBuf(addr, length, offset, fd)
}
