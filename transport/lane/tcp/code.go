package tcp

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime/debug"

	"ncclmesh/handshake"
	"ncclmesh/transport/dataport"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

// Values of Options.Check.
const (
	CheckAuto = "auto" // lanes that may leave the cable are checked
	CheckOff  = "0"    // no lane is checked for this side's sake
	CheckOn   = "1"    // every lane is checked
)

const (
	codeSize  = 16       // bytes of a code
	pieceSize = 64 << 10 // most bytes that one code covers
)

// coder makes or checks the codes of one direction of a lane: GMAC, AES in Galois
// counter mode over no text, with a key of its own.
//
// Every code has a number, which is its nonce: they count from 0 in the order of
// the bytes that they cover. So no nonce comes twice, bytes that are repeated, left
// out or moved do not fit their code, and 2^64 codes outlast any lane. The zero
// coder is that of a lane which is not checked.
type coder struct {
	aead  cipher.AEAD
	nonce [12]byte
	next  uint64 // number of the next code
}

func newCoder(key handshake.Key) (c coder, err error) {
	block, err := aes.NewCipher(key[:])
	if err == nil {
		c.aead, err = cipher.NewGCM(block)
	}
	return c, err
}

// on reports whether the lane is checked.
func (c *coder) on() bool { return c.aead != nil }

// size is the length of a code: 0 where there is none.
func (c *coder) size() int {
	if c.on() {
		return codeSize
	}
	return 0
}

// piece is how many bytes one code covers at most.
func (c *coder) piece() int {
	if c.on() {
		return pieceSize
	}
	return 1 << 62
}

// codes is how many codes a frame has that carries so many bytes.
func (c *coder) codes(size int) int {
	if !c.on() {
		return 0
	}
	return 1 + (size+pieceSize-1)/pieceSize
}

// seal writes the code of b that has a number. It reports false when b is the
// user's and not mapped.
func (c *coder) seal(code *[codeSize]byte, number uint64, b []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = lane.Mapped(recover()) }()
	binary.BigEndian.PutUint64(c.nonce[4:], number)
	c.aead.Seal(code[:0], c.nonce[:], nil, b)
	return
}

// open reports whether the code of b with that number is the given one, and
// whether b, which may be the user's, is mapped.
func (c *coder) open(code *[codeSize]byte, number uint64, b []byte) (right, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = lane.Mapped(recover()) }()
	binary.BigEndian.PutUint64(c.nonce[4:], number)
	_, err := c.aead.Open(nil, c.nonce[:], code[:], b)
	return err == nil, true
}

// useCodes makes the coders of a lane that is checked.
func (k *socket) useCodes(end dataport.End) error {
	ours, theirs, err := end.Key.CodeKeys(end.Name, end.Tokens)
	if err != nil {
		return err
	}
	if !k.lane.Conn.Sending { // the sender dials
		ours, theirs = theirs, ours
	}
	if k.sealer, err = newCoder(ours); err != nil {
		return err
	}
	k.opener, err = newCoder(theirs)
	return err
}

// wrapForged is the error of bytes that do not fit their code.
func (k *socket) wrapForged(what string) error {
	return fmt.Errorf("%w: %v: %v, %s: the authentication code of %s is wrong: bytes were altered, lost, repeated or inserted between %s and %s; check the adapters and switches between them, and which machines can reach them",
		fault.ErrLane, k.lane.Conn, k.lane, k.Terms(), what, k.lane.Conn.Session.LocalName(), k.lane.Conn.Session.Name())
}

// wantsCheck reports whether this side wants the bytes of a lane between own and
// peer to be authenticated. A lane that does not leave its cable, as far as this
// side can see, is trusted like one of RDMA: both addresses are in the subnet of
// the interface, and no default route leads out of it.
func wantsCheck(policy string, own, peer netip.Addr, p *topology.Port) bool {
	if policy != CheckAuto {
		return policy == CheckOn
	}
	own, peer = own.Unmap().WithZone(""), peer.Unmap().WithZone("")
	onLink := own.IsLinkLocalUnicast() && peer.IsLinkLocalUnicast()
	for _, a := range p.Addrs {
		onLink = onLink || a.Addr() == own && a.Contains(peer)
	}
	return !onLink || p.Default
}
