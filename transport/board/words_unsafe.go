package board

// Isolates the words of a board, and where they lie for C: capi/board.h has the same
// layout.

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"ncclmesh/ibv"
)

const (
	Requests = 256 // of a connection that can be outstanding
	MaxSizes = 8   // messages of one request

	MaxSources = 8 // completion queues of a connection
)

// Words is a board. A generation counts the uses of a request, from 1, and never comes
// again: a request's handle has its lower bits.
type Words struct {
	_ structs.HostLayout

	// Go's.
	Comm     atomic.Uint64 // handle of the connection, 0 when it has none
	Disabled atomic.Uint64 // not 0: every call is Go's
	Polls    atomic.Uint64 // of the connection
	Head     atomic.Uint64 // sequence of the grant that the next send needs
	Ring     atomic.Uint64 // where grants come; 0 at a receiver, and where every call is Go's

	Sources atomic.Uint64 // how many of Source there are; 0: C looks at none
	_       [16]byte

	// C's.
	GrantMisses atomic.Uint64 // sends that found no grant
	EmptyPolls  atomic.Uint64 // at the completion queues, that found nothing
	_           [48]byte

	Source [MaxSources]atomic.Uint64 // Go's: where each lies

	Answers   [Requests]Answer
	Consumers [Requests]Consumer
}

// Answer is what Go says of a request.
type Answer struct {
	_     structs.HostLayout
	State atomic.Uint64    // twice the generation, and 1 when it is done; 0 when nothing is outstanding
	N     uint32           // messages
	Sizes [MaxSizes]uint32 // bytes of each
	_     [20]byte
}

// Note is what C says of a request.
type Consumer struct {
	_        structs.HostLayout
	Taken    atomic.Uint64 // the generation whose answer it has
	LastPoll atomic.Uint64 // Polls when it was last asked for
}

const size = int(unsafe.Sizeof(Words{}))

// Answers share no cache line.
const _ = uint(64-unsafe.Sizeof(Answer{})) + uint(unsafe.Sizeof(Answer{})-64)

// Of is a memory's board.
func wordsOf(m *ibv.Memory) *Words { return &ibv.Carve[Words](m, 1)[0] }

// Addr is where a board lies.
func (w *Words) Addr() uintptr { return uintptr(unsafe.Pointer(w)) }
