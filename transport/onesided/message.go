package onesided

import (
	"encoding/binary"
	"fmt"
)

// A message tells the peer of a signal, or of a get. Integers are little endian:
//
//	0  kind 4
//	4  window 4: of the word to change; of a get the window to read from
//	8  offset 8: in that window
//	16 value 8: of a signal; of a get and its answer the operation's number
//	24 size 8: of a get
//	32 window 4: of a get, the asker's window to write to
//	36 what 4: of a signal a SignalOp; of an answer a status
//	40 offset 8: in the asker's window
//	48 number 1: of a signal: brief signals of this number stand for this one from now on
//	49 zeros 15
type message struct {
	kind     uint32
	window   uint32
	offset   uint64
	value    uint64
	size     uint64
	toWindow uint32
	what     uint32
	toOffset uint64
	number   uint8
}

// messageSize is the size of every message in bytes.
const messageSize = 64

// Values of message.kind.
const (
	kindSignal = 1 // change a word
	kindGet    = 2 // put bytes back
	kindGot    = 3 // the bytes are there, or the status says why not
)

// Values of message.what in an answer to a get.
const (
	gotBytes    = 0 // the bytes were put before
	gotNoSource = 1 // the window to read from has ended
	gotNoTarget = 2 // the asker's window has ended
	gotOutside  = 3 // the range is not inside one of the windows
)

func (m *message) encode(b []byte) {
	clear(b[:messageSize])
	binary.LittleEndian.PutUint32(b[0:], m.kind)
	binary.LittleEndian.PutUint32(b[4:], m.window)
	binary.LittleEndian.PutUint64(b[8:], m.offset)
	binary.LittleEndian.PutUint64(b[16:], m.value)
	binary.LittleEndian.PutUint64(b[24:], m.size)
	binary.LittleEndian.PutUint32(b[32:], m.toWindow)
	binary.LittleEndian.PutUint32(b[36:], m.what)
	binary.LittleEndian.PutUint64(b[40:], m.toOffset)
	b[48] = m.number
}

// decode sets m from b. It accepts what encode writes for a message of a known kind.
func (m *message) decode(b []byte) error {
	*m = message{
		kind: binary.LittleEndian.Uint32(b[0:]), window: binary.LittleEndian.Uint32(b[4:]), offset: binary.LittleEndian.Uint64(b[8:]),
		value: binary.LittleEndian.Uint64(b[16:]), size: binary.LittleEndian.Uint64(b[24:]),
		toWindow: binary.LittleEndian.Uint32(b[32:]), what: binary.LittleEndian.Uint32(b[36:]), toOffset: binary.LittleEndian.Uint64(b[40:]),
		number: b[48],
	}
	zeros := binary.LittleEndian.Uint64(b[48:])>>8 | binary.LittleEndian.Uint64(b[56:])
	known := false
	switch m.kind {
	case kindSignal:
		known = m.what >= uint32(SignalSet) && m.what <= uint32(SignalInc) && m.size|m.toOffset|uint64(m.toWindow) == 0
	case kindGet:
		known = m.what|uint32(m.number) == 0
	case kindGot:
		known = m.what <= gotOutside && m.size|m.offset|m.toOffset|uint64(m.window|m.toWindow)|uint64(m.number) == 0
	}
	if !known || zeros != 0 {
		return fmt.Errorf("a message that is no signal, get or answer: % x", b[:messageSize])
	}
	return nil
}

// A signal is what a message of a signal says, for which a number stands in brief signals.
type signal struct {
	offset uint64
	value  uint64
	window uint32
	what   uint32
}

func (m *message) signal() signal {
	return signal{offset: m.offset, value: m.value, window: m.window, what: m.what}
}

// number returns the number of brief signals that stand for s. Words that lie beside each other, as those of the connections between two
// processes do, have different numbers. Signals of the same number displace each other.
func (s *signal) number() uint8 {
	return uint8(s.offset/8 + 37*uint64(s.window) + 101*s.value + 59*uint64(s.what))
}
