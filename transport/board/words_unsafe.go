package board

// This file isolates the memory layout of a board. capi/board.h has the same
// layout.

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"ncclmesh/ibv"
)

const (
	Requests = 256 // requests of a connection that can be outstanding
	MaxSizes = 8   // messages of one request

	MaxSources = 8 // completion queues of a connection
)

// Words is the memory of a board. A generation counts the uses of a request slot, from 1, and is never used
// again; a request's handle contains its lower bits.
type Words struct {
	_ structs.HostLayout

	// Written by Go.
	Comm     atomic.Uint64 // handle of the connection, 0 when it has none
	Disabled atomic.Uint64 // not 0: C passes every call to Go
	Polls    atomic.Uint64 // number of polls of the connection
	Head     atomic.Uint64 // sequence of the grant that the next send needs
	Ring     atomic.Uint64 // address of the grant ring; 0 at a receiver, and if the board is disabled

	Sources atomic.Uint64 // number of entries of Source; 0: C polls no queue
	_       [16]byte

	// Written by C.
	GrantMisses atomic.Uint64 // sends that found no grant
	QueuePolls  atomic.Uint64 // times that C has polled the completion queues
	_           [48]byte

	Source [MaxSources]atomic.Uint64 // written by Go: address of each Source

	Answers   [Requests]Answer
	Consumers [Requests]Consumer
}

// Answer is the result of a request, written by Go.
type Answer struct {
	_     structs.HostLayout
	State atomic.Uint64    // twice the generation, plus 1 when the request is done; 0 when it is not outstanding
	N     uint32           // number of messages
	Sizes [MaxSizes]uint32 // bytes of each
	_     [20]byte
}

// Consumer holds the words of a request that C writes.
type Consumer struct {
	_        structs.HostLayout
	Taken    atomic.Uint64 // generation whose result C has returned
	LastPoll atomic.Uint64 // value of Polls when NCCL was last told "not done"
}

const size = int(unsafe.Sizeof(Words{}))

// Each Answer fills one cache line.
const _ = uint(64-unsafe.Sizeof(Answer{})) + uint(unsafe.Sizeof(Answer{})-64)

// wordsOf returns the board in m.
func wordsOf(m *ibv.Memory) *Words { return &ibv.Carve[Words](m, 1)[0] }

// Addr returns the board's address.
func (w *Words) Addr() uintptr { return uintptr(unsafe.Pointer(w)) }
