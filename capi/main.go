package main

// #include "plugin.h"
// #cgo CFLAGS: -std=gnu11
// #cgo LDFLAGS: -ldl
import "C"

import (
	"runtime"
	"runtime/debug"

	"ncclmesh/capi/host"
	"ncclmesh/ncclnet"
)

var plugin = ncclnet.New(ncclnet.NewProcess(ncclnet.Host{
	Getenv: host.Getenv, Environ: host.Environ, GPU: ncclnet.CUDA(), PublishBoard: publishBoard, UnpublishBoard: unpublishBoard,
	StartEvent: startEvent, StopEvent: stopEvent,
}))

const (
	// minProcs is the least number of Ps. A thread of NCCL that calls Go holds a P, and keeps it for a
	// while after the call. If there are fewer Ps than threads, calls wait for
	// milliseconds.
	minProcs = 32

	// memoryLimit replaces the garbage collector's usual trigger. The data path does not
	// allocate, and package transport collects the garbage of set-ups and closes while no data
	// moves. The limit starts a collection during traffic only if data moves without a
	// pause for very many set-ups.
	memoryLimit = 256 << 20
)

func init() {
	runtime.GOMAXPROCS(max(minProcs, runtime.GOMAXPROCS(0)))
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
}

// caught recovers a panic in an exported function, sets the result to an internal error, and fails the
// connection that h names, or whose request it names. Every exported function defers it.
func caught(call string, h C.uintptr_t, r *C.ncclResult_t) {
	if v := recover(); v != nil {
		*r = C.ncclResult_t(plugin.Panicked(call, ncclnet.Handle(h), v, debug.Stack()))
	}
}

func main() {}
