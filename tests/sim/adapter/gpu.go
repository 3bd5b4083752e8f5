package adapter

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
)

// GPUMemory is an allocation of a GPU's memory. The processor must not touch it: at its address no page can be read or
// written. A device may register it by its address, as with the kernel's peermem, or by its DMA-BUF.
//
// What a device writes there waits on the way, for a while that is drawn, unless the device reads that memory: the answer
// comes behind the writes. Until then the GPU sees what was there before, although the device has reported completions.
type GPUMemory struct {
	fabric *Fabric
	fd     int
	inode  uint64
	device []byte // where programs see it
	bytes  []byte // where it can be read and written
	noPeer bool
}

// posted is what a device has written to a GPU's memory, on its way.
type posted struct {
	number uint64
	to     []byte
	data   []byte
}

// onTheWay is how long writes to GPU memory take at most, if nothing pushes them.
const onTheWay = 200 * time.Microsecond

// NewGPUMemory allocates n bytes of GPU memory.
func (f *Fabric) NewGPUMemory(n int) (*GPUMemory, error) { return f.NewGPUMemoryAt(0, n) }

// NewGPUMemoryAt allocates n bytes of GPU memory that programs see at addr, where nothing else may be. An address of 0 is
// any.
func (f *Fabric) NewGPUMemoryAt(addr uintptr, n int) (_ *GPUMemory, err error) {
	m := &GPUMemory{fabric: f, fd: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("GPU memory: %w", err), m.unmap())
		}
	}()
	if m.fd, err = unix.MemfdCreate("GPU memory", unix.MFD_CLOEXEC); err != nil {
		return nil, err
	}
	if err = unix.Ftruncate(m.fd, int64(n)); err != nil {
		return nil, err
	}
	if m.inode, err = inodeOf(m.fd); err != nil {
		return nil, err
	}
	if m.bytes, err = unix.Mmap(m.fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, err
	}
	if m.device, err = mapAt(m.fd, addr, n); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gpus = append(f.gpus, m)
	return m, nil
}

func inodeOf(fd int) (uint64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Ino, err
}

// Addr is the address that programs use.
func (m *GPUMemory) Addr() uintptr { return ibv.AddrOf(&m.device[0]) }

// Bytes is what the GPU reads and writes.
func (m *GPUMemory) Bytes() []byte { return m.bytes }

// FD is the descriptor of the memory's DMA-BUF. Programs get copies of it.
func (m *GPUMemory) FD() int { return m.fd }

// Number tells the allocation from all others, those before and after it at the same address included.
func (m *GPUMemory) Number() uint64 { return m.inode }

// NoPeer has devices refuse to register the memory by its address, as the kernel does without peermem.
func (m *GPUMemory) NoPeer() {
	m.fabric.mu.Lock()
	defer m.fabric.mu.Unlock()
	m.noPeer = true
}

// Free frees the memory. What devices do with it from then on reaches nothing.
func (m *GPUMemory) Free() error {
	f := m.fabric
	f.mu.Lock()
	f.gpus = slices.DeleteFunc(f.gpus, func(o *GPUMemory) bool { return o == m })
	for _, d := range f.devices {
		d.settle()
		for _, r := range d.byKey {
			if r.gpu == m {
				r.gone = true
			}
		}
	}
	f.mu.Unlock()
	return m.unmap()
}

func (m *GPUMemory) unmap() error {
	var errs []error
	if m.device != nil {
		errs = append(errs, unmap(m.device))
	}
	if m.bytes != nil {
		errs = append(errs, unix.Munmap(m.bytes))
	}
	if m.fd >= 0 {
		errs = append(errs, unix.Close(m.fd))
	}
	return errors.Join(errs...)
}

// within returns the readable bytes of a span of the memory's addresses, or false if the span lies elsewhere.
func (m *GPUMemory) within(s span) (span, bool) {
	at := uint64(ibv.AddrOf(&m.device[0]))
	if s.addr < at || s.addr+s.length > at+uint64(len(m.device)) {
		return s, false
	}
	return span{uint64(ibv.AddrOf(&m.bytes[0])) + s.addr - at, s.length}, true
}

// gpuAt returns the GPU memory at an address and its readable bytes, or nil where the memory is the host's.
// Preconditions: f.mu is locked.
func (f *Fabric) gpuAt(s span) (*GPUMemory, span, syscall.Errno) {
	for _, m := range f.gpus {
		if to, ok := m.within(s); ok {
			if m.noPeer {
				return nil, s, syscall.EFAULT
			}
			return m, to, 0
		}
	}
	return nil, s, 0
}

// gpuOf returns the GPU memory of a DMA-BUF and its readable bytes.
// Preconditions: f.mu is locked.
func (f *Fabric) gpuOf(fd int, offset, length uint64) (*GPUMemory, span, syscall.Errno) {
	inode, err := inodeOf(fd)
	if err != nil {
		return nil, span{}, syscall.EBADF
	}
	for _, m := range f.gpus {
		if m.inode != inode {
			continue
		}
		if n := uint64(len(m.bytes)); offset > n || length > n-offset {
			return nil, span{}, syscall.EINVAL
		}
		return m, span{uint64(ibv.AddrOf(&m.bytes[0])) + offset, length}, 0
	}
	return nil, span{}, syscall.EINVAL
}

// ofGPU reports whether bytes are a GPU's.
// Preconditions: f.mu is locked.
func (f *Fabric) ofGPU(b []byte) *GPUMemory {
	if len(b) == 0 {
		return nil
	}
	for _, m := range f.gpus {
		if at, base := ibv.AddrOf(&b[0]), ibv.AddrOf(&m.bytes[0]); at >= base && at < base+uintptr(len(m.bytes)) {
			return m
		}
	}
	return nil
}

// write writes to memory: at once to the host's, and after a while to a GPU's.
// Preconditions: f.mu is locked.
func (d *Device) write(to, data []byte) {
	if len(data) == 0 || d.fabric.ofGPU(to) == nil {
		copy(to, data)
		return
	}
	d.lastPosted++
	number := d.lastPosted
	d.posted = append(d.posted, posted{number, to, slices.Clone(data)})
	d.fabric.after(d.events, d.events.Between(0, onTheWay), "a write reaches the GPU", func() { d.settleTo(number) })
}

// read is called before the device reads memory: a GPU's answer comes behind what was written to it.
// Preconditions: f.mu is locked.
func (d *Device) read(from []byte) {
	if len(d.posted) > 0 && d.fabric.ofGPU(from) != nil {
		d.settle()
	}
}

// settle carries all writes to GPU memory out that are on the way.
// Preconditions: f.mu is locked.
func (d *Device) settle() { d.settleTo(d.lastPosted) }

// settleTo carries the write of a number out, and those before it.
// Preconditions: f.mu is locked.
func (d *Device) settleTo(number uint64) {
	for len(d.posted) > 0 && d.posted[0].number <= number {
		copy(d.posted[0].to, d.posted[0].data)
		d.posted = d.posted[1:]
	}
}

// GPUNumber returns the number of the allocation that an address lies in, as CUDA does.
func (f *Fabric) GPUNumber(addr uintptr) (number uint64, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.gpus {
		if _, ok := m.within(span{uint64(addr), 1}); ok {
			return m.inode, true
		}
	}
	return 0, false
}

// Settle makes all that adapters of a node have written to GPU memory visible there, as CUDA can.
func (f *Fabric) Settle(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.devices {
		if d.node == node {
			d.settle()
		}
	}
}
