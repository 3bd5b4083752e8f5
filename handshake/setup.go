package handshake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// Types of set-up messages, and the limits of their bodies.
//
//	0  magic 2, version 1, type 1, length of the body 4
//	8  body; in Challenge, Hello and Reject it begins with the build, 24 bytes (see Build), in Hello and Welcome it ends
//	   with an HMAC-SHA-256 of 32 bytes
const (
	setupChallenge = 0x81
	setupHello     = 0x82
	setupWelcome   = 0x83
	setupReject    = 0x84

	setupLaneHello   = 0x85 // see LaneHello
	setupLaneWelcome = 0x86

	setupQuery = 0x87 // see NeighbourQuery
	setupReply = 0x88

	setupHeader = 8
	macSize     = 32
	nonceSize   = 32

	challengeSize = buildSize + nonceSize + 16
	rejectSize    = buildSize + 1
	maxSetup      = 48 << 10
)

// RejectCode says why a listener ends an exchange.
type RejectCode uint8

const (
	RejectListen  RejectCode = 1 // this process never made such a listen
	RejectSession RejectCode = 2 // this process has no such session
	RejectBusy    RejectCode = 3 // this side is resuming the session itself; its attempt comes first
	RejectVersion RejectCode = 4 // this side speaks another version of the protocol
	RejectClosed  RejectCode = 5 // the listen has been closed
	RejectSecret  RejectCode = 6 // the listen has another secret

	RejectNeighbour RejectCode = 7 // this process takes no sessions from neighbours, or not there
	RejectKey       RejectCode = 8 // this side has another key for neighbours
)

func (c RejectCode) String() string {
	switch c {
	case RejectListen:
		return "the process there never opened that listener: the handle is damaged, or from another run"
	case RejectClosed:
		return "the listener has been closed there"
	case RejectSecret:
		return "the listener there has another secret: the handle is damaged, or from another run"
	case RejectNeighbour:
		return "the process there takes no sessions from neighbours (NCCL_MESH_RELAY=0), or not over this interface"
	case RejectKey:
		return "that node has another NCCL_MESH_KEY, or none"
	case RejectSession:
		return "the session is not known there"
	case RejectBusy:
		return "the session is being resumed from there"
	case RejectVersion:
		return fmt.Sprintf("it does not speak version %d of the protocol (build %s): install the same plugin on every node", Version, Build())
	default:
		return fmt.Sprintf("refused with code %d", uint8(c))
	}
}

// RejectError is what a listener said instead of Welcome.
type RejectError struct{ Code RejectCode }

func (e *RejectError) Error() string { return "refused: " + e.Code.String() }

// ErrOtherProcess says that an address belongs to another process, as a private address may on another host.
var ErrOtherProcess = errors.New("another process answers there")

// Hello is the dialler's part of the exchange.
type Hello struct {
	Process  ProcessID
	Node     NodeID
	Hostname string
	Build    string // "" when said: this side's own
	Port     uint16 // of the dialler's own listener
	Addrs    []netip.Addr

	// For a new session, the listen whose secret authenticates the exchange, and the dialler's ports and settings. No
	// listen has number 0: under that a neighbour dials, with the discovery secret.
	Listen   uint32
	Ports    []Port
	Settings []Setting

	// To resume one: its id, which end of it is speaking, and the number of the last message received.
	Session  SessionID // zero for a new session
	Accepted bool      // the speaker once accepted the session, and now dials back
	Received uint64
}

// Resume reports whether the Hello resumes a session.
func (h *Hello) Resume() bool { return h.Session != SessionID{} }

// Welcome is the listener's answer.
type Welcome struct {
	Process  ProcessID
	Node     NodeID
	Hostname string
	Ports    []Port    // for a new session
	Settings []Setting // for a new session
	Received uint64    // number of the last message received in the session
}

func (h *Hello) fields(c *codec, nonce *[nonceSize]byte) {
	c.build(&h.Build)
	c.bytes(nonce[:])
	c.bytes(h.Process[:])
	c.bytes(h.Node[:])
	c.text("host name", &h.Hostname, MaxName)
	c.u16(&h.Port)
	list(c, "addresses", &h.Addrs, MaxAddrs, c.addr)
	c.u32(&h.Listen)
	c.ports(&h.Ports)
	c.settings(&h.Settings)
	c.bytes(h.Session[:])
	c.flag("direction", &h.Accepted)
	c.u64(&h.Received)
}

func (m *Welcome) fields(c *codec) {
	c.bytes(m.Process[:])
	c.bytes(m.Node[:])
	c.text("host name", &m.Hostname, MaxName)
	c.ports(&m.Ports)
	c.settings(&m.Settings)
	c.u64(&m.Received)
}

// setup begins a set-up message whose body has n bytes.
func setup(kind uint8, n int) *codec {
	b := append(binary.BigEndian.AppendUint16(make([]byte, 0, setupHeader+n), Magic), Version, kind)
	return &codec{b: binary.BigEndian.AppendUint32(b, uint32(n))}
}

// parseSetup splits one whole set-up message. It accepts one of the kinds given, within the limits of each.
func parseSetup(raw []byte, kinds ...uint8) (kind uint8, body []byte, err error) {
	if len(raw) < setupHeader {
		return 0, nil, errTruncated
	}
	kind, n, err := parseSetupHeader([setupHeader]byte(raw[:setupHeader]), kinds...)
	if err != nil {
		return 0, nil, err
	}
	if n != len(raw)-setupHeader {
		return 0, nil, fmt.Errorf("message says %d bytes and has %d", n, len(raw)-setupHeader)
	}
	return kind, raw[setupHeader:], nil
}

func parseSetupHeader(h [setupHeader]byte, kinds ...uint8) (kind uint8, n int, err error) {
	if m := binary.BigEndian.Uint16(h[:]); m != Magic {
		return 0, 0, fmt.Errorf("message begins with %#04x, not %#04x: this is not the plugin's protocol", m, Magic)
	}
	if v := h[2]; v != Version {
		return 0, 0, &VersionError{Theirs: v}
	}
	kind = h[3]
	size := binary.BigEndian.Uint32(h[4:])
	for _, k := range kinds {
		if k != kind {
			continue
		}
		low, high := uint32(macSize), uint32(maxSetup)
		switch k {
		case setupChallenge:
			low, high = challengeSize, challengeSize
		case setupReject:
			low, high = rejectSize, rejectSize
		case setupLaneHello:
			low, high = laneHelloBody, laneHelloBody
		case setupLaneWelcome:
			low, high = macSize, macSize
		case setupQuery:
			low, high = minQuery, maxQuery
		case setupReply:
			low, high = minReply, maxReply
		}
		if size < low || size > high {
			return 0, 0, fmt.Errorf("message type %#02x has %d bytes, %d to %d are allowed", kind, size, low, high)
		}
		return kind, int(size), nil
	}
	return 0, 0, fmt.Errorf("unexpected message type %#02x", kind)
}

// readSetup reads one set-up message. Memory grows with the bytes that arrive, not with the length that is claimed.
func readSetup(in io.Reader, kinds ...uint8) ([]byte, error) {
	var h [setupHeader]byte
	if _, err := io.ReadFull(in, h[:]); err != nil {
		return nil, err
	}
	_, n, err := parseSetupHeader(h, kinds...)
	var version *VersionError
	if errors.As(err, &version) && binary.BigEndian.Uint32(h[4:]) >= buildSize && version.Theirs > 1 {
		var field [buildSize]byte
		if _, err := io.ReadFull(in, field[:]); err == nil {
			version.Build = buildText(field)
		}
	}
	if err != nil {
		return nil, err
	}
	raw := append(make([]byte, 0, setupHeader+min(n, 1<<10)), h[:]...)
	for n > 0 {
		part := min(n, 1<<10)
		raw = append(raw, make([]byte, part)...)
		if _, err := io.ReadFull(in, raw[len(raw)-part:]); err != nil {
			return nil, noEOF(err)
		}
		n -= part
	}
	return raw, nil
}

// ReadChallenge reads a Challenge, for NewDialler.
func ReadChallenge(in io.Reader) ([]byte, error) { return readSetup(in, setupChallenge) }

// ReadHello reads a Hello, for Exchange.HearHello.
func ReadHello(in io.Reader) ([]byte, error) { return readSetup(in, setupHello) }

// ReadWelcome reads a Welcome or a Reject, for Exchange.HearWelcome.
func ReadWelcome(in io.Reader) ([]byte, error) { return readSetup(in, setupWelcome, setupReject) }

// Reject returns the message that ends an exchange.
func Reject(code RejectCode) []byte {
	c := setup(setupReject, rejectSize)
	c.rejectFields(&code)
	return c.b
}

func (c *codec) rejectFields(code *RejectCode) {
	c.build(new(string))
	c.u8((*uint8)(code))
}

// noEOF turns an end of stream inside a message into what it is.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
