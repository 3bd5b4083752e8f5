package main

// #include "library.h"
// #cgo CFLAGS: -std=gnu11
import "C"

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"sync"

	"ncclmesh/capi/host"
	"ncclmesh/comm"
	"ncclmesh/transport"
)

// process is the transport of the process that has loaded the library.
var process = comm.NewProcess(comm.Host{
	Getenv: host.Getenv, Environ: host.Environ, Machine: transport.Machine{KeepGarbage: true}, GPU: comm.CUDA(), Log: log, Spins: spins,
	Lookup: func(ctx context.Context, name string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	},
})

const (
	// minProcs is the least number of Ps. A thread of the program that calls Go holds a P, and keeps it for a while after
	// the call. If there are fewer Ps than threads, calls wait for milliseconds.
	minProcs = 32

	// spins is how often a call that waits polls before its first pause: for some tens of microseconds, because the other side often
	// answers within that time.
	spins = 300
)

func init() {
	runtime.GOMAXPROCS(max(minProcs, runtime.GOMAXPROCS(0)))
}

// The objects that C has numbers of.
var (
	comms       = table[communicator]{kind: "communicator"}
	connections = table[comm.Connection]{kind: "connection"}
	buffers     = table[buffer]{kind: "buffer"}
)

// A communicator is a Comm, and what C has of it.
type communicator struct {
	*comm.Comm

	mu          sync.Mutex
	connections []*described // those that C has, in the order of Connections
	lists       []uintptr    // arrays of connections that C has
	buffers     []uint64     // numbers of the open buffers
}

// A described connection is one that C has a struct of.
type described struct {
	*comm.Connection
	number uint64
	layout uintptr // an ncclmeshConn
}

// A buffer is a registered buffer of a communicator.
type buffer struct {
	*comm.Buffer
	of *communicator
}

func main() {}
