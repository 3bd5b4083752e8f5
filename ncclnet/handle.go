package ncclnet

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// A Handle identifies an object for NCCL, in place of a pointer: a context, a listener, a
// connect in progress, a connection, a memory region, or a request of a connection. Zero
// is no handle. One is never a handle either, because NCCL gives that value a
// meaning of its own in irecv.
//
//	63      44 43  40 39     20 19       9 8     0
//	generation  kind     slot    request    request
//	                             generation index
type Handle uint64

const (
	requestBits    = 9
	requestGenBits = 11
	slotBits       = 20
	kindBits       = 4
	genBits        = 20

	requestGenShift = requestBits
	slotShift       = requestGenShift + requestGenBits
	kindShift       = slotShift + slotBits
	genShift        = kindShift + kindBits

	maxRequests = 1 << requestBits // of one connection
	slots       = 1 << slotBits    // of one kind
)

// Layout of handles for the C code, which finds a connection's board with it.
const (
	HandleIndexBits      = requestBits
	HandleGenerationBits = requestGenBits
	HandleSlotBits       = slotBits
	HandleKindShift      = kindShift
	HandleKindBits       = kindBits

	KindSend    = int(kindSend)
	KindRecv    = int(kindRecv)
	KindRequest = int(kindRequest)
)

// Compile-time check: the parts of a handle are exactly 64 bits.
const (
	_ = uint(64 - (genShift + genBits))
	_ = uint((genShift + genBits) - 64)
)

type kind uint8

const (
	kindContext kind = 1
	kindListen  kind = 2
	kindDial    kind = 3
	kindSend    kind = 4
	kindRecv    kind = 5
	kindRegion  kind = 6

	// Kinds of the RMA interface, whose requests have numbers of their own.
	kindRMAContext kind = 7
	kindRMAListen  kind = 8
	kindRMAGroup   kind = 9
	kindRMASeries  kind = 10
	kindRMAWindow  kind = 11

	// kindRequest is added to the kind of the connection that a request belongs to.
	kindRequest kind = 8
)

func (k kind) String() string {
	switch k {
	case kindContext:
		return "context"
	case kindListen:
		return "listenComm"
	case kindDial:
		return "connect in progress"
	case kindSend:
		return "sendComm"
	case kindRecv:
		return "recvComm"
	case kindRegion:
		return "mhandle"
	case kindRMAContext:
		return "RMA context"
	case kindRMAListen:
		return "RMA listenComm"
	case kindRMAGroup:
		return "collComm"
	case kindRMASeries:
		return "rmaCtx"
	case kindRMAWindow:
		return "symmetric mhandle"
	case kindRequest | kindSend:
		return "send request"
	case kindRequest | kindRecv:
		return "receive request"
	}
	return "unknown"
}

func newHandle(k kind, slot, gen uint32) Handle {
	return Handle(gen)<<genShift | Handle(k)<<kindShift | Handle(slot)<<slotShift
}

func (h Handle) kind() kind   { return kind(h >> kindShift & (1<<kindBits - 1)) }
func (h Handle) slot() uint32 { return uint32(h >> slotShift & (slots - 1)) }

// request returns the handle of a request of the connection h.
func (h Handle) request(index int, gen uint64) Handle {
	return h | Handle(kindRequest)<<kindShift |
		Handle(gen&(1<<requestGenBits-1))<<requestGenShift | Handle(index)
}

// comm returns the handle of the connection that a request belongs to.
func (h Handle) comm() Handle {
	return h &^ (Handle(kindRequest)<<kindShift | (1<<slotShift - 1))
}

// hasGeneration reports whether a request's handle has that generation. 0 means no generation.
func (h Handle) hasGeneration(gen uint64) bool {
	const mask = 1<<requestGenBits - 1
	return gen != 0 && uint64(h>>requestGenShift)&mask == gen&mask
}

func (h Handle) requestIndex() int { return int(h & (maxRequests - 1)) }

func (h Handle) String() string { return fmt.Sprintf("%#x", uint64(h)) }

// A table maps handles of one kind to objects. Lookups take no lock.
type table[T any] struct {
	kind   kind
	chunks [slots / chunkSlots]atomic.Pointer[[chunkSlots]atomic.Pointer[entry[T]]]

	mu   sync.Mutex
	gens []uint32 // last generation of each slot that was ever used
	free []uint32 // oldest first, so that a slot is reused as late as possible
}

const chunkSlots = 1024

type entry[T any] struct {
	handle Handle
	value  *T
}

// put stores v and returns its handle.
func (t *table[T]) put(v *T) (Handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slot uint32
	switch {
	case len(t.gens) < chunkSlots || len(t.free) == 0:
		if len(t.gens) == slots {
			return 0, fmt.Errorf("%w: all %d %s handles are in use; close some", errUsage, slots, t.kind)
		}
		slot = uint32(len(t.gens))
		t.gens = append(t.gens, 0)
	default:
		slot, t.free = t.free[0], t.free[1:]
	}
	gen := t.gens[slot]%(1<<genBits-1) + 1
	t.gens[slot] = gen
	chunk := t.chunks[slot/chunkSlots].Load()
	if chunk == nil {
		chunk = new([chunkSlots]atomic.Pointer[entry[T]])
		t.chunks[slot/chunkSlots].Store(chunk)
	}
	h := newHandle(t.kind, slot, gen)
	chunk[slot%chunkSlots].Store(&entry[T]{h, v})
	return h, nil
}

// get returns the object of h, or nil.
func (t *table[T]) get(h Handle) *T {
	chunk := t.chunks[h.slot()/chunkSlots].Load()
	if chunk == nil {
		return nil
	}
	e := chunk[h.slot()%chunkSlots].Load()
	if e == nil || e.handle != h {
		return nil
	}
	return e.value
}

// find returns the object of h, or an error that tells what is wrong with h.
func (t *table[T]) find(h Handle) (*T, error) {
	if v := t.get(h); v != nil {
		return v, nil
	}
	switch {
	case h == 0:
		return nil, fmt.Errorf("%w: %s is NULL", errArgument, t.kind)
	case h.kind() != t.kind:
		return nil, fmt.Errorf("%w: %s is not a %s of this plugin", errArgument, h, t.kind)
	}
	return nil, fmt.Errorf("%w: %s %s is closed or was never opened", errArgument, t.kind, h)
}

// remove deletes h from the table and returns its object. If several callers remove h, only one succeeds.
func (t *table[T]) remove(h Handle) (*T, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, err := t.find(h)
	if err != nil {
		return nil, err
	}
	t.chunks[h.slot()/chunkSlots].Load()[h.slot()%chunkSlots].Store(nil)
	t.free = append(t.free, h.slot())
	return v, nil
}

// close removes h for a call that closes the object. It returns nil without an error if h is NULL or was closed before,
// by its owner or with its context, because NCCL makes such calls while it cleans up after a failure. An error would
// replace the reason of the failure in ncclGetLastError, and stop the clean-up.
func (t *table[T]) close(h Handle) (*T, error) {
	v, err := t.remove(h)
	if err != nil && (h == 0 || t.issued(h)) {
		return nil, nil
	}
	return v, err
}

// issued reports whether put has returned h before, even if its slot has been reused since.
func (t *table[T]) issued(h Handle) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return h.kind() == t.kind && h>>genShift > 0 && int(h.slot()) < len(t.gens) && h&(1<<slotShift-1) == 0
}

// take removes and returns all objects that match.
func (t *table[T]) take(match func(*T) bool) []*T {
	t.mu.Lock()
	defer t.mu.Unlock()
	var taken []*T
	for slot := range uint32(len(t.gens)) {
		p := &t.chunks[slot/chunkSlots].Load()[slot%chunkSlots]
		if e := p.Load(); e != nil && match(e.value) {
			p.Store(nil)
			t.free = append(t.free, slot)
			taken = append(taken, e.value)
		}
	}
	return taken
}
