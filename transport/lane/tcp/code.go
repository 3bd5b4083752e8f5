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
	CheckAuto = "auto" // lanes that may leave the cable are authenticated
	CheckOff  = "0"    // this side requires authentication of no lane
	CheckOn   = "1"    // every lane is authenticated
)

const (
	codeSize  = 16       // bytes of a code
	pieceSize = 64 << 10 // most bytes that one code covers
)

// coder computes or verifies the authentication codes of one direction of a lane. They are GMAC (AES-GCM
// without plaintext), with a key for this direction only.
//
// Each code has a number, which is its nonce; numbers count from 0 in the order of the bytes. Therefore no
// nonce is used twice, and bytes that are repeated, omitted or moved do not match their code. 2^64 codes are
// more than any lane needs. The zero coder belongs to a lane without authentication.
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

// on reports whether the lane is authenticated.
func (c *coder) on() bool { return c.aead != nil }

// size returns the length of a code, 0 if the lane is not authenticated.
func (c *coder) size() int {
	if c.on() {
		return codeSize
	}
	return 0
}

// piece returns the number of bytes that one code covers, at most.
func (c *coder) piece() int {
	if c.on() {
		return pieceSize
	}
	return 1 << 62
}

// codes returns the number of codes in a frame with a payload of size bytes.
func (c *coder) codes(size int) int {
	if !c.on() {
		return 0
	}
	return 1 + (size+pieceSize-1)/pieceSize
}

// seal computes the code of b with the given number. It returns false if b is user memory that is not mapped.
func (c *coder) seal(code *[codeSize]byte, number uint64, b []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = lane.Mapped(recover()) }()
	binary.BigEndian.PutUint64(c.nonce[4:], number)
	c.aead.Seal(code[:0], c.nonce[:], nil, b)
	return
}

// open reports whether code is the code of b with the given number (right), and whether b, which may be user
// memory, is mapped (ok).
func (c *coder) open(code *[codeSize]byte, number uint64, b []byte) (right, ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { ok = lane.Mapped(recover()) }()
	binary.BigEndian.PutUint64(c.nonce[4:], number)
	_, err := c.aead.Open(nil, c.nonce[:], code[:], b)
	return err == nil, true
}

// useCodes creates the coders of an authenticated lane.
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

// wrapForged returns the error of bytes that do not match their code.
func (k *socket) wrapForged(what string) error {
	return fmt.Errorf("%w: %v: %v, %s: the authentication code of %s is wrong: bytes were altered, lost, repeated or inserted between %s and %s; check the adapters and switches between them, and which machines can reach them",
		fault.ErrLane, k.lane.Conn, k.lane, k.Terms(), what, k.lane.Conn.Session.LocalName(), k.lane.Conn.Session.Name())
}

// wantsCheck reports whether this side requires authentication of a lane between the addresses own and peer on
// port p. With CheckAuto, a lane that stays on its cable, as far as this side can see, is trusted like an RDMA
// lane: both addresses are in a subnet of the interface, and no default route leads out of it.
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
