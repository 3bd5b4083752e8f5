package conn_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ncclmesh/tests/sim/adapter"
	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// knowsGPU has a transport know the allocations of GPU memory.
func knowsGPU(t *testing.T) func(*transport.Options) {
	return func(o *transport.Options) { o.GPUBuffer = transporttest.WorldOf(t).Fabric.GPUNumber }
}

// registrar registers GPU memory, by its address or by its DMA-BUF.
type registrar interface {
	RegMR(kind lane.MemoryKind, addr, length uintptr) (*lane.Region, error)
	RegDmaBufMR(kind lane.MemoryKind, addr, length uintptr, offset uint64, fd int) (*lane.Region, error)
}

// registerGPU registers a GPU's memory from an offset on, as NCCL does.
func registerGPU(t *testing.T, c registrar, m *adapter.GPUMemory, from int, dmaBuf bool) *lane.Region {
	t.Helper()
	addr, length := m.Addr()+uintptr(from), uintptr(len(m.Bytes())-from)
	if !dmaBuf {
		r, err := c.RegMR(lane.GPUMemory, addr, length)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	fd, err := syscall.Dup(m.FD())
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.RegDmaBufMR(lane.GPUMemory, addr, length, 0, fd)
	if err := errors.Join(err, syscall.Close(fd)); err != nil {
		t.Fatal(err)
	}
	return r
}

// flush makes what has arrived visible to the GPU.
func flush(t *testing.T, r *conn.Receiver, b conn.Buffer) {
	t.Helper()
	f, err := r.Iflush(b)
	if err != nil {
		t.Fatal(err)
	}
	if f != nil {
		flushed(t, f)
	}
}

func flushed(t *testing.T, f *conn.Flush) {
	t.Helper()
	transporttest.Await(t, "a flush", func() bool {
		done, err := f.Test(nil)
		if err != nil {
			t.Fatal(err)
		}
		return done
	})
}

// Messages of every size go from GPU memory to GPU memory, over queue pairs and through relays, from and to addresses inside
// a page. After a flush the receiver's GPU sees them.
func TestGPUMemory(t *testing.T) {
	kinds := map[string][]lane.Kind{
		"queue pairs": {lane.Verbs, lane.Verbs},
		"circuits":    {lane.Circuit},
		"both":        {lane.Verbs, lane.Circuit},
	}
	for name, lanes := range kinds {
		for _, dmaBuf := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, DMA-BUF %v", name, dmaBuf), transporttest.Simulated(func(t *testing.T) {
				a, b := transporttest.New(t, knowsGPU(t)), transporttest.New(t, knowsGPU(t))
				s, r := transporttest.ConnectThrough(t, a, b, transporttest.NewCircuits(t, 2), lanes...)
				sizes := []int{0, 1, 2047, 2048, 2049, 64 << 10, 8, 1<<20 + 1, 100, 131457}
				const room, from = 1<<20 + 4096, 24
				sm, rm := transporttest.GPUMemory(t, room), transporttest.GPUMemory(t, len(sizes)*room)
				transporttest.Fill(sm.Bytes(), 7)
				sg, rg := registerGPU(t, s, sm, from, dmaBuf), registerGPU(t, r, rm, from, dmaBuf)
				for round := range 3 {
					clear(rm.Bytes())
					var all []*conn.Request
					for i, size := range sizes {
						all = append(all, transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr() + uintptr(from+i*room), Size: size + 100, Region: rg}))
					}
					for _, size := range sizes {
						all = append(all, isendGPU(t, s, sm.Addr()+from, size, sg))
					}
					transporttest.Both(t, "all messages", all...)
					flush(t, r, conn.Buffer{Addr: rm.Addr() + from, Size: 1, Region: rg})
					for i, size := range sizes {
						in := rm.Bytes()[from+i*room:]
						if !bytes.Equal(in[:size], sm.Bytes()[from:from+size]) || !bytes.Equal(in[size:size+100], make([]byte, 100)) {
							t.Errorf("round %d: a message of %d bytes differs", round, size)
						}
					}
				}
				transporttest.CloseBoth(t, s, r)
			}))
		}
	}
}

func isendGPU(t *testing.T, s *conn.Sender, addr uintptr, size int, g *lane.Region) (q *conn.Request) {
	t.Helper()
	transporttest.Await(t, "a grant", func() bool {
		var err error
		if q, err = s.Isend(addr, size, 0, g); err != nil {
			t.Fatal(err)
		}
		return q != nil
	})
	return q
}

// pairGPU is a connection over two queue pairs with GPU memory at both ends.
type pairGPU struct {
	t      *testing.T
	s      *conn.Sender
	r      *conn.Receiver
	sm, rm *adapter.GPUMemory
	sg, rg *lane.Region
}

func newPairGPU(t *testing.T, size int, change ...func(*transport.Options)) *pairGPU {
	t.Helper()
	change = append(change, knowsGPU(t))
	p := &pairGPU{t: t, sm: transporttest.GPUMemory(t, size), rm: transporttest.GPUMemory(t, size)}
	p.s, p.r = transporttest.Connect(t, transporttest.New(t, change...), transporttest.New(t, change...))
	transporttest.Fill(p.sm.Bytes(), 3)
	p.sg, p.rg = registerGPU(t, p.s, p.sm, 0, false), registerGPU(t, p.r, p.rm, 0, false)
	return p
}

// send sends a message, which has arrived when it returns.
func (p *pairGPU) send(size int) {
	p.t.Helper()
	rq := transporttest.Irecv(p.t, p.r, p.buffer(size))
	transporttest.Both(p.t, "a message", rq, isendGPU(p.t, p.s, p.sm.Addr(), size, p.sg))
}

func (p *pairGPU) buffer(size int) conn.Buffer {
	return conn.Buffer{Addr: p.rm.Addr(), Size: size, Region: p.rg}
}

// arrived reports whether the GPU sees a message.
func (p *pairGPU) arrived(size int) bool {
	return bytes.Equal(p.sm.Bytes()[:size], p.rm.Bytes()[:size])
}

// Without a flush the GPU does not see at once what has arrived; with one it does. Flushes have nothing to do for host memory,
// for no bytes, and where all is visible; they may overlap; and they go on after the peer has closed.
func TestFlush(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const size = 256 << 10
		p := newPairGPU(t, size)
		hm, _ := transporttest.Memory(t, 64)
		host := transporttest.Register(t, p.r, hm)
		p.send(size)
		if p.arrived(size) {
			t.Error("the GPU sees the message before a flush: the test would find nothing")
		}
		for _, b := range []conn.Buffer{{Addr: hm.Addr(), Size: 64, Region: host}, p.buffer(0)} {
			if f, err := p.r.Iflush(b); f != nil || err != nil {
				t.Errorf("flush of %d bytes of %v: %v, %v, want nothing to do", b.Size, b.Region.Memory, f, err)
			}
		}
		if f, err := p.r.Iflush(p.buffer(size + 1)); f != nil || !errors.Is(err, fault.ErrUsage) {
			t.Errorf("flush of more than is registered: %v, %v", f, err)
		}
		flush(t, p.r, p.buffer(size))
		if !p.arrived(size) {
			t.Error("the GPU does not see the message after a flush")
		}
		if f, err := p.r.Iflush(p.buffer(size)); f != nil || err != nil {
			t.Errorf("another flush: %v, %v, want nothing to do", f, err)
		}
		clear(p.rm.Bytes())
		var all []*conn.Flush
		for range 3 {
			p.send(size)
			f, err := p.r.Iflush(p.buffer(size))
			if f == nil || err != nil {
				t.Fatalf("flush: %v, %v", f, err)
			}
			all = append(all, f)
		}
		if err := p.s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			flushed(t, f)
		}
		if !p.arrived(size) {
			t.Error("the GPU does not see the last message")
		}
		if _, err := all[0].Test(nil); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("test of a flush that is done: %v", err)
		}
		if err := p.r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A device reads GPU memory to flush only if it has written there.
func TestFlushReadsWhereBytesCame(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		const size = 256 << 10
		p := newPairGPU(t, size)
		counts := transporttest.WorldOf(t).Fabric.Counts
		reads := func(size int) int {
			before := counts()["loopback"]
			p.send(size)
			flush(t, p.r, p.buffer(size))
			return counts()["loopback"] - before
		}
		one, two := reads(8), reads(size)
		if one == 0 || two != 2*one {
			t.Errorf("%d packets of READs for a message over one lane, %d for one over two", one, two)
		}
		transporttest.CloseBoth(t, p.s, p.r)
	})
}

// A device without a link cannot read its own memory: CUDA makes the data visible. If it cannot, the connection fails.
func TestFlushWithoutLink(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flush func() error
		want  string
	}{
		{"CUDA flushes", func() error { return nil }, ""},
		{"CUDA does not", func() error { return errors.New("CUDA error 801") }, "CUDA error 801"},
		{"no CUDA", nil, "cannot be made visible to the GPU"},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			const size = 256 << 10
			asked := 0
			p := newPairGPU(t, size, func(o *transport.Options) {
				if tt.flush != nil {
					o.FlushGPU = func() error { asked++; return tt.flush() }
				}
			})
			p.send(size)
			for _, c := range transporttest.WorldOf(t).Cables {
				c.Cut(true)
			}
			f, err := p.r.Iflush(p.buffer(size))
			if err != nil {
				t.Fatal(err)
			}
			transporttest.Await(t, "the flush", func() (done bool) {
				done, err = f.Test(nil)
				return done || err != nil
			})
			switch {
			case tt.want == "" && (err != nil || asked == 0):
				t.Errorf("flush: %v, CUDA was asked %d times", err, asked)
			case tt.want != "" && (!errors.Is(err, fault.ErrDevice) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("flush: %v, want %q", err, tt.want)
			}
			transporttest.CloseBoth(t, p.s, p.r)
		}))
	}
}

// If one device of a connection refuses GPU memory, the memory is registered nowhere.
func TestGPUMemoryRefused(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		p := newPairGPU(t, 4096)
		other := transporttest.GPUMemory(t, 4096)
		device := transporttest.WorldOf(t).Cables[1].Adapters[1].Device
		before := device.Regions()
		for _, verb := range []string{"reg_mr", "reg_dmabuf_mr"} {
			device.Refuse(verb, syscall.EFAULT, 0, 1)
			var err error
			if verb == "reg_mr" {
				_, err = p.r.RegMR(lane.GPUMemory, other.Addr(), 4096)
			} else {
				_, err = p.r.RegDmaBufMR(lane.GPUMemory, other.Addr(), 4096, 0, other.FD())
			}
			if !errors.Is(err, syscall.EFAULT) || !strings.Contains(err.Error(), "rdma1") || !strings.Contains(err.Error(), "4096 bytes of GPU memory") {
				t.Errorf("%s: %v", verb, err)
			}
		}
		if n := device.Regions(); n != before {
			t.Errorf("%d regions, %d before", n, before)
		}
		other.NoPeer()
		if _, err := p.s.RegMR(lane.GPUMemory, other.Addr(), 4096); !errors.Is(err, syscall.EFAULT) {
			t.Errorf("without peermem: %v", err)
		}
		transporttest.CloseBoth(t, p.s, p.r)
	})
}

// Ranges within a range that is held share its registration, in host memory and within one allocation of GPU memory.
func TestRegistrationsAreShared(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.Connect(t, transporttest.New(t, knowsGPU(t)), transporttest.New(t))
		device := transporttest.WorldOf(t).Cables[0].Adapters[0].Device
		hm, _ := transporttest.Memory(t, 1<<16)
		gm := transporttest.GPUMemory(t, 1<<16)
		for _, tt := range []struct {
			kind lane.MemoryKind
			addr uintptr
		}{{lane.HostMemory, hm.Addr()}, {lane.GPUMemory, gm.Addr()}} {
			var held []*lane.Region
			register := func(from, length uintptr, want int) {
				t.Helper()
				before := device.Regions()
				g, err := s.RegMR(tt.kind, tt.addr+from, length)
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, g)
				if n := device.Regions() - before; n != want {
					t.Errorf("%v: %d bytes at %d: %d new registrations, want %d", tt.kind, length, from, n, want)
				}
			}
			drop := func(i int) {
				t.Helper()
				if err := s.DeregMR(held[i]); err != nil {
					t.Fatal(err)
				}
			}
			register(4096, 8192, 1)
			register(4096, 8192, 0)
			register(4100, 100, 0)   // within
			register(12000, 1000, 1) // overlaps the end
			register(0, 65536, 1)    // holds all of them
			register(4096, 8193, 0)
			drop(0)
			drop(1)
			register(5000, 7000, 0) // within the last but one
			drop(4)
			drop(5)
			drop(6)
			register(4200, 100, 1) // nobody holds this any more, although the registration of 8192 bytes is there
			for _, i := range []int{2, 3, 7} {
				drop(i)
			}
			register(4096, 8192, 1)
			drop(8)
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// Memory that comes again at the same address is registered anew, so that devices reach what is there now.
func TestAddressComesAgain(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		s, r := transporttest.Connect(t, transporttest.New(t, knowsGPU(t)), transporttest.New(t, knowsGPU(t)))
		world := transporttest.WorldOf(t)
		sm, sb := transporttest.Memory(t, 4096)
		sg := transporttest.Register(t, s, sm)
		transporttest.Fill(sb, 1)
		addr := uintptr(0)
		for round := range 2 { // the first is still registered when the second comes
			m, err := world.Fabric.NewGPUMemoryAt(addr, 4096)
			if err != nil {
				t.Fatal(err)
			}
			addr = m.Addr()
			rg := registerGPU(t, r, m, 0, round == 0)
			b := conn.Buffer{Addr: m.Addr(), Size: 4096, Region: rg}
			rq := transporttest.Irecv(t, r, b)
			transporttest.Both(t, "a message", rq, transporttest.Isend(t, s, sm, 0, 4096, 0, sg))
			flush(t, r, b)
			if !bytes.Equal(m.Bytes(), sb) {
				t.Errorf("round %d: the memory that is there now did not get the message", round)
			}
			if err := m.Free(); err != nil {
				t.Fatal(err)
			}
		}
		transporttest.CloseBoth(t, s, r)
	})
}

// A device that joins later registers the GPU memory that is registered already, also by a DMA-BUF whose descriptor the owner
// has closed.
func TestDeviceJoinsWithGPUMemory(t *testing.T) {
	for _, dmaBuf := range []bool{false, true} {
		t.Run(fmt.Sprintf("DMA-BUF %v", dmaBuf), transporttest.Simulated(func(t *testing.T) {
			const size = 256 << 10
			world := transporttest.WorldOf(t)
			world.Cables[1].Cut(true)
			a, b := transporttest.New(t, knowsGPU(t)), transporttest.New(t, knowsGPU(t))
			s, r := transporttest.Connect(t, a, b)
			sm, rm := transporttest.GPUMemory(t, size), transporttest.GPUMemory(t, size)
			sg, rg := registerGPU(t, s, sm, 0, dmaBuf), registerGPU(t, r, rm, 0, dmaBuf)
			world.Cables[1].Cut(false)
			transporttest.Await(t, "the second lane", func() bool {
				s.Lock()
				defer s.Unlock()
				n := 0
				for _, l := range s.Lanes() {
					if l.InService() {
						n++
					}
				}
				return n == 2
			})
			transporttest.Fill(sm.Bytes(), 1)
			for range 4 {
				clear(rm.Bytes())
				b := conn.Buffer{Addr: rm.Addr(), Size: size, Region: rg}
				rq := transporttest.Irecv(t, r, b)
				transporttest.Both(t, "a message", rq, isendGPU(t, s, sm.Addr(), size, sg))
				flush(t, r, b)
				if !bytes.Equal(sm.Bytes(), rm.Bytes()) {
					t.Error("the message differs")
				}
				world.Sleep(time.Millisecond)
			}
			s.Lock()
			for _, l := range s.Lanes() {
				if l.Parts.Value() == 0 {
					t.Errorf("%v carried nothing", l)
				}
			}
			s.Unlock()
			transporttest.CloseBoth(t, s, r)
		}))
	}
}

// Circuits that share a port copy short messages into GPU memory by one queue pair, which has room for few READs. A circuit that
// had to wait for room goes on when the others need it no more.
func TestCircuitsShareLoopback(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		for _, c := range transporttest.WorldOf(t).Cables {
			c.Adapters[1].Device.AllowReads(1)
		}
		a, b := transporttest.New(t, knowsGPU(t)), transporttest.New(t, knowsGPU(t))
		s, r := transporttest.ConnectThrough(t, a, b, transporttest.NewCircuits(t, 2), lane.Circuit, lane.Circuit, lane.Circuit, lane.Circuit)
		const n, size, room = 200, 2048, 4096
		sm, rm := transporttest.GPUMemory(t, size), transporttest.GPUMemory(t, n*room)
		transporttest.Fill(sm.Bytes(), 3)
		sg, rg := registerGPU(t, s, sm, 0, false), registerGPU(t, r, rm, 0, false)
		for round := range 5 {
			clear(rm.Bytes())
			var all []*conn.Request
			for i := range n {
				all = append(all, transporttest.Irecv(t, r, conn.Buffer{Addr: rm.Addr() + uintptr(i*room), Size: size, Region: rg}))
			}
			for range n {
				all = append(all, isendGPU(t, s, sm.Addr(), size, sg))
			}
			transporttest.Both(t, "all messages", all...)
			flush(t, r, conn.Buffer{Addr: rm.Addr(), Size: 1, Region: rg})
			for i := range n {
				if !bytes.Equal(rm.Bytes()[i*room:][:size], sm.Bytes()) {
					t.Errorf("round %d: message %d differs", round, i)
				}
			}
		}
		s.Lock()
		for _, l := range s.Lanes() {
			if l.Parts.Value() == 0 {
				t.Errorf("%v carried nothing", l)
			}
		}
		s.Unlock()
		transporttest.CloseBoth(t, s, r)
	})
}
