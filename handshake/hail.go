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

// SealHail returns the datagram of a query.
func SealHail(s Secret, m *Hail) ([]byte, error) {
	w := writer{}
	w.bytes(m.Nonce[:])
	w.bytes(m.Process[:])
	w.bytes(m.Node[:])
	w.u8(m.Port)
	w.text(m.Name, MaxLinkName)
	return sealHail(s, setupHail, "neighbour query", w)
}

// OpenHail decodes and authenticates a query.
func OpenHail(s Secret, raw []byte) (Hail, error) {
	r, err := openHail(s, setupHail, raw)
	if err != nil {
		return Hail{}, fmt.Errorf("neighbour query: %w", err)
	}
	m := Hail{Nonce: r.id(), Process: r.id(), Node: r.id(), Port: r.u8(), Name: r.text("interface's name", MaxLinkName)}
	if err := r.done("neighbour query"); err != nil {
		return Hail{}, err
	}
	return m, nil
}

// SealHailAnswer returns the datagram of an answer.
func SealHailAnswer(s Secret, m *HailAnswer) ([]byte, error) {
	w := writer{}
	w.bytes(m.Nonce[:])
	w.bytes(m.Process[:])
	w.bytes(m.Node[:])
	if m.Control == 0 {
		w.fail("the control port is 0: it is not open")
	}
	w.u16(m.Control)
	w.u8(m.Port)
	w.text(m.Name, MaxLinkName)
	w.flag(m.Dedicated)
	return sealHail(s, setupHailAnswer, "neighbour's answer", w)
}

// OpenHailAnswer decodes and authenticates an answer.
func OpenHailAnswer(s Secret, raw []byte) (HailAnswer, error) {
	r, err := openHail(s, setupHailAnswer, raw)
	if err != nil {
		return HailAnswer{}, fmt.Errorf("neighbour's answer: %w", err)
	}
	m := HailAnswer{Nonce: r.id(), Process: r.id(), Node: r.id(), Control: r.u16(), Port: r.u8(),
		Name: r.text("interface's name", MaxLinkName), Dedicated: r.flag("dedicated")}
	if m.Control == 0 {
		r.fail("the control port is 0")
	}
	if err := r.done("neighbour's answer"); err != nil {
		return HailAnswer{}, err
	}
	return m, nil
}

func sealHail(s Secret, kind uint8, what string, w writer) ([]byte, error) {
	body, err := w.done(what)
	if err != nil {
		return nil, err
	}
	m := setup(kind, len(body)+macSize)
	m.bytes(body)
	mac := hailMAC(s, m.b)
	m.bytes(mac[:])
	return m.b, nil
}

// openHail returns what is between the header and the MAC, which is right.
func openHail(s Secret, kind uint8, raw []byte) (*reader, error) {
	_, body, err := parseSetup(raw, kind)
	if err != nil {
		return nil, err
	}
	end := len(raw) - macSize
	if mac := hailMAC(s, raw[:end]); !hmac.Equal(mac[:], raw[end:]) {
		return nil, ErrHailMAC
	}
	return &reader{b: body[:len(body)-macSize]}, nil
}

func hailMAC(s Secret, said []byte) [macSize]byte {
	h := hmac.New(sha256.New, s[:])
	h.Write([]byte("ncclmesh hail"))
	h.Write(said)
	return [macSize]byte(h.Sum(nil))
}
