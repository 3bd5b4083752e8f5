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
//	NeighbourQuery        setup header 8, nonce 16, process 16, node 16, port 1, name 2 and up to 15, HMAC-SHA-256 32
//	NeighbourReply  setup header 8, nonce 16, process 16, node 16, control port 2, port 1, name 2 and up to 15, dedicated 1,
//	            HMAC-SHA-256 32
//
// The MACs cover what is before them, under the discovery secret: where no key is set everybody can make them.
const (
	minQuery = 16 + 16 + 16 + 1 + 2 + macSize
	maxQuery = minQuery + MaxLinkName
	minReply = minQuery + 2 + 1
	maxReply = minReply + MaxLinkName

	// MaxNeighbourSize is the size of the largest datagram.
	MaxNeighbourSize = setupHeader + maxReply
)

// NeighbourNonce is made for each query; the answer repeats it.
type NeighbourNonce [16]byte

// NewNeighbourNonce returns a random nonce.
func NewNeighbourNonce(r random.Source) (n NeighbourNonce) {
	r.Fill(n[:], "nonce of questions")
	return n
}

// NeighbourQuery is the query of neighbour discovery: which process is at the other end of a cable?
type NeighbourQuery struct {
	Nonce   NeighbourNonce
	Process ProcessID
	Node    NodeID
	Port    uint8  // Port.Index at the node that sends the query
	Name    string // of that port's network interface
}

// NeighbourReply is the answer of a process at the other end of a cable.
type NeighbourReply struct {
	Nonce     NeighbourNonce
	Process   ProcessID
	Node      NodeID
	Control   uint16 // its control port
	Port      uint8  // Port.Index there
	Name      string // of that port's network interface
	Dedicated bool   // the process only relays
}

// ErrNeighbourMAC says that a datagram was not made under the discovery secret.
var ErrNeighbourMAC = errors.New("wrong MAC: that node has another NCCL_MESH_KEY, or none")

// NeighbourSecret returns the secret that authenticates neighbour discovery, and sessions with neighbours. Without a key every
// process can compute it: each process at the other end of a cable is trusted.
func NeighbourSecret(key []byte) Secret {
	h := hmac.New(sha256.New, key)
	h.Write([]byte("ncclmesh neighbours"))
	return Secret(h.Sum(nil)[:len(Secret{})])
}

func (m *NeighbourQuery) fields(c *codec) {
	c.bytes(m.Nonce[:])
	c.bytes(m.Process[:])
	c.bytes(m.Node[:])
	c.u8(&m.Port)
	c.text("interface's name", &m.Name, MaxLinkName)
}

func (m *NeighbourReply) fields(c *codec) {
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

// SealNeighbourQuery returns the datagram of a query.
func SealNeighbourQuery(s Secret, m *NeighbourQuery) ([]byte, error) {
	return sealNeighbour(s, setupQuery, "neighbour query", m.fields)
}

// OpenNeighbourQuery decodes and authenticates a query.
func OpenNeighbourQuery(s Secret, raw []byte) (m NeighbourQuery, err error) {
	err = openNeighbour(s, setupQuery, "neighbour query", raw, m.fields)
	return m, err
}

// SealNeighbourReply returns the datagram of an answer.
func SealNeighbourReply(s Secret, m *NeighbourReply) ([]byte, error) {
	return sealNeighbour(s, setupReply, "neighbour's answer", m.fields)
}

// OpenNeighbourReply decodes and authenticates an answer.
func OpenNeighbourReply(s Secret, raw []byte) (m NeighbourReply, err error) {
	err = openNeighbour(s, setupReply, "neighbour's answer", raw, m.fields)
	return m, err
}

func sealNeighbour(s Secret, kind uint8, what string, fields func(*codec)) ([]byte, error) {
	var c codec
	fields(&c)
	body, err := c.done(what)
	if err != nil {
		return nil, err
	}
	m := setup(kind, len(body)+macSize)
	m.bytes(body)
	mac := neighbourMAC(s, m.b)
	m.bytes(mac[:])
	return m.b, nil
}

// openNeighbour reads what is between the header and the MAC, if that is right.
func openNeighbour(s Secret, kind uint8, what string, raw []byte, fields func(*codec)) error {
	_, body, err := parseSetup(raw, kind)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	end := len(raw) - macSize
	if mac := neighbourMAC(s, raw[:end]); !hmac.Equal(mac[:], raw[end:]) {
		return fmt.Errorf("%s: %w", what, ErrNeighbourMAC)
	}
	c := codec{b: body[:len(body)-macSize], reads: true}
	fields(&c)
	_, err = c.done(what)
	return err
}

func neighbourMAC(s Secret, said []byte) [macSize]byte {
	h := hmac.New(sha256.New, s[:])
	h.Write([]byte("ncclmesh hail"))
	h.Write(said)
	return [macSize]byte(h.Sum(nil))
}
