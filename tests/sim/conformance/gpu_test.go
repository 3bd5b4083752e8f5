package conformance

import (
	"errors"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"ncclmesh/ibv"
)

// A gpuMemory is memory that the processor cannot touch at its address, where programs have it.
type gpuMemory struct {
	addr  uint64
	bytes []byte // what the GPU sees
	fd    int    // its DMA-BUF
	free  func() error
}

// newGPU returns GPU memory of the model. Its devices refuse it by its address, as without peermem.
func (m *model) newGPU(n int) (gpuMemory, error) {
	g, err := m.fabric.NewGPUMemory(n)
	if err != nil {
		return gpuMemory{}, err
	}
	g.NoPeer()
	return gpuMemory{uint64(g.Addr()), g.Bytes(), g.FD(), g.Free}, nil
}

// newGPU returns memory that the C library takes for a GPU's: its DMA-BUFs are memfds. What adapters write there shows when they read
// there, and until mend not before.
func (f fake) newGPU(n int) (gpuMemory, error) {
	f.inject("late", "time=1000s")
	fd, err := unix.MemfdCreate("GPU memory", unix.MFD_CLOEXEC)
	if err != nil {
		return gpuMemory{}, err
	}
	err = unix.Ftruncate(fd, int64(n))
	untouchable, err1 := unix.Mmap(fd, 0, n, unix.PROT_NONE, unix.MAP_SHARED)
	bytes, err2 := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err := errors.Join(err, err1, err2); err != nil {
		return gpuMemory{}, err
	}
	return gpuMemory{uint64(ibv.AddrOf(&untouchable[0])), bytes, fd, func() error {
		return errors.Join(unix.Munmap(untouchable), unix.Munmap(bytes), unix.Close(fd))
	}}, nil
}

const page = 4096

// withGPU makes a row of what happens between two ends, the second of which has GPU memory.
func withGPU(name string, f func(a, b *end, g gpuMemory), wishes ...wish) row {
	return on(name, func(a, b *end) {
		g, err := b.w.faults.newGPU(16 * page)
		b.w.must(err)
		f(a, b, g)
		b.w.must(g.free())
	}, wishes...)
}

// loopback connects an end's queue pair with itself.
func (e *end) loopback() {
	e.w.Helper()
	e.peer = e
	for _, s := range []uint32{initS, rtr, rts} {
		e.w.must(e.to(s))
	}
}

// read has an end read a byte of GPU memory into its own.
func (e *end) read(id int, g gpuMemory, key uint32) {
	e.w.Helper()
	wr := e.send(id, opRead, 0, 1, 0, signaled)
	wr.RemoteAddr, wr.RKey = g.addr, key
	e.posted(wr)
}

// gpuRows are about GPU memory.
var gpuRows = []row{
	withGPU("what is refused of a DMA-BUF", func(_, b *end, g gpuMemory) {
		null, err := os.Open(os.DevNull)
		b.w.must(err)
		defer null.Close()
		for _, tt := range []struct {
			name                 string
			offset, length, iova uint64
			fd                   int
			access               uint32
			want                 error
		}{
			{"a descriptor of nothing, as programs ask whether any is taken", 0, 0, 0, -1, 0, syscall.EBADF},
			{"a file", 0, page, 0, int(null.Fd()), all, syscall.EINVAL},
			{"other places in a page", 8, page, 16, g.fd, all, syscall.EINVAL},
			{"nothing of it", 0, 0, 0, g.fd, all, syscall.EINVAL},
			{"beyond the end", page, 16 * page, 0, g.fd, all, syscall.EINVAL},
			{"from the end on", 16 * page, page, 0, g.fd, all, syscall.EINVAL},
			{"a length that wraps", page, math.MaxUint64 - 7, 0, g.fd, all, syscall.EINVAL},
			{"written by peers, and not by itself", 0, page, 0, g.fd, ibv.IBV_ACCESS_REMOTE_WRITE, syscall.EINVAL},
		} {
			mr, err := b.pd.RegDmaBufMR(tt.offset, tt.length, tt.iova, tt.fd, tt.access)
			if !errors.Is(err, tt.want) {
				b.w.Errorf("%s: %v, want %v", tt.name, err, tt.want)
			}
			if err == nil {
				b.w.must(mr.Close())
			}
		}
	}),
	withGPU("memory that the processor cannot touch is not registered by its address", func(_, b *end, g gpuMemory) {
		if mr, err := b.pd.RegMR(uintptr(g.addr), page, all); !errors.Is(err, syscall.EFAULT) {
			b.w.Errorf("%v, want EFAULT", err)
			if err == nil {
				b.w.must(mr.Close())
			}
		}
	}),
	withGPU("a GPU sees what was written behind a read of the device that wrote", func(a, b *end, g gpuMemory) {
		fd, err := unix.Dup(g.fd)
		b.w.must(err)
		mr, err := b.pd.RegDmaBufMR(page+24, 4*page, g.addr+page+24, fd, all)
		b.w.must(err, unix.Close(fd)) // the region needs it no more
		sent := a.fill(0, 3*page, 7)
		wr := a.send(1, opWrite, 0, len(sent), 0, signaled)
		wr.RemoteAddr, wr.RKey = g.addr+page+100, mr.RKey()
		a.posted(wr)
		a.want(1, ok)
		own := newEnd(b.w, "rdma1", wish{fresh: true})
		own.loopback()
		key, err := own.pd.RegDmaBufMR(0, 16*page, g.addr, g.fd, all)
		b.w.must(err)
		own.read(2, g, key.RKey())
		own.want(2, ok)
		same(a.w, sent, g.bytes[page+100:page+100+len(sent)])
		if g.bytes[page+99] != 0 || g.bytes[page+100+len(sent)] != 0 {
			a.w.Error("memory beside the message was written")
		}
		wr = a.send(3, opWrite, 0, 1, 0, signaled)
		wr.RemoteAddr, wr.RKey = g.addr+page+23, mr.RKey() // before the region
		a.posted(wr)
		a.want(3, ibv.IBV_WC_REM_ACCESS_ERR)
		b.w.must(mr.Close(), key.Close())
		own.close()
	}),
	withGPU("a queue pair connected to itself needs the port", func(_, b *end, g gpuMemory) {
		own := newEnd(b.w, "rdma1", wish{fresh: true, timeout: 1, retry: 1})
		own.loopback()
		mr, err := own.pd.RegDmaBufMR(0, page, g.addr, g.fd, all)
		b.w.must(err)
		own.read(1, g, mr.RKey())
		own.want(1, ok)
		b.w.faults.unplug()
		own.read(2, g, mr.RKey())
		own.want(2, ibv.IBV_WC_RETRY_EXC_ERR)
		b.w.must(mr.Close())
		own.close()
		b.w.faults.mend()
	}),
}
