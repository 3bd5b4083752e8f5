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

// A codec writes a message, or reads one, so that each message lists its fields once for both. Its methods take the address of a field:
// a codec that writes appends the field to b and leaves it unchanged, one that reads takes it from b. A value that is not allowed is an
// error in both directions. The first error stays; what is read after it is zero.
type codec struct {
	b     []byte // the message so far; what is left to read
	reads bool
	err   error
}

func (c *codec) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// done returns the bytes that were written. A reader must have used all bytes.
func (c *codec) done(what string) ([]byte, error) {
	if c.reads && len(c.b) > 0 {
		c.fail("%d bytes follow the message", len(c.b))
	}
	if c.err != nil {
		return nil, fmt.Errorf("%s: %w", what, c.err)
	}
	return c.b, nil
}

// take removes n bytes from what is left to read.
func (c *codec) take(n int) []byte {
	if c.err == nil && len(c.b) < n {
		c.err = errTruncated
	}
	if c.err != nil {
		return make([]byte, n)
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

// bytes handles an array.
func (c *codec) bytes(v []byte) {
	if c.reads {
		copy(v, c.take(len(v)))
	} else {
		c.b = append(c.b, v...)
	}
}

func (c *codec) u8(v *uint8) {
	if c.reads {
		*v = c.take(1)[0]
	} else {
		c.b = append(c.b, *v)
	}
}

func (c *codec) u16(v *uint16) {
	if c.reads {
		*v = binary.BigEndian.Uint16(c.take(2))
	} else {
		c.b = binary.BigEndian.AppendUint16(c.b, *v)
	}
}

func (c *codec) u32(v *uint32) {
	if c.reads {
		*v = binary.BigEndian.Uint32(c.take(4))
	} else {
		c.b = binary.BigEndian.AppendUint32(c.b, *v)
	}
}

func (c *codec) u64(v *uint64) {
	if c.reads {
		*v = binary.BigEndian.Uint64(c.take(8))
	} else {
		c.b = binary.BigEndian.AppendUint64(c.b, *v)
	}
}

// atMost handles a byte that must not exceed limit.
func (c *codec) atMost(what string, v *uint8, limit uint8) {
	c.u8(v)
	if *v > limit {
		c.fail("%s is %d, at most %d is allowed", what, *v, limit)
	}
}

// flag handles a bool: a byte that is 0 or 1.
func (c *codec) flag(what string, v *bool) {
	var b uint8
	if *v {
		b = 1
	}
	c.atMost(what, &b, 1)
	if c.reads {
		*v = b == 1
	}
}

// u24 handles 32 bits that must fit 24, as queue pair and packet sequence numbers do.
func (c *codec) u24(what string, v *uint32) {
	c.u32(v)
	if *v >= 1<<24 {
		c.fail("%s is %#x, which does not fit 24 bits", what, *v)
	}
}

// text handles a text of at most limit bytes. It is written as [printable.Line] makes it fit: the text is for people, and a long or
// strange one must not stop the message that carries it. A text that is read and that a terminal or log cannot show as one line is an error.
func (c *codec) text(what string, v *string, limit int) {
	if !c.reads {
		s := printable.Line(*v, limit)
		c.b = append(binary.BigEndian.AppendUint16(c.b, uint16(len(s))), s...)
		return
	}
	*v = ""
	n := int(binary.BigEndian.Uint16(c.take(2)))
	if n > limit {
		c.fail("%s has %d bytes, at most %d are allowed", what, n, limit)
		return
	}
	s := string(c.take(n))
	if c.err == nil && s != printable.Line(s, limit) {
		c.fail("%s is not plain UTF-8 text: it has control characters or is broken", what)
	}
	if c.err == nil {
		*v = s
	}
}

// addr handles an IPv4 or IPv6 address, with its kind in front.
func (c *codec) addr(v *netip.Addr) {
	if c.reads {
		*v = c.readAddr()
		return
	}
	switch a := v.Unmap(); {
	case a.Is4():
		c.b = append(append(c.b, 4), a.AsSlice()...)
	case a.Is6():
		b := a.As16()
		c.b = append(append(c.b, 6), b[:]...)
	default:
		c.fail("an address is not set")
	}
}

func (c *codec) readAddr() netip.Addr {
	switch kind := c.take(1)[0]; kind {
	case 4:
		return netip.AddrFrom4([4]byte(c.take(4)))
	case 6:
		a := netip.AddrFrom16([16]byte(c.take(16)))
		if a.Is4In6() {
			c.fail("IPv4 address %v is written as IPv6", a)
		}
		return a
	default:
		c.fail("address type is %d, only 4 and 6 are known", kind)
		return netip.Addr{}
	}
}

// addr128 handles an address as 128 bits.
func (c *codec) addr128(v *netip.Addr) {
	if c.reads {
		*v = netip.AddrFrom16([16]byte(c.take(16)))
	} else {
		b := v.As16()
		c.b = append(c.b, b[:]...)
	}
}

// list handles the length of a list, one byte, and its elements.
func list[T any](c *codec, what string, all *[]T, limit int, element func(*T)) {
	n := uint8(min(len(*all), math.MaxUint8))
	c.u8(&n)
	c.limit(what, max(int(n), len(*all)), limit)
	elements(c, int(n), all, element)
}

// limit fails if a list has too many elements.
func (c *codec) limit(what string, n, limit int) {
	if n > limit {
		c.fail("%d %s, at most %d are allowed", n, what, limit)
	}
}

// elements handles the elements of a list, of which a codec that reads takes n.
func elements[T any](c *codec, n int, all *[]T, element func(*T)) {
	if !c.reads {
		for i := range *all {
			element(&(*all)[i])
		}
		return
	}
	for range n {
		var v T
		if element(&v); c.err != nil {
			return
		}
		*all = append(*all, v)
	}
}
