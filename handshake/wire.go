package handshake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"

	"ncclmesh/printable"
)

// Limits of what crosses the wire.
const (
	MaxPorts     = 64   // ports of a node
	MaxPortAddrs = 64   // addresses of a port
	MaxAddrs     = 16   // addresses of a listener
	MaxLanes     = 32   // lanes of a connection
	MaxDomains   = 8    // domains of a connection, per side
	MaxSettings  = 64   // settings that a process tells of
	MaxName      = 64   // bytes of a device's, interface's or host's name
	MaxText      = 1024 // bytes of an explanation for people
	MaxReason    = 256  // bytes of the reason of one lane
)

// The length of a list is one byte on the wire, that of a text two.
const (
	_ = uint(math.MaxUint8 - max(MaxPorts, MaxPortAddrs, MaxAddrs, MaxLanes, MaxDomains, MaxSettings))
	_ = uint(math.MaxUint16 - max(MaxName, MaxText, MaxReason))
)

var errTruncated = errors.New("message ends too early")

// reader takes a message apart. The first error sticks; every later read returns zero.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *reader) take(n int) []byte {
	if r.err == nil && len(r.b) < n {
		r.err = errTruncated
	}
	if r.err != nil {
		return make([]byte, n)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) id() (v [16]byte) {
	copy(v[:], r.take(len(v)))
	return v
}

func (r *reader) sum() (v [32]byte) {
	copy(v[:], r.take(len(v)))
	return v
}

// atMost reads one byte that must not exceed limit.
func (r *reader) atMost(what string, limit uint8) uint8 {
	v := r.u8()
	if v > limit {
		r.fail("%s is %d, at most %d is allowed", what, v, limit)
		return 0
	}
	return v
}

// flag reads a byte that is 0 or 1.
func (r *reader) flag(what string) bool { return r.atMost(what, 1) == 1 }

// u24 reads 32 bits that must fit 24, as queue pair and packet sequence numbers do.
func (r *reader) u24(what string) uint32 {
	v := r.u32()
	if v >= 1<<24 {
		r.fail("%s is %#x, which does not fit 24 bits", what, v)
		return 0
	}
	return v
}

// text reads a text of at most limit bytes. One that a terminal or log cannot show as one line is an error.
func (r *reader) text(what string, limit int) string {
	n := int(r.u16())
	if n > limit {
		r.fail("%s has %d bytes, at most %d are allowed", what, n, limit)
		return ""
	}
	s := string(r.take(n))
	if r.err == nil && s != printable.Line(s, limit) {
		r.fail("%s is not plain UTF-8 text: it has control characters or is broken", what)
	}
	if r.err != nil {
		return ""
	}
	return s
}

func (r *reader) addr() netip.Addr {
	switch kind := r.u8(); kind {
	case 4:
		return netip.AddrFrom4([4]byte(r.take(4)))
	case 6:
		a := netip.AddrFrom16([16]byte(r.take(16)))
		if a.Is4In6() {
			r.fail("IPv4 address %v is written as IPv6", a)
		}
		return a
	default:
		r.fail("address type is %d, only 4 and 6 are known", kind)
		return netip.Addr{}
	}
}

// done is the last step of every decoder: nothing may be left over.
func (r *reader) done(what string) error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes follow the message", len(r.b))
	}
	if r.err != nil {
		return fmt.Errorf("%s: %w", what, r.err)
	}
	return nil
}

// writer puts a message together. The first value that does not fit the wire sticks as an error.
type writer struct {
	b   []byte
	err error
}

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *writer) u8(v uint8)   { w.b = append(w.b, v) }
func (w *writer) u16(v uint16) { w.b = binary.BigEndian.AppendUint16(w.b, v) }
func (w *writer) u32(v uint32) { w.b = binary.BigEndian.AppendUint32(w.b, v) }
func (w *writer) u64(v uint64) { w.b = binary.BigEndian.AppendUint64(w.b, v) }

// addr128 writes an address as 128 bits.
func (w *writer) addr128(a netip.Addr) {
	b := a.As16()
	w.bytes(b[:])
}

func (w *writer) bytes(v []byte) { w.b = append(w.b, v...) }

func (w *writer) atMost(what string, v, limit uint8) {
	if v > limit {
		w.fail("%s is %d, at most %d is allowed", what, v, limit)
	}
	w.u8(v)
}

func (w *writer) flag(v bool) {
	if v {
		w.u8(1)
	} else {
		w.u8(0)
	}
}

func (w *writer) u24(what string, v uint32) {
	if v >= 1<<24 {
		w.fail("%s is %#x, which does not fit 24 bits", what, v)
	}
	w.u32(v)
}

// count writes the length of a list as one byte.
func (w *writer) count(what string, n, limit int) {
	if n > limit {
		w.fail("%d %s, at most %d are allowed", n, what, limit)
	}
	w.u8(uint8(n))
}

// text writes s as [printable.Line] makes it fit: the text is for people, and a long or strange one must not stop the
// message that carries it.
func (w *writer) text(s string, limit int) {
	s = printable.Line(s, limit)
	w.u16(uint16(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) addr(a netip.Addr) {
	a = a.Unmap()
	switch {
	case a.Is4():
		v := a.As4()
		w.u8(4)
		w.bytes(v[:])
	case a.Is6():
		v := a.As16()
		w.u8(6)
		w.bytes(v[:])
	default:
		w.fail("an address is not set")
	}
}

func (w *writer) done(what string) ([]byte, error) {
	if w.err != nil {
		return nil, fmt.Errorf("%s: %w", what, w.err)
	}
	return w.b, nil
}
