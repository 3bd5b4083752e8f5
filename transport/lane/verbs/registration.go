package verbs

import (
	"slices"

	"ncclmesh/ibv"
	"ncclmesh/transport/lane"
)

// registered is memory that the device has registered, with those who hold parts of it.
type registered struct {
	port    *Port
	kind    lane.MemoryKind
	buffer  uint64 // number of the allocation of GPU memory; 0: unknown
	access  uint32 // flags that mr has
	mr      *ibv.MR
	holders []*holder // guarded by port.regMu
}

// holder is a [lane.Registration]: one reference to registered memory.
type holder struct {
	*registered
	memory lane.Memory
}

// access returns the access flags for user memory. The device itself reads GPU memory, by the loopback; the queue pairs
// that lead to peers do not allow READs.
func (p *Port) access(k lane.MemoryKind) uint32 {
	a := uint32(ibv.IBV_ACCESS_LOCAL_WRITE | ibv.IBV_ACCESS_REMOTE_WRITE)
	if k == lane.GPUMemory {
		a |= ibv.IBV_ACCESS_REMOTE_READ
	}
	if p.opts.RelaxedOrdering {
		a |= ibv.IBV_ACCESS_RELAXED_ORDERING
	}
	return a
}

// hold returns a reference to a range: to memory that is registered already if somebody holds a range there that covers
// this one, with the access flags at least, and to new memory otherwise.
//
// Memory is shared only where it is still the same. Host memory must not be unmapped while it is held; what somebody held
// once does not count, because it may be other memory by now. Programs free GPU memory that is held, and its address comes
// again; so GPU memory is shared only within one allocation, as CUDA numbers them.
func (p *Port) hold(m lane.Memory, access uint32) (*holder, error) {
	buffer := p.bufferOf(m)
	p.regMu.Lock()
	defer p.regMu.Unlock()
	for _, r := range p.regs {
		if r.serves(m, buffer, access) {
			return r.add(m), nil
		}
	}
	mr, err := p.registerNew(m, access)
	if err != nil {
		return nil, err
	}
	r := &registered{port: p, kind: m.Kind, buffer: buffer, access: access, mr: mr}
	p.regs = append(p.regs, r)
	return r.add(m), nil
}

// bufferOf returns the number of the allocation of GPU memory that m lies in, or 0.
func (p *Port) bufferOf(m lane.Memory) uint64 {
	if m.Kind == lane.GPUMemory && p.opts.GPUBuffer != nil {
		if n, known := p.opts.GPUBuffer(m.Addr); known {
			return n
		}
	}
	return 0
}

// registerNew registers a range with the device.
func (p *Port) registerNew(m lane.Memory, access uint32) (*ibv.MR, error) {
	if m.DMABuf != nil {
		return p.registerDMABuf(m, access)
	}
	return p.pd.RegMR(m.Addr, m.Length, access)
}

// serves reports whether somebody holds memory that covers m, with the access flags at least. buffer is the number of m's
// allocation.
//
// Preconditions: port.regMu is held.
func (r *registered) serves(m lane.Memory, buffer uint64, access uint32) bool {
	if r.kind != m.Kind || access&^r.access != 0 || r.buffer != buffer || m.Kind == lane.GPUMemory && buffer == 0 {
		return false
	}
	return slices.ContainsFunc(r.holders, func(h *holder) bool {
		return m.Addr >= h.memory.Addr && m.Addr+m.Length <= h.memory.Addr+h.memory.Length
	})
}

// add adds a reference to the range m.
//
// Preconditions: port.regMu is held.
func (r *registered) add(m lane.Memory) *holder {
	m.DMABuf = nil // the descriptor is the caller's
	h := &holder{r, m}
	r.holders = append(r.holders, h)
	return h
}

func (h *holder) Keys() (local, remote uint32) { return h.mr.LKey(), h.mr.RKey() }

// Release drops the reference. The last one deregisters the memory.
func (h *holder) Release() error {
	h.port.regMu.Lock()
	defer h.port.regMu.Unlock()
	return h.dropLocked()
}

// ReleaseAlone deregisters the memory if the caller has the only reference, and returns false otherwise.
func (h *holder) ReleaseAlone() (alone bool, err error) {
	h.port.regMu.Lock()
	defer h.port.regMu.Unlock()
	if len(h.holders) > 1 {
		return false, nil
	}
	return true, h.dropLocked()
}

// dropLocked drops the reference. If the memory cannot be deregistered, the last holder keeps it.
//
// Preconditions: port.regMu is held.
func (h *holder) dropLocked() error {
	if len(h.holders) == 1 {
		if err := h.mr.Close(); err != nil {
			return err
		}
		h.port.regs = slices.DeleteFunc(h.port.regs, func(r *registered) bool { return r == h.registered })
	}
	h.holders = slices.DeleteFunc(h.holders, func(o *holder) bool { return o == h })
	return nil
}
