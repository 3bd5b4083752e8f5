package fifo

import (
	"errors"
	"fmt"
)

// Kind is what a trigger requests: one of the constants, or a sum of them. The order of execution is put, signal, flush.
type Kind uint8

const (
	Put    Kind = 1 // write bytes of the local buffer to the remote one
	Signal Kind = 2 // raise the remote epoch by one, after all earlier puts
	Flush  Kind = 4 // the trigger counts as executed when all earlier puts have arrived

	allKinds = Put | Signal | Flush
)

// Limit is the limit of sizes and offsets in a trigger, in bytes.
const Limit = 1 << 40

// A Trigger is a request of a producer. Size and the offsets are 0 unless the kind has Put.
type Trigger struct {
	Kind     Kind
	Dst, Src uint64 // offsets in the remote and in the local buffer
	Size     uint64 // bytes
}

// Bits of the words.
const (
	lowBits  = 24
	lowMask  = 1<<lowBits - 1
	kindBit  = 56
	highBit  = 40
	highMask = 1<<16 - 1
	lapBit   = 63
	reserved = 0xf << 59
)

var errKind = errors.New("a trigger of no known kind")

// encode returns the words of trigger n.
func (t *Trigger) encode(n uint64) (w0, w1 uint64, err error) {
	if t.Kind == 0 || t.Kind&^allKinds != 0 {
		return 0, 0, fmt.Errorf("%w: %#x", errKind, uint8(t.Kind))
	}
	if t.Size >= Limit || t.Dst >= Limit || t.Src >= Limit {
		return 0, 0, fmt.Errorf("a trigger of %d bytes from offset %d to %d: each has to be below %d, which a call without a FIFO need not", t.Size, t.Src, t.Dst, uint64(Limit))
	}
	w0 = t.Size | t.Src>>lowBits<<highBit | uint64(t.Kind)<<kindBit | lap(n)<<lapBit
	return w0, t.Dst | t.Src&lowMask<<highBit, nil
}

// decode returns the trigger of two words.
func decode(w0, w1 uint64) (Trigger, error) {
	t := Trigger{
		Kind: Kind(w0 >> kindBit & 7), Size: w0 & (Limit - 1),
		Dst: w1 & (Limit - 1), Src: w0>>highBit&highMask<<lowBits | w1>>highBit,
	}
	if t.Kind == 0 || w0&reserved != 0 {
		return t, fmt.Errorf("%w: words %#016x, %#016x", errKind, w0, w1)
	}
	return t, nil
}

// lap returns the lap bit of trigger n.
func lap(n uint64) uint64 { return n/Slots&1 ^ 1 }
