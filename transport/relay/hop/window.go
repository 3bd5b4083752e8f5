package hop

import (
	"fmt"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// Maximum numbers of frames in flight in each direction: not freed by the next process, and not delivered at the end.
// The frames in the direction Back are grants. All grants that can be outstanding must fit, because the receiver may
// send all of them before it polls.
const (
	Forth            = 64
	ForthUndelivered = 2 * Forth
	Back             = lane.Window + lane.Window/2
	BackUndelivered  = Back
)

// BackEvery is how many frames of the direction Back one credit covers, except for the first frame, which is the probe.
// With this many, a receiver has receives for all credits that can arrive unrequested.
const BackEvery = 32

// Numbers of messages that can arrive unrequested: the receives of the end nearer to the receiver, and of the end
// nearer to the sender.
const (
	TowardsReceiver = Forth + Back/BackEvery + BackUndelivered/BackEvery + 2
	TowardsSender   = Back + Forth + ForthUndelivered
)

// Window is a writer's account of the frames that it sends to one process.
type Window struct {
	Ring handshake.Ring // where frames are written; of size 0: they are sent

	Sent      uint64 // number of frames sent
	Done      uint64 // number of frames that this side's adapter has completed
	Freed     uint64 // number of frames that the next process has freed
	Delivered uint64 // number of frames that have reached the circuit's end

	frames, undelivered uint64 // limits
	released            uint64 // number of frames whose places are free again
	tail, used          uint32 // units of the ring
	extent              [Back]uint32
}

// NewWindow makes the account of frames into a ring, or into receives, with these limits.
func NewWindow(ring handshake.Ring, frames, undelivered uint64) Window {
	return Window{Ring: ring, frames: frames, undelivered: undelivered}
}

// Fits reports whether a frame of that many bytes, including the header, can ever be sent.
func (w *Window) Fits(bytes int) bool {
	return w.Ring.Size == 0 || units(bytes) <= w.Ring.Size/Unit
}

// Take finds the place for a frame of that many bytes, including the header, and counts it as sent. It returns false if
// there is no room now.
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

// Complete records that this side's adapter has completed the next frame.
func (w *Window) Complete() {
	w.Done++
	w.release()
}

// release frees places. When no frame is in flight, the next one starts at the beginning of the ring, because that
// memory is in the cache.
func (w *Window) release() {
	for ; w.released < min(w.Done, w.Freed); w.released++ {
		w.used -= w.extent[(w.released+1)%Back]
	}
	if w.used == 0 {
		w.tail = 0
	}
}

// Arrived returns how many frames were delivered and completed by this side's adapter, which therefore does not send
// them again.
func (w *Window) Arrived() uint64 { return min(w.Done, w.Delivered) }

// Layout of a credit's immediate: credit 1 | freed 15 | zero 1 | delivered 15, both modulo 2^15.
const (
	creditBit  = 1 << 31
	creditMask = 1<<15 - 1
)

// Credit returns the immediate of a credit.
func Credit(freed, delivered uint64) uint32 {
	return creditBit | uint32(freed&creditMask)<<16 | uint32(delivered&creditMask)
}

// IsCredit reports whether an immediate is that of a credit. Otherwise it is a place.
func IsCredit(imm uint32) bool { return imm&creditBit != 0 }

// HandleCredit updates the counts with a credit. A count that falls, or exceeds the frames sent, is an error.
func (w *Window) HandleCredit(imm uint32) error {
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

// Sizes of rings. A ring is slightly longer than a power of two, to hold the headers of the eight frames that fill it.
const (
	MinRing  = 64<<10 + headers
	MaxRing  = 1<<20 + headers
	BackRing = Back * 2 * Unit // for grants of eight buffers

	headers = 4 << 10
)

// align divides the length of each payload except the last, because NCCL's LL128 protocol needs that alignment.
const align = 128

// MostPayload returns the maximum length of a frame's payload if the smallest ring has that size. Eight such frames
// fill the ring.
func MostPayload(ring uint32) int { return (int(ring)/8 - HeaderSize) &^ (align - 1) }

// RingOf returns the size of a ring for eight frames that together have that many bytes of payload, a power of two.
func RingOf(bytes int) int { return bytes + headers }
