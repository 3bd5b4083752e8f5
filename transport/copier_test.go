package transport_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport"
	"ncclmesh/transport/copier"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// copying is a copier with GPU memory and host memory that it may copy between.
type copying struct {
	t        *testing.T
	c        *copier.Copier
	gpu      []byte
	gpuAt    uintptr
	host     []byte
	hostAt   uintptr
	gpuR     *copier.Region
	hostR    *copier.Region
	finished func()
}

const copySize = 64 << 10

func newCopying(t *testing.T) *copying {
	t.Helper()
	return newCopyingBy(t, transporttest.New(t).Copier())
}

func newCopyingBy(t *testing.T, c *copier.Copier) *copying {
	t.Helper()
	k := &copying{t: t, c: c}
	m, err := transporttest.WorldOf(t).Fabric.NewGPUMemory(copySize)
	if err != nil {
		t.Fatal(err)
	}
	hm, hb := transporttest.Memory(t, copySize)
	k.gpu, k.gpuAt, k.host, k.hostAt = m.Bytes(), m.Addr(), hb, hm.Addr()
	if k.gpuR, err = k.c.Register(lane.Memory{Kind: lane.GPUMemory, Addr: k.gpuAt, Length: copySize, DMABuf: &lane.DMABuf{FD: m.FD()}}); err != nil {
		t.Fatal(err)
	}
	if k.hostR, err = k.c.Register(lane.Memory{Addr: k.hostAt, Length: copySize}); err != nil {
		t.Fatal(err)
	}
	k.finished = func() {
		t.Helper()
		if err := errors.Join(k.gpuR.Close(), k.hostR.Close(), m.Free()); err != nil {
			t.Error(err)
		}
	}
	return k
}

// must fails the test unless a task was begun.
func (k *copying) must(n copier.Task, err error) copier.Task {
	k.t.Helper()
	if n == 0 || err != nil {
		k.t.Fatalf("task %d, %v", n, err)
	}
	return n
}

// wait waits for the end of a task.
func (k *copying) wait(n copier.Task) (err error) {
	k.t.Helper()
	transporttest.Await(k.t, "a task", func() (done bool) {
		k.c.Poll()
		done, err = k.c.Done(n)
		return done
	})
	return err
}

// rest polls for a while, as a process does.
func (k *copying) rest(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); transporttest.WorldOf(k.t).Sleep(10 * time.Millisecond) {
		k.c.Poll()
	}
}

func (k *copying) inGPU(at int) copier.Place {
	return copier.Place{Region: k.gpuR, Addr: k.gpuAt + uintptr(at)}
}
func (k *copying) inHost(at int) copier.Place {
	return copier.Place{Region: k.hostR, Addr: k.hostAt + uintptr(at)}
}

// add begins to add a value to a word of the GPU memory.
func (k *copying) add(at int, value uint64) (copier.Task, error) {
	return k.c.Change(copier.Change{Word: k.inGPU(at), Value: value})
}

func (k *copying) word(i int) uint64 { return binary.LittleEndian.Uint64(k.gpu[i:]) }

// Bytes are copied and words are changed in the order of the tasks, and the GPU sees it when the task is done.
func TestCopier(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		transporttest.Fill(k.host, 1)
		for _, size := range []uint64{0, 1, 4095, 4096, 4097, copySize - 8} {
			clear(k.gpu)
			if err := k.wait(k.must(k.c.Copy(k.inGPU(8), k.inHost(0), size, nil))); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(k.gpu[8:8+size], k.host[:size]) || !bytes.Equal(k.gpu[:8], make([]byte, 8)) {
				t.Errorf("a copy of %d bytes to the GPU differs", size)
			}
		}
		clear(k.host)
		if err := k.wait(k.must(k.c.Copy(k.inHost(0), k.inGPU(0), copySize, nil))); err != nil || !bytes.Equal(k.gpu, k.host) {
			t.Errorf("a copy from the GPU: %v, or it differs", err)
		}
		binary.LittleEndian.PutUint64(k.gpu[16:], 1<<40)
		var last copier.Task
		for i := range uint64(100) {
			last = k.must(k.add(16, i))
		}
		if err := k.wait(last); err != nil || k.word(16) != 1<<40+4950 {
			t.Errorf("after additions: %v, %d", err, k.word(16))
		}
		k.must(k.c.Copy(k.inGPU(32), k.inHost(0), 8, &copier.Change{Word: k.inGPU(16), Value: 7, Set: true}))
		if err := k.wait(k.must(k.add(16, 1))); err != nil || k.word(16) != 8 {
			t.Errorf("after a set and an addition: %v, %d", err, k.word(16))
		}
		transporttest.WorldOf(t).Cables[0].Cut(true) // the other adapter carries 4096 bytes at a time
		transporttest.Fill(k.host, 2)
		if err := k.wait(k.must(k.c.Copy(k.inGPU(3), k.inHost(0), copySize-3, nil))); err != nil || !bytes.Equal(k.gpu[3:], k.host[:copySize-3]) {
			t.Errorf("a copy in many parts: %v, or it differs", err)
		}
		k.finished()
	})
}

// Tasks that name other memory than was registered are refused, and so is one more than may be outstanding.
func TestCopierRefuses(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		for name, begin := range map[string]func() (copier.Task, error){
			"a copy beyond the end":      func() (copier.Task, error) { return k.c.Copy(k.inGPU(1), k.inHost(0), copySize, nil) },
			"a copy from before":         func() (copier.Task, error) { return k.c.Copy(k.inGPU(0), k.inHost(-8), 8, nil) },
			"a word that is not aligned": func() (copier.Task, error) { return k.add(4, 1) },
			"a word beyond the end":      func() (copier.Task, error) { return k.add(copySize, 1) },
		} {
			if n, err := begin(); n != 0 || !errors.Is(err, fault.ErrUsage) {
				t.Errorf("%s: task %d, %v", name, n, err)
			}
		}
		var last copier.Task
		for range copier.Most - 1 {
			last = k.must(k.add(0, 1))
		}
		if n, err := k.add(0, 1); n != 0 || err != nil {
			t.Errorf("one more: task %d, %v", n, err)
		}
		if err := k.wait(last); err != nil || k.word(0) != copier.Most-1 {
			t.Errorf("%v, %d", err, k.word(0))
		}
		other, _ := transporttest.Memory(t, 8)
		transporttest.WorldOf(t).Cables[1].Adapters[0].Device.Refuse("reg_mr", syscall.ENOMEM, 0, 1)
		if _, err := k.c.Register(lane.Memory{Addr: other.Addr(), Length: 8}); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("a registration that the second device refuses: %v", err)
		}
		k.finished()
	})
}

// An adapter whose port loses its link hands its tasks to the next one, which carries each out once. With a link it can be used
// again.
func TestCopierFailsOver(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		world := transporttest.WorldOf(t)
		sum, begun := uint64(0), uint64(0)
		for round := range 6 {
			cable := world.Cables[round%2]
			var last copier.Task
			for range 20 {
				begun++
				last = k.must(k.add(0, begun))
				sum += begun
			}
			for range round {
				k.c.Poll()
				world.Sleep(time.Microsecond)
			}
			cable.Cut(true)
			if err := k.wait(last); err != nil || k.word(0) != sum {
				t.Errorf("round %d: %v, the word is %d, want %d", round, err, k.word(0), sum)
			}
			cable.Cut(false)
			world.Sleep(5 * time.Second) // the port is looked at again
		}
		k.finished()
	})
}

// While no adapter has a link the tasks wait, also new ones, and are carried out once a port has one again.
func TestCopierWaitsForLink(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		world := transporttest.WorldOf(t)
		k.must(k.add(0, 1))
		cutAll(world, true)
		last := k.must(k.add(0, 2))
		k.rest(8 * time.Second) // less than NCCL_MESH_LANE_WAIT
		k.must(k.add(0, 4))
		if done, err := k.c.Done(last); done || err != nil {
			t.Errorf("without a link: done %v, %v", done, err)
		}
		last = k.must(k.c.Copy(k.inHost(0), k.inGPU(0), 8, nil))
		world.Cables[1].Cut(false)
		if err := k.wait(last); err != nil || k.word(0) != 7 || k.host[0] != 7 {
			t.Errorf("with a link again: %v, the word is %d, and %d where it was copied to", err, k.word(0), k.host[0])
		}
		k.finished()
	})
}

// Queue pairs that fail while their ports stay up are made again, each time.
func TestCopierRepairs(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		world := transporttest.WorldOf(t)
		for round := range uint64(5) {
			for _, c := range world.Cables {
				for _, qpn := range c.Adapters[0].Device.QueuePairs() {
					world.Fabric.Break(qpn)
				}
			}
			if err := k.wait(k.must(k.add(0, 1))); err != nil || k.word(0) != round+1 {
				t.Errorf("round %d: %v, the word is %d", round, err, k.word(0))
			}
		}
		k.finished()
	})
}

// cutAll cuts all cables, or repairs them.
func cutAll(w *transporttest.World, cut bool) {
	for _, c := range w.Cables {
		c.Cut(cut)
	}
}

// Tasks fail when no adapter has had a link for NCCL_MESH_LANE_WAIT, and later ones are carried out once a port has one again.
func TestCopierGivesUp(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		world := transporttest.WorldOf(t)
		cutAll(world, true)
		first, last := k.must(k.add(0, 1)), k.must(k.add(0, 2))
		err := k.wait(last)
		if !errors.Is(err, fault.ErrDevice) || !strings.Contains(fmt.Sprint(err), "(NCCL_MESH_LANE_WAIT); check the cables of its ports: ") {
			t.Errorf("without a link: %v", err)
		}
		if done, again := k.c.Done(first); !done || fmt.Sprint(again) != fmt.Sprint(err) {
			t.Errorf("the task before it: done %v, %v, want %v", done, again, err)
		}
		before := k.word(0)
		cutAll(world, false)
		k.rest(5 * time.Second)
		if err := k.wait(k.must(k.add(0, 4))); err != nil || k.word(0) != before+4 {
			t.Errorf("with a link again: %v, the word is %d, want %d", err, k.word(0), before+4)
		}
		if done, again := k.c.Done(first); !done || fmt.Sprint(again) != fmt.Sprint(err) {
			t.Errorf("the task that has failed is later done %v, with %v; want %v", done, again, err)
		}
		k.finished()
	})
}

// Memory may be deregistered while no adapter has a link. Tasks that name it fail, and the others wait on.
func TestCopierDropsTasks(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		world := transporttest.WorldOf(t)
		cutAll(world, true)
		k.must(k.add(0, 1))
		k.rest(3 * time.Second)
		copied := k.must(k.c.Copy(k.inHost(0), k.inGPU(0), 8, nil))
		last := k.must(k.add(0, 2))
		begun := time.Now()
		if err := k.hostR.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > time.Millisecond {
			t.Errorf("to deregister memory took %v", took)
		}
		if n, err := k.c.Copy(k.inHost(0), k.inGPU(0), 8, nil); n != 0 || !errors.Is(err, fault.ErrUsage) {
			t.Errorf("a copy to memory that was deregistered: task %d, %v", n, err)
		}
		world.Cables[0].Cut(false)
		if err := k.wait(last); err != nil || k.word(0) != 3 {
			t.Errorf("the other tasks: %v, the word is %d", err, k.word(0))
		}
		if done, err := k.c.Done(copied); !done || !errors.Is(err, fault.ErrUsage) {
			t.Errorf("a copy to memory that was deregistered later: done %v, %v", done, err)
		}
		k.finished()
	})
}

// A word is loaded with the value that the tasks before have made.
func TestCopierLoads(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		var into atomic.Uint64
		k.must(k.add(8, 1<<40))
		if err := k.wait(k.must(k.c.Load(k.inGPU(8), &into))); err != nil || into.Load() != 1<<40 {
			t.Errorf("%v, loaded %d", err, into.Load())
		}
		if n, err := k.c.Load(k.inGPU(copySize-4), &into); n != 0 || !errors.Is(err, fault.ErrUsage) {
			t.Errorf("a word beyond the end: task %d, %v", n, err)
		}
		transporttest.WorldOf(t).Cables[0].Cut(true) // the next adapter loads it
		if err := k.wait(k.must(k.c.Load(k.inGPU(0), &into))); err != nil || into.Load() != 0 {
			t.Errorf("by the other adapter: %v, loaded %d", err, into.Load())
		}
		k.finished()
	})
}

// An adapter without a queue pair to itself, because its port is down when memory is registered, is used once it has one.
func TestCopierOpensLater(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		world := transporttest.WorldOf(t)
		device := world.Cables[0].Adapters[0].Device
		c := transporttest.New(t).Copier()
		device.Refuse("create_qp", syscall.EIO, 0, 1<<30)
		k := newCopyingBy(t, c)
		if err := k.wait(k.must(k.add(0, 1))); err != nil || k.word(0) != 1 {
			t.Errorf("by the other adapter: %v, the word is %d", err, k.word(0))
		}
		device.Allow()
		world.Cables[0].Cut(true)
		k.rest(5 * time.Second)
		world.Cables[0].Cut(false)
		k.rest(5 * time.Second)
		world.Cables[1].Cut(true)
		if err := k.wait(k.must(k.add(0, 1))); err != nil || k.word(0) != 2 {
			t.Errorf("by the adapter that was down: %v, the word is %d", err, k.word(0))
		}
		k.finished()
	})
}

// Memory that a connection has registered as well is registered once with each device.
func TestCopierSharesRegistrations(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		world := transporttest.WorldOf(t)
		registrations := func() int { return world.Cables[0].Adapters[0].Device.Regions() }
		tr := transporttest.New(t, func(o *transport.Options) { o.GPUBuffer = world.Fabric.GPUNumber })
		k := newCopyingBy(t, tr.Copier())
		s, r := transporttest.Connect(t, tr, transporttest.New(t))
		before := registrations()
		gpu, err := s.RegMR(lane.GPUMemory, k.gpuAt, copySize)
		if err != nil {
			t.Fatal(err)
		}
		host, err := s.RegMR(lane.HostMemory, k.hostAt, copySize)
		if err != nil {
			t.Fatal(err)
		}
		if n := registrations(); n != before {
			t.Errorf("%d registrations, want %d", n, before)
		}
		if err := errors.Join(s.DeregMR(gpu), s.DeregMR(host)); err != nil {
			t.Error(err)
		}
		transporttest.CloseBoth(t, s, r)
		k.finished()
	})
}

// An adapter whose queue pair cannot be made again when its port has a link again gets one at a later change of the port.
func TestCopierRenewsLater(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		world := transporttest.WorldOf(t)
		first, second := world.Cables[0], world.Cables[1]
		outage := func(during, after func()) {
			first.Cut(true)
			world.Sleep(5 * time.Second) // the port is looked at again
			during()
			first.Cut(false)
			world.Sleep(5 * time.Second)
			after()
		}
		add := func() {
			before := k.word(0)
			if err := k.wait(k.must(k.add(0, 1))); err != nil || k.word(0) != before+1 {
				t.Fatalf("%v, the word is %d, want %d", err, k.word(0), before+1)
			}
		}
		device := first.Adapters[0].Device
		outage(func() {
			add()
			device.Refuse("create_qp", syscall.ENOMEM, 0, 1<<30)
		}, device.Allow)
		outage(func() {}, func() {})
		second.Cut(true)
		add()
		k.finished()
	})
}

// An adapter whose completions cannot be polled hands its tasks to the next one too.
func TestCopierWithoutCompletions(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) {
		k := newCopying(t)
		last := k.must(k.add(0, 1))
		device := transporttest.WorldOf(t).Cables[0].Adapters[0].Device
		device.Refuse("poll_cq", syscall.EIO, 0, 1<<30)
		if err := k.wait(last); err != nil || k.word(0) != 1 {
			t.Errorf("%v, the word is %d", err, k.word(0))
		}
		device.Allow()
		k.finished()
	})
}
