package hop

import (
	"encoding/binary"
	"fmt"
)

// Sizes of frames.
const (
	HeaderSize = 64
	Unit       = 64      // places in a ring are multiples of this
	Small      = 2 << 10 // bytes of payload that come whole to a receiver, at most
)

// Kind is what a frame is for.
type Kind uint32

const (
	Begin Kind = 1 // the first of a part, or all of it
	More  Kind = 2 // what follows of a part
	Grant Kind = 3
	Proof Kind = 4
)

// Header begins a frame, in little endian:
//
//	0  sequence 8, of the direction, from 1
//	8  length 4 of the payload
//	12 kind 4
//	16 the header of a socket's frame 16: what a part or a grant is; of a proof a token
//	32 zeros 32
type Header struct {
	Seq    uint64
	Length uint32
	Kind   Kind
	Socket [2]uint64
}

// Encode writes the header to where b begins. The zeros are there already.
func (h *Header) Encode(b []byte) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b[0:], h.Seq)
	binary.LittleEndian.PutUint32(b[8:], h.Length)
	binary.LittleEndian.PutUint32(b[12:], uint32(h.Kind))
	binary.LittleEndian.PutUint64(b[16:], h.Socket[0])
	binary.LittleEndian.PutUint64(b[24:], h.Socket[1])
}

// Decode reads a header that has been copied.
func Decode(b *[HeaderSize]byte) (h Header, err error) {
	h = Header{
		Seq:    binary.LittleEndian.Uint64(b[0:]),
		Length: binary.LittleEndian.Uint32(b[8:]),
		Kind:   Kind(binary.LittleEndian.Uint32(b[12:])),
		Socket: [2]uint64{binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])},
	}
	switch {
	case [HeaderSize - 32]byte(b[32:]) != [HeaderSize - 32]byte{}:
		err = fmt.Errorf("frame %d has %x where zeros belong", h.Seq, b[32:])
	case h.Kind < Begin || h.Kind > Proof:
		err = fmt.Errorf("frame %d is of kind %d; %d to %d are known", h.Seq, h.Kind, Begin, Proof)
	}
	return h, err
}

// units is how many units a frame of so many bytes takes in a ring.
func units(bytes int) uint32 { return uint32((bytes + Unit - 1) / Unit) }

// Check reports what is wrong with a frame of which so many bytes have come, header and
// all: it must be the next, and lie in a ring of that size where the immediate says. whole
// is how long the payload of one is at most that comes with its header.
func (h *Header) Check(next uint64, place, ring, came uint32, whole uint32) error {
	want := uint64(HeaderSize)
	if h.Length <= whole {
		want += uint64(h.Length)
	}
	switch {
	case h.Seq != next:
		return fmt.Errorf("frame %d arrived, %d is next", h.Seq, next)
	case uint64(came) != want:
		return fmt.Errorf("frame %d of %d bytes arrived with %d", h.Seq, h.Length, int64(came)-HeaderSize)
	case ring > 0 && uint64(place)*Unit+HeaderSize+uint64(h.Length) > uint64(ring):
		return fmt.Errorf("frame %d of %d bytes at %d lies outside the ring of %d", h.Seq, h.Length, uint64(place)*Unit, ring)
	}
	return nil
}
