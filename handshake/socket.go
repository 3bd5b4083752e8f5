package handshake

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
)

// What is said first on the TCP connection of a lane, by the side that dialled it and then by the other:
//
//	LaneHello    setup header 8, session 16, connection 4, lane 1, HMAC-SHA-256 32
//	LaneWelcome  setup header 8, HMAC-SHA-256 32
//
// Both MACs cover the LaneHello up to its MAC, then the dialler's token and the listener's, 8 bytes each. The tokens
// come from the session, differ for every lane, and serve once, so that nothing of an earlier exchange is of use.
const (
	laneHelloBody = 16 + 4 + 1 + macSize

	LaneHelloSize   = setupHeader + laneHelloBody
	LaneWelcomeSize = setupHeader + macSize
)

// LaneName names a lane among all of a process, or a hop of a circuit.
type LaneName struct {
	Session SessionID
	Conn    uint32 // the connection's number in the session; the circuit's there
	Lane    uint8  // the lane's number in the connection, below MaxLanes; HopLane
}

// HopLane is the LaneName.Lane of a circuit's hop.
const HopLane = 255

const _ = uint(HopLane - MaxLanes)

// LaneTokens are the tokens that both sides of a lane have told each other over the session.
type LaneTokens struct{ Dialler, Listener uint64 }

// ErrLaneMAC says that the other end of a lane's TCP connection does not belong to the session.
var ErrLaneMAC = errors.New("wrong MAC: the other end does not belong to the session")

// LaneKey is the key of the sockets of all lanes of a session, from the session's resume key.
func (k Key) LaneKey() Key {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte("ncclmesh lanes"))
	return Key(h.Sum(nil))
}

// HopKey is the key of the sockets of all hops of circuits in a session, from the session's resume key.
func (k Key) HopKey() Key {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte("ncclmesh hops"))
	return Key(h.Sum(nil))
}

// CodeKeys are the keys of the codes that authenticate what a lane's socket carries afterwards: what its dialler sends, and
// what its listener does. No other lane, direction or attempt has the same, so that their codes count from 0.
func (k Key) CodeKeys(n LaneName, t LaneTokens) (dialler, listener Key, err error) {
	var c codec
	n.fields(&c)
	t.fields(&c)
	for _, d := range []struct {
		label string
		key   *Key
	}{{"ncclmesh codes of the dialler ", &dialler}, {"ncclmesh codes of the listener ", &listener}} {
		b, err := hkdf.Expand(sha256.New, k[:], d.label+string(c.b), len(d.key))
		if err != nil {
			return Key{}, Key{}, err
		}
		*d.key = Key(b)
	}
	return dialler, listener, nil
}

func (t *LaneTokens) fields(c *codec) {
	c.u64(&t.Dialler)
	c.u64(&t.Listener)
}

func (n *LaneName) fields(c *codec) {
	c.bytes(n.Session[:])
	c.u32(&n.Conn)
	c.u8(&n.Lane)
	if n.Lane != HopLane && n.Lane >= MaxLanes {
		c.fail("lane is %d, at most %d is allowed", n.Lane, MaxLanes-1)
	}
}

// LaneHello is what the dialler says.
func LaneHello(k Key, n LaneName, t LaneTokens) ([LaneHelloSize]byte, error) {
	c := setup(setupLaneHello, laneHelloBody)
	n.fields(c)
	if _, err := c.done("lane hello"); err != nil {
		return [LaneHelloSize]byte{}, err
	}
	mac := laneMAC(k, "ncclmesh lane hello", c.b, t)
	c.bytes(mac[:])
	return [LaneHelloSize]byte(c.b), nil
}

// HearLaneHello reads which lane a connection claims to be. It is to be believed only when CheckLaneHello agrees.
func HearLaneHello(raw [LaneHelloSize]byte) (LaneName, error) {
	_, body, err := parseSetup(raw[:], setupLaneHello)
	if err != nil {
		return LaneName{}, err
	}
	var n LaneName
	c := codec{b: body[:len(body)-macSize], reads: true}
	n.fields(&c)
	if _, err := c.done("lane hello"); err != nil {
		return LaneName{}, err
	}
	return n, nil
}

// CheckLaneHello reports whether a LaneHello was said by the peer of the session.
func CheckLaneHello(k Key, raw [LaneHelloSize]byte, t LaneTokens) error {
	mac := laneMAC(k, "ncclmesh lane hello", raw[:LaneHelloSize-macSize], t)
	if !hmac.Equal(mac[:], raw[LaneHelloSize-macSize:]) {
		return ErrLaneMAC
	}
	return nil
}

// LaneWelcome is the listener's answer to a LaneHello.
func LaneWelcome(k Key, hello [LaneHelloSize]byte, t LaneTokens) [LaneWelcomeSize]byte {
	c := setup(setupLaneWelcome, macSize)
	mac := laneMAC(k, "ncclmesh lane welcome", hello[:LaneHelloSize-macSize], t)
	c.bytes(mac[:])
	return [LaneWelcomeSize]byte(c.b)
}

// CheckLaneWelcome reports whether the answer to a LaneHello was said by the peer of the session.
func CheckLaneWelcome(k Key, raw [LaneWelcomeSize]byte, hello [LaneHelloSize]byte, t LaneTokens) error {
	if _, _, err := parseSetup(raw[:], setupLaneWelcome); err != nil {
		return err
	}
	if want := LaneWelcome(k, hello, t); !hmac.Equal(want[:], raw[:]) {
		return ErrLaneMAC
	}
	return nil
}

func laneMAC(k Key, label string, hello []byte, t LaneTokens) [macSize]byte {
	var c codec
	t.fields(&c)
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(label))
	h.Write(hello)
	h.Write(c.b)
	return [macSize]byte(h.Sum(nil))
}
