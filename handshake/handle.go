package handshake

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

const (
	// Magic opens every handle and every message of the exchange.
	Magic = 0x4e4d // "NM"
	// Version is the version of the whole protocol. Both sides must have the same.
	Version = 10

	// HandleSize is NCCL_NET_HANDLE_MAXSIZE.
	HandleSize = 128

	handleState = 42 // offset of the connector's state
	handleAddrs = 50 // offset of the addresses
	handleBuild = HandleSize - buildSize
)

// A handle has room for at least one address of either family.
const _ = uint(handleBuild - handleAddrs - 17)

// Handle says how to reach one listen, and proves that its bearer was invited.
//
//	0   magic 2, version 1, flags 1, port 2
//	6   listen id 4
//	10  process id 16
//	26  secret 16
//	42  connector's state 8
//	50  addresses: type 1 (4 or 6), then 4 or 16 bytes; 0 ends the list
//	104 build 24
type Handle struct {
	Port    uint16 // of the process's control listener
	Listen  uint32
	Process ProcessID
	Secret  Secret
	State   uint64 // 0 from the listener, then the connector's own; see ConnectorState
	Addrs   []netip.Addr
	Build   string // of the listener; Encode takes "" for its own
}

// Encode writes the handle. Addresses are the most preferred first; those that find no room are left out.
func (h *Handle) Encode() ([HandleSize]byte, error) {
	var out [HandleSize]byte
	if h.Port == 0 {
		return out, fmt.Errorf("handle: port is 0: the listener is not open")
	}
	if len(h.Addrs) == 0 {
		return out, fmt.Errorf("handle: no address: this process cannot be reached; check that an interface has an address (NCCL_SOCKET_IFNAME)")
	}
	c := codec{b: append(binary.BigEndian.AppendUint16(out[:0], Magic), Version, 0)} // flags: none yet
	h.fields(&c)
	for _, a := range h.Addrs {
		if err := Dialable(a); err != nil {
			return [HandleSize]byte{}, fmt.Errorf("handle: %w", err)
		}
		if len(c.b)+1+a.Unmap().BitLen()/8 <= handleBuild {
			c.addr(&a)
		}
	}
	c.b = append(c.b, make([]byte, handleBuild-len(c.b))...)
	c.build(&h.Build)
	if _, err := c.done("handle"); err != nil {
		return [HandleSize]byte{}, err
	}
	return [HandleSize]byte(c.b), nil
}

// fields writes or reads what follows the flags and has a fixed size.
func (h *Handle) fields(c *codec) {
	c.u16(&h.Port)
	c.u32(&h.Listen)
	c.bytes(h.Process[:])
	c.bytes(h.Secret[:])
	c.u64(&h.State)
}

// ReadHandle reads a handle that somebody has sent, of whatever length.
func ReadHandle(b []byte) (Handle, error) {
	if len(b) != HandleSize {
		return Handle{}, fmt.Errorf("a handle of %d bytes; want %d", len(b), HandleSize)
	}
	return DecodeHandle((*[HandleSize]byte)(b))
}

// DecodeHandle reads a handle.
func DecodeHandle(b *[HandleSize]byte) (Handle, error) {
	if m := binary.BigEndian.Uint16(b[:]); m != Magic {
		return Handle{}, fmt.Errorf("handle: begins with %#04x, not %#04x: it was not made by this plugin; load the same plugin on every node", m, Magic)
	}
	if v := b[2]; v != Version {
		return Handle{}, fmt.Errorf("handle: %w", handleVersion(v, b))
	}
	c := codec{b: b[4:handleBuild], reads: true}
	if f := b[3]; f != 0 {
		c.fail("unknown flags %#02x", f)
	}
	var h Handle
	h.fields(&c)
	if h.Port == 0 {
		c.fail("port is 0")
	}
	for len(c.b) > 0 && c.b[0] != 0 && c.err == nil {
		a := c.readAddr()
		if c.err == nil {
			if err := Dialable(a); err != nil {
				c.fail("%w", err)
			}
		}
		h.Addrs = append(h.Addrs, a)
	}
	if c.err == nil && len(h.Addrs) == 0 {
		c.fail("no address")
	}
	for _, rest := range c.b {
		if rest != 0 {
			c.fail("bytes follow the last address")
		}
	}
	c.b = b[handleBuild:]
	c.build(&h.Build)
	if _, err := c.done("handle"); err != nil {
		return Handle{}, err
	}
	return h, nil
}

// handleVersion is the error of a handle of another version.
func handleVersion(theirs uint8, b *[HandleSize]byte) error {
	e := &VersionError{Theirs: theirs}
	if theirs > 1 {
		e.Build = buildText([buildSize]byte(b[handleBuild:]))
	}
	return e
}

// Dialable says why an address cannot stand in a handle; nil when it can.
func Dialable(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return fmt.Errorf("an address is not set")
	case a.Zone() != "" || a.Is6() && a.IsLinkLocalUnicast():
		return fmt.Errorf("address %v means something only on its own link", a)
	case a.IsUnspecified(), a.IsMulticast():
		return fmt.Errorf("address %v is not that of one host", a)
	}
	return nil
}

// ConnectorState returns the 8 bytes of a handle that belong to the connecting side: 0 until it has set them.
func ConnectorState(h *[HandleSize]byte) uint64 {
	return binary.BigEndian.Uint64(h[handleState:])
}

// SetConnectorState keeps a connector's key in the handle between two calls of connect.
func SetConnectorState(h *[HandleSize]byte, key uint64) {
	binary.BigEndian.PutUint64(h[handleState:], key)
}
