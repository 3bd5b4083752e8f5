package handshake

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"

	"ncclmesh/random"
)

// Neighbour discovery: the query and the answer, a UDP datagram each, on one cable:
//
//	Hail        setup header 8, nonce 16, process 16, node 16, port 1, name 2 and up to 15, HMAC-SHA-256 32
//	HailAnswer  setup header 8, nonce 16, process 16, node 16, control port 2, port 1, name 2 and up to 15, dedicated 1,
//	            HMAC-SHA-256 32
//
// The MACs cover what is before them, under the discovery secret: where no key is set everybody can make them.
const (
	minHail       = 16 + 16 + 16 + 1 + 2 + macSize
	maxHail       = minHail + MaxLinkName
	minHailAnswer = minHail + 2 + 1
	maxHailAnswer = minHailAnswer + MaxLinkName

	// MaxHailSize is the size of the largest datagram.
	MaxHailSize = setupHeader + maxHailAnswer
)

// HailNonce is made for each query; the answer repeats it.
type HailNonce [16]byte

// NewHailNonce returns a random nonce.
func NewHailNonce(r random.Source) (n HailNonce) {
	r.Fill(n[:], "nonce of questions")
	return n
}

// Hail is the query of neighbour discovery: which process is at the other end of a cable?
type Hail struct {
	Nonce   HailNonce
	Process ProcessID
	Node    NodeID
	Port    uint8  // Port.Index at the node that sends the query
	Name    string // of that port's network interface
}

// HailAnswer is the answer of a process at the other end of a cable.
type HailAnswer struct {
	Nonce     HailNonce
	Process   ProcessID
	Node      NodeID
	Control   uint16 // its control port
	Port      uint8  // Port.Index there
	Name      string // of that port's network interface
	Dedicated bool   // the process only relays
}

// ErrHailMAC says that a datagram was not made under the discovery secret.
var ErrHailMAC = errors.New("wrong MAC: that node has another NCCL_MESH_KEY, or none")

// HailSecret returns the secret that authenticates neighbour discovery, and sessions with neighbours. Without a key every
// process can compute it: each process at the other end of a cable is trusted.
func HailSecret(key []byte) Secret {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("ncclmesh neighbours"))
	return Secret(h.Sum(nil)[:len(Secret{})])
}

func (m *Hail) fields(c *codec) {
	c.bytes(m.Nonce[:])
	c.bytes(m.Process[:])
	c.bytes(m.Node[:])
	c.u8(&m.Port)
	c.text("interface's name", &m.Name, MaxLinkName)
}

func (m *HailAnswer) fields(c *codec) {
	c.bytes(m.Nonce[:])
	c.bytes(m.Process[:])
	c.bytes(m.Node[:])
	c.u16(&m.Control)
	if m.Control == 0 {
		c.fail("the control port is 0: it is not open")
	}
	c.u8(&m.Port)
	c.text("interface's name", &m.Name, MaxLinkName)
	c.flag("dedicated", &m.Dedicated)
}

// SealHail returns the datagram of a query.
func SealHail(s Secret, m *Hail) ([]byte, error) {
	return sealHail(s, setupHail, "neighbour query", m.fields)
}

// OpenHail decodes and authenticates a query.
func OpenHail(s Secret, raw []byte) (m Hail, err error) {
	err = openHail(s, setupHail, "neighbour query", raw, m.fields)
	return m, err
}

// SealHailAnswer returns the datagram of an answer.
func SealHailAnswer(s Secret, m *HailAnswer) ([]byte, error) {
	return sealHail(s, setupHailAnswer, "neighbour's answer", m.fields)
}

// OpenHailAnswer decodes and authenticates an answer.
func OpenHailAnswer(s Secret, raw []byte) (m HailAnswer, err error) {
	err = openHail(s, setupHailAnswer, "neighbour's answer", raw, m.fields)
	return m, err
}

func sealHail(s Secret, kind uint8, what string, fields func(*codec)) ([]byte, error) {
	var c codec
	fields(&c)
	body, err := c.done(what)
	if err != nil {
		return nil, err
	}
	m := setup(kind, len(body)+macSize)
	m.bytes(body)
	mac := hailMAC(s, m.b)
	m.bytes(mac[:])
	return m.b, nil
}

// openHail reads what is between the header and the MAC, if that is right.
func openHail(s Secret, kind uint8, what string, raw []byte, fields func(*codec)) error {
	_, body, err := parseSetup(raw, kind)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	end := len(raw) - macSize
	if mac := hailMAC(s, raw[:end]); !hmac.Equal(mac[:], raw[end:]) {
		return fmt.Errorf("%s: %w", what, ErrHailMAC)
	}
	c := codec{b: body[:len(body)-macSize], reads: true}
	fields(&c)
	_, err = c.done(what)
	return err
}

func hailMAC(s Secret, said []byte) [macSize]byte {
	h := hmac.New(sha256.New, s[:])
	h.Write([]byte("ncclmesh hail"))
	h.Write(said)
	return [macSize]byte(h.Sum(nil))
}
