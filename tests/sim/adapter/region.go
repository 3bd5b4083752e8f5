package adapter

import (
	"os"
	"syscall"

	"ncclmesh/ibv"
)

// A span is a range of memory.
type span struct{ addr, length uint64 }

// A domain is a protection domain.
type domain struct {
	context *context
	handle  uintptr
	users   int
}

// A region is registered memory.
type region struct {
	domain     *domain
	handle     uintptr
	lkey, rkey uint32
	iova       uint64 // what requests call the first byte
	memory     span
	gpu        *GPUMemory // nil: host memory
	access     uint32
	dataDirect bool // the device reaches it by its function for GPU memory
	gone       bool
}

func (p *Process) AllocPD(ctx uintptr) (uintptr, syscall.Errno) {
	c := find(p, p.contexts, ctx)
	errno := p.enter(c.device, "alloc_pd")
	f := p.fabric
	defer f.mu.Unlock()
	if errno != 0 {
		return 0, errno
	}
	pd := &domain{context: c, handle: f.handle()}
	p.pds[pd.handle] = pd
	c.users++
	return pd.handle, 0
}

func (p *Process) DeallocPD(handle uintptr) syscall.Errno {
	p.fabric.mu.Lock()
	defer p.fabric.mu.Unlock()
	pd := p.pds[handle]
	if pd.users > 0 {
		return syscall.EBUSY
	}
	pd.context.users--
	delete(p.pds, handle)
	return 0
}

func (p *Process) RegMR(pd, addr, length uintptr, access uint32) (ibv.MRInfo, syscall.Errno) {
	p.fabric.mu.Lock()
	gpu, m, errno := p.fabric.gpuAt(span{uint64(addr), uint64(length)})
	p.fabric.mu.Unlock()
	if errno != 0 {
		return ibv.MRInfo{}, errno
	}
	return p.register("reg_mr", pd, uint64(addr), m, gpu, access&^ibv.IBV_ACCESS_OPTIONAL_RANGE)
}

func (p *Process) RegDmabufMR(pd uintptr, offset, length, iova uint64, fd int, access uint32) (ibv.MRInfo, syscall.Errno) {
	page := uint64(os.Getpagesize())
	p.fabric.mu.Lock()
	gpu, m, errno := p.fabric.gpuOf(fd, offset, length)
	p.fabric.mu.Unlock()
	if errno == 0 && iova%page != offset%page { // ibv_reg_dmabuf_mr(3) asks for the same place in a page
		errno = syscall.EINVAL
	}
	if errno != 0 {
		return ibv.MRInfo{}, errno
	}
	return p.register("reg_dmabuf_mr", pd, iova, m, gpu, access)
}

func (p *Process) register(verb string, pd uintptr, iova uint64, m span, gpu *GPUMemory, access uint32) (ibv.MRInfo, syscall.Errno) {
	const remote = ibv.IBV_ACCESS_REMOTE_WRITE | ibv.IBV_ACCESS_REMOTE_ATOMIC
	d := find(p, p.pds, pd)
	errno := p.enter(d.context.device, verb)
	f := p.fabric
	defer f.mu.Unlock()
	switch {
	case errno != 0:
		return ibv.MRInfo{}, errno
	case m.length == 0 || access&remote != 0 && access&ibv.IBV_ACCESS_LOCAL_WRITE == 0:
		return ibv.MRInfo{}, syscall.EINVAL
	case m.addr == 0 || m.length > 1<<40:
		return ibv.MRInfo{}, syscall.EFAULT
	case len(p.mrs) >= d.context.device.limits.MRs:
		return ibv.MRInfo{}, syscall.ENOMEM
	}
	f.nextKey += 2
	r := &region{domain: d, handle: f.handle(), lkey: f.nextKey << 4, rkey: (f.nextKey + 1) << 4, iova: iova, memory: m, gpu: gpu, access: access}
	p.mrs[r.handle] = r
	d.users++
	d.context.device.keys(r.lkey, r)
	d.context.device.keys(r.rkey, r)
	return ibv.MRInfo{Handle: r.handle, LKey: r.lkey, RKey: r.rkey}, 0
}

func (p *Process) DeregMR(handle uintptr) syscall.Errno {
	r := find(p, p.mrs, handle)
	errno := p.enter(r.domain.context.device, "dereg_mr")
	defer p.fabric.mu.Unlock()
	if errno != 0 && !r.domain.context.device.dead && !p.gone {
		return errno
	}
	r.domain.context.device.settle()
	r.gone = true
	r.domain.users--
	r.domain.context.device.forgetKeys(r)
	delete(p.mrs, handle)
	return 0
}

// covers returns the memory that a request names by a key, or nil where the key does not give that access to all of it.
func (d *domain) covers(key uint32, addr, length uint64, access uint32, local bool) []byte {
	r := d.context.device.byKey[key]
	if r == nil || r.gone || r.domain != d || (local && r.lkey != key) || (!local && r.rkey != key) || r.access&access != access {
		return nil
	}
	if addr < r.iova || addr-r.iova > r.memory.length || length > r.memory.length-(addr-r.iova) {
		return nil
	}
	if length == 0 {
		return []byte{}
	}
	return bytesAt(r.memory.addr+(addr-r.iova), length)
}

// keys makes a key name a region.
func (d *Device) keys(key uint32, r *region) {
	if d.byKey == nil {
		d.byKey = map[uint32]*region{}
	}
	d.byKey[key] = r
}

func (d *Device) forgetKeys(r *region) {
	delete(d.byKey, r.lkey)
	delete(d.byKey, r.rkey)
}

// gather lists the bytes from one offset to another of a gather list, or returns false where a key does not cover its entry.
func (d *domain) gather(list []ibv.SGE, from, to uint64, access uint32) (parts [][]byte, ok bool) {
	at := uint64(0)
	for _, e := range list {
		length := uint64(e.Length)
		first, last := max(from, at), min(to, at+length)
		if first < last {
			b := d.covers(e.LKey, e.Addr, length, access, true)
			if b == nil {
				return nil, false
			}
			parts = append(parts, b[first-at:last-at])
		}
		at += length
	}
	return parts, true
}

// scatter writes to parts, one after the other.
func (d *domain) scatter(parts [][]byte, data []byte) {
	for _, p := range parts {
		n := min(len(p), len(data))
		d.context.device.write(p[:n], data[:n])
		data = data[n:]
	}
}

// total is the length of a gather list.
func total(list []ibv.SGE) (n uint64) {
	for _, e := range list {
		n += uint64(e.Length)
	}
	return n
}
