package main

// #include "library.h"
import "C"

import (
	"fmt"
	"slices"
	"time"

	"ncclmesh/comm"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/onesided"
)

// timeout converts a time-out of C.
func timeout(milliseconds C.int64_t) time.Duration {
	const longest = 1 << 43 // milliseconds, below the largest Duration
	if milliseconds < 0 {
		return comm.Forever
	}
	return time.Duration(min(milliseconds, longest)) * time.Millisecond
}

// region converts memory to register.
func region(r *C.struct_mesh_region) comm.Region {
	g := comm.Region{Kind: lane.HostMemory, Addr: uintptr(r.address), Length: uint64(r.size)}
	if r.kind != C.ncclmeshHostMemory {
		g.Kind = lane.MemoryKind(r.kind)
	}
	if r.dma_buf >= 0 {
		g.DMABuf = &comm.DMABuf{FD: int(r.dma_buf), Offset: uint64(r.offset)}
	}
	return g
}

// on calls f with the object of a number.
func on[T any](objects *table[T], number C.uint64_t, text *C.char, f func(*T) error) C.int {
	return guarded(text, func() error {
		o, err := objects.get(uint64(number))
		if err != nil {
			return err
		}
		return f(o)
	})
}

//export meshDestroy
func meshDestroy(number C.uint64_t, text *C.char) C.int {
	return guarded(text, func() error {
		c, err := comms.take(uint64(number))
		if err != nil {
			return err
		}
		err = c.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, d := range c.connections {
			_, _ = connections.take(d.number) // it is there
		}
		for _, n := range c.buffers {
			_, _ = buffers.take(n) // it is there
		}
		c.release()
		return err
	})
}

// describe returns the connections as C has them.
func (c *communicator) describe() []*described {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.Connections()
	for _, x := range all[len(c.connections):] {
		d := &described{Connection: x, number: connections.put(x)}
		d.layout = newConn(x, d.number)
		c.connections = append(c.connections, d)
	}
	return slices.Clone(c.connections)
}

//export meshRank
func meshRank(number C.uint64_t, rank, size *C.int, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error {
		*rank, *size = C.int(c.Rank()), C.int(c.Size())
		return nil
	})
}

//export meshSetTimeout
func meshSetTimeout(milliseconds C.int64_t, text *C.char) C.int {
	return guarded(text, func() error {
		if milliseconds <= 0 {
			return fmt.Errorf("%w: a time-out of %d ms, want more than 0", comm.ErrArgument, milliseconds)
		}
		return process.SetBootstrapTimeout(timeout(milliseconds))
	})
}

//export meshBarrier
func meshBarrier(number C.uint64_t, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error { return c.Barrier() })
}

//export meshConnect
func meshConnect(number C.uint64_t, rank, tag C.int, r *C.struct_mesh_region, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error { return c.Connect(int(rank), int(tag), region(r)) })
}

//export meshSetup
func meshSetup(number C.uint64_t, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error { return c.Setup() })
}

//export meshPut
func meshPut(number, dst, src, size C.uint64_t, text *C.char) C.int {
	return on(&connections, number, text, func(x *comm.Connection) error { return x.Put(uint64(dst), uint64(src), uint64(size)) })
}

//export meshSignal
func meshSignal(number C.uint64_t, text *C.char) C.int {
	return on(&connections, number, text, (*comm.Connection).Signal)
}

//export meshPutSignal
func meshPutSignal(number, dst, src, size C.uint64_t, text *C.char) C.int {
	return on(&connections, number, text, func(x *comm.Connection) error { return x.PutWithSignal(uint64(dst), uint64(src), uint64(size)) })
}

//export meshGet
func meshGet(number, dst, src, size C.uint64_t, text *C.char) C.int {
	return on(&connections, number, text, func(x *comm.Connection) error { return x.Get(uint64(dst), uint64(src), uint64(size)) })
}

//export meshFlush
func meshFlush(number C.uint64_t, limit C.int64_t, text *C.char) C.int {
	return on(&connections, number, text, func(x *comm.Connection) error { return x.Flush(timeout(limit)) })
}

//export meshWait
func meshWait(number C.uint64_t, limit C.int64_t, text *C.char) C.int {
	return on(&connections, number, text, func(x *comm.Connection) error { return x.Wait(timeout(limit)) })
}

//export meshIncrementEpoch
func meshIncrementEpoch(number C.uint64_t, text *C.char) C.int {
	return on(&connections, number, text, func(x *comm.Connection) error {
		x.IncrementEpoch()
		return nil
	})
}

//export meshRegister
func meshRegister(number C.uint64_t, r *C.struct_mesh_region, registered *C.uint64_t, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error {
		b, err := c.Register(region(r))
		if err != nil {
			return err
		}
		n := buffers.put(&buffer{b, c})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.buffers = append(c.buffers, n)
		*registered = C.uint64_t(n)
		return nil
	})
}

//export meshDeregister
func meshDeregister(number C.uint64_t, text *C.char) C.int {
	return guarded(text, func() error {
		b, err := buffers.take(uint64(number))
		if err != nil {
			return err
		}
		c := b.of
		c.mu.Lock()
		c.buffers = slices.DeleteFunc(c.buffers, func(n uint64) bool { return n == uint64(number) })
		c.mu.Unlock()
		return b.Deregister()
	})
}

//export meshWrite
func meshWrite(dst C.uint64_t, rank C.int, dstOffset, src, srcOffset, size C.uint64_t, text *C.char) C.int {
	return on(&buffers, dst, text, func(to *buffer) error {
		return onOther(src, to, func(from *buffer) error {
			return to.Write(int(rank), uint64(dstOffset), from.Buffer, uint64(srcOffset), uint64(size))
		})
	})
}

//export meshRead
func meshRead(src C.uint64_t, rank C.int, srcOffset, dst, dstOffset, size C.uint64_t, text *C.char) C.int {
	return on(&buffers, src, text, func(from *buffer) error {
		return onOther(dst, from, func(to *buffer) error {
			return from.Read(int(rank), uint64(srcOffset), to.Buffer, uint64(dstOffset), uint64(size))
		})
	})
}

// onOther calls f with another buffer of the same communicator.
func onOther(number C.uint64_t, one *buffer, f func(other *buffer) error) error {
	other, err := buffers.get(uint64(number))
	if err != nil {
		return err
	}
	if other.of != one.of {
		return fmt.Errorf("%w: the two buffers are of different communicators", comm.ErrArgument)
	}
	return f(other)
}

//export meshSignalWord
func meshSignalWord(number C.uint64_t, rank C.int, offset C.uint64_t, op C.int, value C.uint64_t, text *C.char) C.int {
	return on(&buffers, number, text, func(b *buffer) error {
		return b.Signal(int(rank), uint64(offset), onesided.SignalOp(op), uint64(value))
	})
}

//export meshLoadWord
func meshLoadWord(number, offset C.uint64_t, value *C.uint64_t, text *C.char) C.int {
	return on(&buffers, number, text, func(b *buffer) error {
		v, err := b.Load(uint64(offset))
		if err == nil {
			*value = C.uint64_t(v)
		}
		return err
	})
}

//export meshWaitWord
func meshWaitWord(number, offset, value C.uint64_t, limit C.int64_t, text *C.char) C.int {
	return on(&buffers, number, text, func(b *buffer) error { return b.Wait(uint64(offset), uint64(value), timeout(limit)) })
}

//export meshFlushRank
func meshFlushRank(number C.uint64_t, rank C.int, limit C.int64_t, text *C.char) C.int {
	return on(&buffers, number, text, func(b *buffer) error { return b.Flush(int(rank), timeout(limit)) })
}

//export meshLaunch
func meshLaunch(number C.uint64_t, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error { return c.LaunchProxies() })
}

//export meshStop
func meshStop(number C.uint64_t, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error { return c.StopProxies() })
}

//export meshFlushBeforeExit
func meshFlushBeforeExit() {
	_ = process.Guarded(func() error { // which logs a panic
		process.FlushBeforeExit()
		return nil
	})
}
