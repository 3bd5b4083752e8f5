package hop

import (
	"encoding/binary"
	"fmt"
)

// Sizes of frames.
const (
	HeaderSize = 64
	Unit       = 64      // places in a ring are multiples of this
	Small      = 2 << 10 // maximum bytes of a payload that is sent whole to a receiver
)

// Kind is the kind of a frame.
type Kind uint32

const (
	Begin Kind = 1 // the first frame of a part, or the only one
	More  Kind = 2 // a further frame of a part
	Grant Kind = 3
	Probe Kind = 4
)

// Header is at the start of a frame, in little endian:
//
//	0  sequence 8, counted for each direction, from 1
//	8  length 4 of the payload
//	12 kind 4
//	16 the header of a TCP lane's frame 16, for a part or a grant; a token, for a probe
//	32 zeros 32
type Header struct {
	Seq    uint64
	Length uint32
	Kind   Kind
	Socket [2]uint64
}

// Encode writes the header to the start of b. The zeros must be there already.
func (h *Header) Encode(b []byte) {
	_ = b[HeaderSize-1]
	binary.LittleEndian.PutUint64(b[0:], h.Seq)
	binary.LittleEndian.PutUint32(b[8:], h.Length)
	binary.LittleEndian.PutUint32(b[12:], uint32(h.Kind))
	binary.LittleEndian.PutUint64(b[16:], h.Socket[0])
	binary.LittleEndian.PutUint64(b[24:], h.Socket[1])
}

// Decode decodes a header. b must be a copy that the peer cannot write.
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
	case h.Kind < Begin || h.Kind > Probe:
		err = fmt.Errorf("frame %d is of kind %d; %d to %d are known", h.Seq, h.Kind, Begin, Probe)
	}
	return h, err
}

// units returns how many units of a ring a frame of that many bytes occupies.
func units(bytes int) uint32 { return uint32((bytes + Unit - 1) / Unit) }

// Check returns an error if the header does not match the frame that arrived with it: it must have the sequence number
// next, and lie inside the ring at place; a ring of size 0 is not checked. came is the number of bytes that arrived,
// including the header. whole is the maximum length of a payload that arrives together with its header.
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
