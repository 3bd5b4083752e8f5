package hop

import (
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// How many frames may be under way in a direction: not freed by the next process, and
// not delivered at the end. Back go grants, of which all that can be outstanding must go
// without a look of the receiver's: it may give them all before it looks.
const (
	Forth            = 64
	ForthUndelivered = 2 * Forth
	Back             = lane.Window + lane.Window/2
	BackUndelivered  = Back
)

// BackEvery is how many frames that go back are credited together, but for the first,
// which is the proof: so few credits come unasked that a receiver has receives for them.
const BackEvery = 32

// What can come unasked: receives of who is nearer to the receiver, and to the sender.
const (
	TowardsReceiver = Forth + Back/BackEvery + BackUndelivered/BackEvery + 2
	TowardsSender   = Back + Forth + ForthUndelivered
)

// Window is a writer's account of its frames with the process that they go to.
type Window struct {
	Ring handshake.Ring // where they are written; of size 0: they are sent

	Sent      uint64 // frames so far
	Done      uint64 // of which this side's adapter is done with
	Freed     uint64 // that the next process has no more use for
	Delivered uint64 // that have reached the end

	frames, undelivered uint64 // limits
	released            uint64 // frames whose places are free
	tail, used          uint32 // units of the ring
	extent              [Back]uint32
}

// NewWindow makes the account of frames into a ring, or into receives, within limits.
func NewWindow(ring handshake.Ring, frames, undelivered uint64) Window {
	return Window{Ring: ring, frames: frames, undelivered: undelivered}
}

// Fits reports whether a frame of so many bytes, header and all, can ever go.
func (w *Window) Fits(bytes int) bool {
	return w.Ring.Size == 0 || units(bytes) <= w.Ring.Size/Unit
}

// Take finds the place for a frame of so many bytes, header and all, which is sent now;
// it reports false while there is none.
func (w *Window) Take(bytes int) (place uint32, ok bool) {
	if w.Sent-w.released >= w.frames || w.Sent-w.Delivered >= w.undelivered {
		return 0, false
	}
	if w.Ring.Size > 0 {
		need, size, skip := units(bytes), w.Ring.Size/Unit, uint32(0)
		place = w.tail
		if need > size-place {
			skip, place = size-place, 0
		}
		if uint64(w.used)+uint64(skip)+uint64(need) > uint64(size) {
			return 0, false
		}
		w.tail = place + need
		w.used += skip + need
		w.extent[(w.Sent+1)%Back] = skip + need
	}
	w.Sent++
	return place, true
}

// Complete notes that this side's adapter is done with the next frame.
func (w *Window) Complete() {
	w.Done++
	w.release()
}

// release frees places. What is under way starts again at the beginning once nothing is:
// that memory is warm.
func (w *Window) release() {
	for ; w.released < min(w.Done, w.Freed); w.released++ {
		w.used -= w.extent[(w.released+1)%Back]
	}
	if w.used == 0 {
		w.tail = 0
	}
}

// Arrived is how many frames have been delivered that this side's adapter is done with:
// it sends none of them again.
func (w *Window) Arrived() uint64 { return min(w.Done, w.Delivered) }

// A credit's immediate: credit 1 | freed 15 | zero 1 | delivered 15, both modulo 2^15.
const (
	creditBit  = 1 << 31
	creditMask = 1<<15 - 1
)

// Credit is the immediate of a credit.
func Credit(freed, delivered uint64) uint32 {
	return creditBit | uint32(freed&creditMask)<<16 | uint32(delivered&creditMask)
}

// IsCredit reports whether an immediate is that of a credit, else it is a place.
func IsCredit(imm uint32) bool { return imm&creditBit != 0 }

// Heed takes a credit. A count that falls, or exceeds what was sent, is an error.
func (w *Window) Heed(imm uint32) error {
	freed := w.Freed + (uint64(imm>>16)-w.Freed)&creditMask
	delivered := w.Delivered + (uint64(imm)-w.Delivered)&creditMask
	if freed > w.Sent || delivered > w.Sent || imm&(1<<15) != 0 {
		return fmt.Errorf("a credit (%#08x) says that of %d frames sent %d were freed, after %d, and %d delivered, after %d",
			imm, w.Sent, freed, w.Freed, delivered, w.Delivered)
	}
	w.Freed, w.Delivered = freed, delivered
	w.release()
	return nil
}

// Sizes of rings. A ring is a little longer than a power of two, for the headers of the
// eight frames that fill it.
const (
	MinRing  = 64<<10 + headers
	MaxRing  = 1<<20 + headers
	BackRing = Back * 2 * Unit // grants of eight buffers

	headers = 4 << 10
)

// align is what payloads are multiples of: NCCL's LL128 needs it.
const align = 128

// MostPayload is how long a frame's payload is at most where the smallest ring has that
// size: eight fill it.
func MostPayload(ring uint32) int { return (int(ring)/8 - HeaderSize) &^ (align - 1) }

// RingOf is the size of a ring for frames of which eight carry so many bytes, a power of
// two.
func RingOf(bytes int) int { return bytes + headers }
