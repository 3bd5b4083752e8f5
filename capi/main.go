package main

// #include "plugin.h"
// #cgo CFLAGS: -std=gnu11
// #cgo LDFLAGS: -ldl
import "C"

import (
	"runtime"
	"runtime/debug"

	"ncclmesh/ncclnet"
)

var plugin = ncclnet.New(ncclnet.NewProcess(ncclnet.Host{
	Getenv: getenv, Environ: environ, PublishBoard: publishBoard, UnpublishBoard: unpublishBoard,
	StartEvent: startEvent, StopEvent: stopEvent,
}))

const (
	// minProcs: a thread of NCCL that is inside Go holds a P, and keeps it for a
	// while after it left. With fewer than there are threads, calls wait for
	// milliseconds.
	minProcs = 32

	// memoryLimit stands in for the garbage collector's usual pace: nothing
	// allocates steadily, and what set-ups and closes leave behind package
	// transport collects when no data moves. Only where data moves without a
	// pause for very many set-ups does the limit start a collection beside it.
	memoryLimit = 256 << 20
)

func init() {
	runtime.GOMAXPROCS(max(minProcs, runtime.GOMAXPROCS(0)))
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	addr, bits, gate := ncclnet.ForkTable()
	C.mesh_fork_table(C.uintptr_t(addr), C.int(bits), C.uintptr_t(gate))
}

// caught ends a panic at the boundary, and the connection, if it is one or one's
// request, that the call was about. It is deferred by every export.
func caught(call string, h C.uintptr_t, r *C.ncclResult_t) {
	if v := recover(); v != nil {
		*r = C.ncclResult_t(plugin.Panicked(call, ncclnet.Handle(h), v, debug.Stack()))
	}
}

func main() {}
