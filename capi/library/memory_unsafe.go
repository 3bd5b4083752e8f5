// This file isolates C memory: texts, structs of connections, arrays of the caller, and memory that the library hands out. The
// functions that free say what must not be used any more.

package main

// #include <stdlib.h>
// #include "library.h"
import "C"

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"unsafe"

	"ncclmesh/capi/host"
	"ncclmesh/comm"
	"ncclmesh/comm/fifo"
	"ncclmesh/handshake"
)

// The layouts are equal in C and in Go.
const (
	_ = uint(C.NCCLMESH_UNIQUE_ID_BYTES-len(comm.ID{})) + uint(len(comm.ID{})-C.NCCLMESH_UNIQUE_ID_BYTES)
	_ = uint(C.NCCLMESH_FIFO_BYTES-fifo.Size) + uint(fifo.Size-C.NCCLMESH_FIFO_BYTES)
	_ = uint(C.sizeof_ncclmeshFifo-fifo.Size) + uint(fifo.Size-C.sizeof_ncclmeshFifo)
	_ = uint(C.NCCLMESH_FIFO_SLOTS-fifo.Slots) + uint(fifo.Slots-C.NCCLMESH_FIFO_SLOTS)
	_ = uint(C.ncclmeshTriggerPut-fifo.Put) + uint(fifo.Put-C.ncclmeshTriggerPut)
	_ = uint(C.ncclmeshTriggerSignal-fifo.Signal) + uint(fifo.Signal-C.ncclmeshTriggerSignal)
	_ = uint(C.ncclmeshTriggerFlush-fifo.Flush) + uint(fifo.Flush-C.ncclmeshTriggerFlush)
	_ = uint(C.ncclmeshNumResults-comm.NumResults) + uint(comm.NumResults-C.ncclmeshNumResults)
)

// log writes a line to the log handler.
func log(level slog.Level, text string) {
	to := C.int(C.ncclmeshLogDebug)
	switch {
	case level >= slog.LevelWarn:
		to = C.ncclmeshLogWarn
	case level >= slog.LevelInfo:
		to = C.ncclmeshLogInfo
	}
	c := C.CString(text)
	defer C.free(unsafe.Pointer(c))
	C.mesh_log(to, c)
}

// write writes a text, cut to size-1 bytes, and a final 0.
func write(to *C.char, size int, text string) {
	b := unsafe.Slice((*byte)(unsafe.Pointer(to)), size)
	b[copy(b[:size-1], text)] = 0
}

// result returns the result for an error, and writes the error's text.
func result(err error, text *C.char) C.int {
	if err == nil {
		return 0
	}
	write(text, C.MESH_TEXT, err.Error())
	return C.int(comm.ResultOf(err))
}

// guarded calls f, and returns its result, or that of a panic in it.
func guarded(text *C.char, f func() error) C.int { return result(process.Guarded(f), text) }

//export meshResultText
func meshResultText(r C.int) *C.char { return (*C.char)(host.Intern(comm.Result(r).String())) }

//export meshVersion
func meshVersion() *C.char { return (*C.char)(host.Intern(handshake.Build())) }

// newConn makes the struct of a connection.
func newConn(x *comm.Connection, number uint64) uintptr {
	c := (*C.ncclmeshConn)(C.calloc(1, C.sizeof_ncclmeshConn))
	local := x.Local()
	c.remoteRank, c.tag, c.handle = C.int(x.Remote()), C.int(x.Tag()), C.uint64_t(number)
	*(*uintptr)(unsafe.Pointer(&c.localBuffer)) = local.Addr
	c.localSize, c.remoteSize = C.uint64_t(local.Length), C.uint64_t(x.RemoteSize())
	*(*uintptr)(unsafe.Pointer(&c.epoch)) = x.EpochAddr()
	*(*uintptr)(unsafe.Pointer(&c.fifo)) = x.FIFO().Addr()
	return uintptr(unsafe.Pointer(c))
}

// newList makes an array of structs of connections.
func newList(all []*described) uintptr {
	list := C.calloc(C.size_t(max(len(all), 1)), C.size_t(unsafe.Sizeof(uintptr(0))))
	to := unsafe.Slice((*uintptr)(list), max(len(all), 1))
	for i, d := range all {
		to[i] = d.layout
	}
	return uintptr(list)
}

// release frees the structs and arrays of a communicator, which C must not use any more.
func (c *communicator) release() {
	for _, d := range c.connections {
		free(d.layout)
	}
	for _, l := range c.lists {
		free(l)
	}
}

func free(p uintptr) { C.mesh_free(C.uintptr_t(p)) }

// allocated is the memory that C has, by address.
var allocated struct {
	sync.Mutex
	list map[uintptr]*comm.Memory
}

//export meshAlloc
func meshAlloc(memory *C.uintptr_t, size C.size_t, text *C.char) C.int {
	return guarded(text, func() error {
		if size > 1<<62 {
			return fmt.Errorf("%w: memory of %d bytes", comm.ErrArgument, size)
		}
		m, err := comm.Alloc(int(size))
		if err != nil {
			return err
		}
		allocated.Lock()
		defer allocated.Unlock()
		if allocated.list == nil {
			allocated.list = map[uintptr]*comm.Memory{}
		}
		allocated.list[m.Addr()] = m
		*memory = C.uintptr_t(m.Addr())
		return nil
	})
}

//export meshFree
func meshFree(memory C.uintptr_t, text *C.char) C.int {
	return guarded(text, func() error {
		allocated.Lock()
		m := allocated.list[uintptr(memory)]
		delete(allocated.list, uintptr(memory))
		allocated.Unlock()
		if m == nil {
			return fmt.Errorf("%w: memory at %#x is not of ncclmeshAlloc, or was freed before", comm.ErrArgument, memory)
		}
		return m.Free()
	})
}

//export meshUniqueId
func meshUniqueId(id, text *C.char) C.int {
	return guarded(text, func() error {
		made, err := process.UniqueID()
		if err == nil {
			copy(unsafe.Slice((*byte)(unsafe.Pointer(id)), len(made)), made[:])
		}
		return err
	})
}

//export meshInitRank
func meshInitRank(number *C.uint64_t, nranks C.int, address *C.char, rank C.int, text *C.char) C.int {
	return guarded(text, func() error {
		c, err := process.InitRank(int(nranks), C.GoString(address), int(rank))
		return added(c, err, number)
	})
}

//export meshInitRankFromId
func meshInitRankFromId(number *C.uint64_t, nranks C.int, id *C.char, rank C.int, text *C.char) C.int {
	return guarded(text, func() error {
		c, err := process.InitRankFromID(int(nranks), *(*comm.ID)(unsafe.Pointer(id)), int(rank))
		return added(c, err, number)
	})
}

// added gives C the number of a new communicator.
func added(c *comm.Comm, err error, number *C.uint64_t) error {
	if err != nil {
		return err
	}
	*number = C.uint64_t(comms.put(&communicator{Comm: c}))
	return nil
}

//export meshAllGather
func meshAllGather(number C.uint64_t, data *C.char, size C.size_t, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error {
		if size > 1<<40 {
			return fmt.Errorf("%w: all-gather of %d bytes of each rank", comm.ErrArgument, size)
		}
		return c.AllGather(unsafe.Slice((*byte)(unsafe.Pointer(data)), int(size)*c.Size()))
	})
}

//export meshConnection
func meshConnection(number C.uint64_t, rank, tag C.int, conn **C.ncclmeshConn, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error {
		x, err := c.Connection(int(rank), int(tag))
		if err != nil {
			return err
		}
		for _, d := range c.describe() {
			if d.Connection == x {
				*(*uintptr)(unsafe.Pointer(conn)) = d.layout
				return nil
			}
		}
		return errors.New("the connection is not listed")
	})
}

//export meshConnections
func meshConnections(number C.uint64_t, conns ***C.ncclmeshConn, n *C.int, text *C.char) C.int {
	return on(&comms, number, text, func(c *communicator) error {
		all := c.describe()
		list := newList(all)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lists = append(c.lists, list)
		*(*uintptr)(unsafe.Pointer(conns)) = list
		*n = C.int(len(all))
		return nil
	})
}
