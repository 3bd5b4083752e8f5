package handshake

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"ncclmesh/random"
)

// Key authenticates one thing: a message of the exchange, one direction of a link, or the resumption of a session.
type Key [32]byte

// String hides the key, so that it cannot reach a log by accident.
func (Key) String() string { return "(key)" }

// GoString hides the key from %#v.
func (Key) GoString() string { return "handshake.Key{...}" }

// Keys is what a completed exchange leaves.
type Keys struct {
	Send, Recv Key       // for the two directions, seen from this side
	Session    SessionID // for a new session: its id
	Resume     Key       // for a new session: the secret of later exchanges that resume it
}

// Exchange is one run of the set-up on one TCP connection. The listener calls NewListener, sends what it returns, and
// then calls HearHello, Verify, SayWelcome; the dialler calls NewDialler, SayHello, HearWelcome. The type does no I/O.
type Exchange struct {
	challenge [nonceSize]byte
	nonce     [nonceSize]byte // the dialler's
	said      []byte          // every byte both sides exchanged, without MACs
	mac       [macSize]byte   // of a Hello not yet verified
	prk       []byte
	verified  bool
}

// ErrMAC says that the other side of an exchange does not hold the secret.
var ErrMAC = errors.New("wrong MAC: the other side does not know the secret")

// NewListener begins an exchange on the listening side and returns the Challenge to send.
func NewListener(process ProcessID, draws random.Source) (*Exchange, []byte) {
	x := new(Exchange)
	draws.Fill(x.challenge[:], "challenge")
	return x, x.challengeMessage(process)
}

func (x *Exchange) challengeMessage(process ProcessID) []byte {
	tag := processTag(process, x.challenge)
	c := setup(setupChallenge, challengeSize)
	x.challengeFields(c, &tag)
	x.said = append(x.said, c.b...)
	return c.b
}

func (x *Exchange) challengeFields(c *codec, tag *[16]byte) {
	c.build(new(string))
	c.bytes(x.challenge[:])
	c.bytes(tag[:])
}

// processTag tells the bearer of a handle, and nobody else, which process is speaking.
func processTag(process ProcessID, nonce [nonceSize]byte) [16]byte {
	h := sha256.New()
	h.Write([]byte("ncclmesh process"))
	h.Write(process[:])
	h.Write(nonce[:])
	return [16]byte(h.Sum(nil))
}

// NewDialler begins an exchange on the dialling side with the listener's Challenge. The error is ErrOtherProcess when
// it is not process that listens there.
func NewDialler(process ProcessID, challenge []byte, draws random.Source) (*Exchange, error) {
	_, body, err := parseSetup(challenge, setupChallenge)
	if err != nil {
		return nil, fmt.Errorf("challenge: %w", err)
	}
	x := new(Exchange)
	var tag [16]byte
	c := codec{b: body, reads: true}
	x.challengeFields(&c, &tag)
	if _, err := c.done("challenge"); err != nil {
		return nil, err
	}
	if want := processTag(process, x.challenge); !hmac.Equal(want[:], tag[:]) {
		return nil, ErrOtherProcess
	}
	draws.Fill(x.nonce[:], "nonce")
	x.said = append(x.said, challenge...)
	return x, nil
}

// extract derives the exchange's key from the secret and both nonces.
func (x *Exchange) extract(secret []byte) error {
	salt := append(append(make([]byte, 0, 2*nonceSize), x.challenge[:]...), x.nonce[:]...)
	prk, err := hkdf.Extract(sha256.New, secret, salt)
	x.prk = prk
	return err
}

// expand derives a key from the exchange's key; info binds it to what was said.
func (x *Exchange) expand(info string) (k Key, err error) {
	b, err := hkdf.Expand(sha256.New, x.prk, info, len(k))
	copy(k[:], b)
	return k, err
}

// seal appends the MAC of everything said, this message included.
func (x *Exchange) seal(label string, msg []byte) ([]byte, error) {
	x.said = append(x.said, msg...)
	mac, err := x.sum(label)
	return append(msg, mac[:]...), err
}

func (x *Exchange) sum(label string) (mac [macSize]byte, err error) {
	key, err := x.expand(label)
	if err != nil {
		return mac, err
	}
	h := hmac.New(sha256.New, key[:])
	h.Write(x.said)
	h.Sum(mac[:0])
	return mac, nil
}

// keys derives the keys of the link once both sides have proved themselves.
func (x *Exchange) keys(dialler bool) (Keys, error) {
	said := sha256.Sum256(x.said)
	var k Keys
	var id Key
	for _, d := range []struct {
		label string
		key   *Key
	}{
		{"ncclmesh frames of the dialler ", &k.Send},
		{"ncclmesh frames of the listener ", &k.Recv},
		{"ncclmesh resume ", &k.Resume},
		{"ncclmesh session ", &id},
	} {
		var err error
		if *d.key, err = x.expand(d.label + string(said[:])); err != nil {
			return Keys{}, err
		}
	}
	copy(k.Session[:], id[:])
	if !dialler {
		k.Send, k.Recv = k.Recv, k.Send
	}
	return k, nil
}

// SayHello returns the dialler's message, under the listen's secret or the session's resume key.
func (x *Exchange) SayHello(secret []byte, h *Hello) ([]byte, error) {
	var c codec
	h.fields(&c, &x.nonce)
	body, err := c.doneSetup("hello")
	if err != nil {
		return nil, err
	}
	if err := x.extract(secret); err != nil {
		return nil, err
	}
	m := setup(setupHello, len(body)+macSize)
	m.bytes(body)
	return x.seal("ncclmesh hello", m.b)
}

// doneSetup is done for a message whose size depends on what a node has.
func (c *codec) doneSetup(what string) ([]byte, error) {
	if len(c.b)+macSize > maxSetup {
		c.fail("%d bytes, at most %d are allowed: too many ports and addresses", len(c.b), maxSetup-macSize)
	}
	return c.done(what)
}

// HearHello reads the dialler's message. Nothing in it is to be believed before Verify.
func (x *Exchange) HearHello(raw []byte) (*Hello, error) {
	_, body, err := parseSetup(raw, setupHello)
	if err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	var h Hello
	var nonce [nonceSize]byte
	c := codec{b: body[:len(body)-macSize], reads: true}
	h.fields(&c, &nonce)
	if _, err := c.done("hello"); err != nil {
		return nil, err
	}
	x.nonce = nonce
	x.said = append(x.said, raw[:len(raw)-macSize]...)
	x.mac = [macSize]byte(body[len(body)-macSize:])
	return &h, nil
}

// Verify checks that the speaker of the Hello knows the secret.
func (x *Exchange) Verify(secret []byte) error {
	if err := x.extract(secret); err != nil {
		return err
	}
	mac, err := x.sum("ncclmesh hello")
	if err != nil {
		return err
	}
	if !hmac.Equal(mac[:], x.mac[:]) {
		return ErrMAC
	}
	x.verified = true
	return nil
}

// SayWelcome returns the listener's answer and the keys of the link.
//
// Preconditions: Verify returned nil.
func (x *Exchange) SayWelcome(m *Welcome) ([]byte, Keys, error) {
	if !x.verified {
		return nil, Keys{}, ErrMAC
	}
	var c codec
	m.fields(&c)
	body, err := c.doneSetup("welcome")
	if err != nil {
		return nil, Keys{}, err
	}
	s := setup(setupWelcome, len(body)+macSize)
	s.bytes(body)
	raw, err := x.seal("ncclmesh welcome", s.b)
	if err != nil {
		return nil, Keys{}, err
	}
	keys, err := x.keys(false)
	return raw, keys, err
}

// HearWelcome reads and verifies the listener's answer. The error is a *RejectError when it refuses.
func (x *Exchange) HearWelcome(raw []byte) (*Welcome, Keys, error) {
	kind, body, err := parseSetup(raw, setupWelcome, setupReject)
	if err != nil {
		return nil, Keys{}, fmt.Errorf("welcome: %w", err)
	}
	if kind == setupReject {
		var code RejectCode
		c := codec{b: body, reads: true}
		c.rejectFields(&code)
		if _, err := c.done("reject"); err != nil {
			return nil, Keys{}, err
		}
		return nil, Keys{}, &RejectError{code}
	}
	x.said = append(x.said, raw[:len(raw)-macSize]...)
	mac, err := x.sum("ncclmesh welcome")
	if err != nil {
		return nil, Keys{}, err
	}
	if !hmac.Equal(mac[:], body[len(body)-macSize:]) {
		return nil, Keys{}, ErrMAC
	}
	var m Welcome
	c := codec{b: body[:len(body)-macSize], reads: true}
	m.fields(&c)
	if _, err := c.done("welcome"); err != nil {
		return nil, Keys{}, err
	}
	keys, err := x.keys(true)
	return &m, keys, err
}

// Proof shows, within an authenticated session, that the sender of Open holds the handle of a listen.
func Proof(secret Secret, session SessionID, listen, conn uint32) [32]byte {
	h := hmac.New(sha256.New, secret[:])
	h.Write([]byte("ncclmesh open"))
	h.Write(session[:])
	var n [8]byte
	binary.BigEndian.PutUint32(n[:4], listen)
	binary.BigEndian.PutUint32(n[4:], conn)
	h.Write(n[:])
	return [32]byte(h.Sum(nil))
}

// CheckProof compares in constant time.
func CheckProof(secret Secret, session SessionID, listen, conn uint32, proof [32]byte) bool {
	want := Proof(secret, session, listen, conn)
	return hmac.Equal(want[:], proof[:])
}
