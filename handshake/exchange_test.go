package handshake

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func testPorts() []Port {
	return []Port{
		{Index: 1, Device: "rocep1s0f0", Num: 1, Netdev: "enp1s0f0np0", LinkLayer: IBV_LINK_LAYER_ETHERNET, MTU: 3, NetdevMTU: 1500, MaxMsgSize: 1 << 30, SpeedMbps: 200000,
			Addrs: []PortAddr{{Addr: netip.AddrFrom16(fill(0x70)), GIDIndex: 3, GIDType: GIDTypeRoCEv2, PrefixLen: 24}, {Addr: netip.AddrFrom16(fill(0x71)), GIDType: GIDTypeNone, PrefixLen: 128}}},
		{Index: 2, Device: "ibp1s0", Num: 2, LinkLayer: IBV_LINK_LAYER_INFINIBAND, LID: 0x1122, MTU: 5},
	}
}

func testSettings() []Setting {
	return []Setting{
		{Name: "NCCL_MESH_TOPOLOGY", Value: "ring", Rule: RuleSame},
		{Name: "NCCL_IB_HCA", Value: "^x", LeftOut: "x:1"},
	}
}

func testHello() *Hello {
	return &Hello{
		Process: fill(0x01), Node: fill(0x02), Hostname: "spark-a", Port: 0x1234,
		Addrs:  []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::1")},
		Listen: 0xa1a2a3a4, Ports: testPorts(), Settings: testSettings(), Build: "1.0-dev",
		Session: fill(0x80), Accepted: true, Received: 9,
	}
}

func testWelcome() *Welcome {
	return &Welcome{Process: fill(0x03), Node: fill(0x04), Hostname: "spark-b", Ports: testPorts()[1:], Settings: testSettings()[:1], Received: 8}
}

const goldenPort2 = `02 0006 696270317330 02 0000 01 1122 05 00000000 00000000 00000000 00`

const goldenPorts = `02
	01 000a 726f636570317330 6630 01 000b 656e703173306630 6e7030 02 0000 03 000005dc 40000000 00030d40 02
	707172737475767778797a7b7c7d7e7f 0003 02 18
	7172737475767778797a7b7c7d7e7f80 0000 ff 80` + goldenPort2

const goldenSetting1 = `0012 4e43434c5f4d4553485f544f504f4c4f4759 0004 72696e67 02 0000`

const goldenSettings = `02` + goldenSetting1 + `000b 4e43434c5f49425f484341 0002 5e78 00 0003 783a31`

// goldenBuild is 1.0-dev, which the tests are.
const goldenBuild = `312e302d646576 0000000000000000000000000000000000`

const goldenHello = goldenBuild + `
	505152535455565758595a5b5c5d5e5f606162636465666768696a6b6c6d6e6f
	0102030405060708090a0b0c0d0e0f10 02030405060708090a0b0c0d0e0f1011
	0007 737061726b2d61 1234 02 04 0a010203 06 20010db8000000000000000000000001
	a1a2a3a4` + goldenPorts + goldenSettings + `808182838485868788898a8b8c8d8e8f 01 0000000000000009`

const goldenWelcome = `
	030405060708090a0b0c0d0e0f101112 0405060708090a0b0c0d0e0f10111213 0007 737061726b2d62
	01` + goldenPort2 + `01` + goldenSetting1 + `0000000000000008`

// TestExchangeGolden fixes every byte and every key of one exchange; the MACs are computed anew from the description.
func TestExchangeGolden(t *testing.T) {
	secret := fill(0x20)
	process := ProcessID(fill(0x03))
	l := &Exchange{challenge: fill32(0x10)}
	challenge := l.challengeMessage(process)
	tag := sha256.Sum256(append(append([]byte("ncclmesh process"), process[:]...), l.challenge[:]...))
	check := func(what string, want, got []byte) {
		t.Helper()
		if diff := cmp.Diff(hex.EncodeToString(want), hex.EncodeToString(got)); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("challenge", append(unhex(t, "4e4d 0a 81 00000048"+goldenBuild+"101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f"), tag[:16]...), challenge)

	d, err := NewDialler(process, challenge, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.nonce = fill32(0x50)
	prk, err := hkdf.Extract(sha256.New, secret[:], append(append([]byte{}, l.challenge[:]...), d.nonce[:]...))
	if err != nil {
		t.Fatal(err)
	}
	key := func(info string) []byte {
		k, err := hkdf.Expand(sha256.New, prk, info, 32)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	mac := func(label string, text []byte) []byte {
		h := hmac.New(sha256.New, key(label))
		h.Write(text)
		return h.Sum(nil)
	}

	hello, err := d.SayHello(secret[:], testHello())
	if err != nil {
		t.Fatal(err)
	}
	body := unhex(t, goldenHello)
	said := append(append(append([]byte{}, challenge...), unhex(t, "4e4d 0a 82 000001")...), byte(len(body)+32-256))
	said = append(said, body...)
	check("hello", append(append([]byte{}, said[len(challenge):]...), mac("ncclmesh hello", said)...), hello)

	heard, err := l.HearHello(hello)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testHello(), heard, equalAddrs); diff != "" {
		t.Errorf("hello (-want +got):\n%s", diff)
	}
	if err := l.Verify(secret[:]); err != nil {
		t.Fatal(err)
	}
	welcome, lkeys, err := l.SayWelcome(testWelcome())
	if err != nil {
		t.Fatal(err)
	}
	body = unhex(t, goldenWelcome)
	start := len(said)
	said = append(append(append(said, unhex(t, "4e4d 0a 83 000000")...), byte(len(body)+32)), body...)
	check("welcome", append(append([]byte{}, said[start:]...), mac("ncclmesh welcome", said)...), welcome)

	answer, dkeys, err := d.HearWelcome(welcome)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(testWelcome(), answer, equalAddrs); diff != "" {
		t.Errorf("welcome (-want +got):\n%s", diff)
	}
	all := sha256.Sum256(said)
	check("dialler's key", key("ncclmesh frames of the dialler "+string(all[:])), dkeys.Send[:])
	check("listener's key", key("ncclmesh frames of the listener "+string(all[:])), dkeys.Recv[:])
	check("resume key", key("ncclmesh resume "+string(all[:])), dkeys.Resume[:])
	check("session", key("ncclmesh session " + string(all[:]))[:16], dkeys.Session[:])
	lkeys.Send, lkeys.Recv = lkeys.Recv, lkeys.Send
	if lkeys != dkeys {
		t.Error("the two sides have different keys")
	}
}

// exchange runs one exchange and lets change spoil one of its messages (1 Challenge, 2 Hello, 3 Welcome).
func exchange(dialler, listener Secret, message int, change func([]byte) []byte) (Keys, Keys, error) {
	spoil := func(n int, b []byte) []byte {
		if n == message {
			return change(bytes.Clone(b))
		}
		return b
	}
	process := ProcessID(fill(0x03))
	l, challenge := NewListener(process, nil)
	d, err := NewDialler(process, spoil(1, challenge), nil)
	if err != nil {
		return Keys{}, Keys{}, err
	}
	hello, err := d.SayHello(dialler[:], testHello())
	if err != nil {
		return Keys{}, Keys{}, err
	}
	if _, err := l.HearHello(spoil(2, hello)); err != nil {
		return Keys{}, Keys{}, err
	}
	if err := l.Verify(listener[:]); err != nil {
		return Keys{}, Keys{}, err
	}
	welcome, lk, err := l.SayWelcome(testWelcome())
	if err != nil {
		return Keys{}, Keys{}, err
	}
	_, dk, err := d.HearWelcome(spoil(3, welcome))
	return lk, dk, err
}

func TestExchangeRefusesEveryChangedBit(t *testing.T) {
	secret := Secret(fill(0x20))
	process := ProcessID(fill(0x03))
	_, challenge := NewListener(process, nil)
	sizes := map[int]int{1: len(challenge), 2: setupHeader + len(unhex(t, goldenHello)) + macSize, 3: setupHeader + len(unhex(t, goldenWelcome)) + macSize}
	for message, size := range sizes {
		for bit := range 8 * size {
			_, _, err := exchange(secret, secret, message, func(b []byte) []byte {
				if len(b) != size {
					t.Fatalf("message %d has %d bytes, not %d", message, len(b), size)
				}
				b[bit/8] ^= 1 << (bit % 8)
				return b
			})
			if err == nil {
				t.Errorf("message %d was taken with bit %d changed", message, bit)
			}
		}
	}
	if _, _, err := exchange(secret, secret, 0, nil); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}

func TestExchangeRefuses(t *testing.T) {
	secret, other := Secret(fill(0x20)), Secret(fill(0x21))
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	tests := []struct {
		name    string
		dialler Secret
		message int
		change  func([]byte) []byte
		want    func(error) bool
	}{
		{"another secret", other, 0, nil, func(err error) bool { return errors.Is(err, ErrMAC) }},
		{"another version in the challenge", secret, 1, func(b []byte) []byte { b[2] = 1; return b }, isVersion(1)},
		{"another version in the hello", secret, 2, func(b []byte) []byte { b[2]++; return b }, isVersion(Version + 1)},
		{"another version in the welcome", secret, 3, func(b []byte) []byte { b[2]++; return b }, isVersion(Version + 1)},
		{"another process", secret, 1, func(b []byte) []byte { b[len(b)-1]++; return b }, func(err error) bool { return errors.Is(err, ErrOtherProcess) }},
		{"cut challenge", secret, 1, cut, says("message says 72 bytes and has 71")},
		{"cut hello", secret, 2, cut, says("bytes and has")},
		{"cut welcome", secret, 3, cut, says("bytes and has")},
		{"empty hello", secret, 2, func([]byte) []byte { return nil }, says("ends too early")},
		{"no MAC", secret, 2, func(b []byte) []byte { b[4], b[5], b[6], b[7] = 0, 0, 0, 31; return b[:setupHeader+31] }, says("31 bytes, 32 to")},
		{"other protocol", secret, 1, func([]byte) []byte { return []byte("SSH-2.0-OpenSSH_9.2p1\r\n") }, says("not the plugin's protocol")},
		{"welcome for a challenge", secret, 1, func(b []byte) []byte { b[3] = setupWelcome; return b }, says("unexpected message type")},
		{"rejected", secret, 3, func([]byte) []byte { return Reject(RejectListen) }, func(err error) bool {
			var reject *RejectError
			return errors.As(err, &reject) && reject.Code == RejectListen
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, _, err := exchange(tt.dialler, secret, tt.message, tt.change); err == nil || !tt.want(err) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func isVersion(v uint8) func(error) bool {
	return func(err error) bool {
		var version *VersionError
		return errors.As(err, &version) && version.Theirs == v
	}
}

func says(text string) func(error) bool {
	return func(err error) bool { return strings.Contains(err.Error(), text) }
}

func TestWelcomeOnlyAfterVerify(t *testing.T) {
	l, challenge := NewListener(ProcessID{}, nil)
	d, err := NewDialler(ProcessID{}, challenge, nil)
	if err != nil {
		t.Fatal(err)
	}
	hello, err := d.SayHello([]byte("wrong"), testHello())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.HearHello(hello); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.SayWelcome(testWelcome()); err == nil {
		t.Error("welcomed without Verify")
	}
	if err := l.Verify([]byte("right")); !errors.Is(err, ErrMAC) {
		t.Errorf("Verify = %v", err)
	}
	if _, _, err := l.SayWelcome(testWelcome()); err == nil {
		t.Error("welcomed after Verify failed")
	}
}

// TestReplayedHello: a Hello answers one Challenge.
func TestReplayedHello(t *testing.T) {
	secret := fill(0x20)
	_, challenge := NewListener(ProcessID{}, nil)
	d, err := NewDialler(ProcessID{}, challenge, nil)
	if err != nil {
		t.Fatal(err)
	}
	hello, err := d.SayHello(secret[:], testHello())
	if err != nil {
		t.Fatal(err)
	}
	again, _ := NewListener(ProcessID{}, nil)
	if _, err := again.HearHello(hello); err != nil {
		t.Fatal(err)
	}
	if err := again.Verify(secret[:]); !errors.Is(err, ErrMAC) {
		t.Errorf("Verify of a repeated Hello = %v", err)
	}
}

func TestHelloTooLarge(t *testing.T) {
	_, challenge := NewListener(ProcessID{}, nil)
	d, err := NewDialler(ProcessID{}, challenge, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &Hello{}
	for range MaxPorts {
		h.Ports = append(h.Ports, Port{Addrs: make([]PortAddr, MaxPortAddrs)})
	}
	if _, err := d.SayHello(nil, h); err == nil || !says("too many ports and addresses")(err) {
		t.Errorf("error = %v", err)
	}
	h.Ports = make([]Port, MaxPorts+1)
	if _, err := d.SayHello(nil, h); err == nil || !says("65 ports, at most 64")(err) {
		t.Errorf("error = %v", err)
	}
}

func TestReadSetup(t *testing.T) {
	_, challenge := NewListener(ProcessID{}, nil)
	big := setup(setupHello, maxSetup)
	big.bytes(make([]byte, maxSetup))
	huge := setup(setupHello, maxSetup+1)
	tests := []struct {
		name string
		read func(io.Reader) ([]byte, error)
		in   []byte
		want string // "" for success
	}{
		{"challenge", ReadChallenge, challenge, ""},
		{"largest hello", ReadHello, big.b, ""},
		{"reject", ReadWelcome, Reject(RejectBusy), ""},
		{"nothing", ReadHello, nil, "EOF"},
		{"part of a header", ReadHello, big.b[:5], "unexpected EOF"},
		{"part of a body", ReadHello, big.b[:5000], "unexpected EOF"},
		{"header alone", ReadHello, big.b[:8], "unexpected EOF"},
		{"too long", ReadHello, huge.b, "49153 bytes, 32 to 49152 are allowed"},
		{"challenge for hello", ReadHello, challenge, "unexpected message type"},
		{"long challenge", ReadChallenge, setup(setupChallenge, 73).b, "73 bytes, 72 to 72"},
		{"long reject", ReadWelcome, setup(setupReject, 2).b, "2 bytes, 25 to 25"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.read(iotest.HalfReader(bytes.NewReader(tt.in)))
			switch {
			case tt.want == "" && (err != nil || !bytes.Equal(got, tt.in)):
				t.Errorf("%d bytes, %v", len(got), err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// FuzzSetup gives arbitrary bytes to everything that hears a set-up message. Under a key that is known, whatever is
// decoded must be encoded to the same bytes.
func FuzzSetup(f *testing.F) {
	f.Add(uint8(1), unhex(f, goldenHello))
	f.Add(uint8(2), unhex(f, goldenWelcome))
	_, challenge := NewListener(ProcessID{}, nil)
	f.Add(uint8(0), challenge)
	f.Add(uint8(0), Reject(RejectVersion))
	f.Fuzz(func(t *testing.T, which uint8, in []byte) {
		r, w := codec{b: in, reads: true}, codec{}
		switch which {
		case 1:
			var h Hello
			var nonce [nonceSize]byte
			h.fields(&r, &nonce)
			h.fields(&w, &nonce)
		case 2:
			var m Welcome
			m.fields(&r)
			m.fields(&w)
		default:
			for _, read := range []func(io.Reader) ([]byte, error){ReadChallenge, ReadHello, ReadWelcome} {
				if raw, err := read(bytes.NewReader(in)); err == nil && !bytes.HasPrefix(in, raw) {
					t.Errorf("read %x from %x", raw, in)
				}
			}
			_, _ = NewDialler(ProcessID{}, in, nil)
			l, _ := NewListener(ProcessID{}, nil)
			_, _ = l.HearHello(in)
			d := &Exchange{prk: make([]byte, 32)}
			if _, _, err := d.HearWelcome(in); err == nil {
				t.Errorf("a Welcome without the secret was believed: %x", in)
			}
			return
		}
		if _, err := r.done(""); err != nil {
			return
		}
		out, err := w.done("")
		if err != nil {
			t.Fatalf("decoded but not encodable: %v", err)
		}
		if !bytes.Equal(in, out) {
			t.Errorf("two spellings:\n%x\n%x", in, out)
		}
	})
}

func TestProof(t *testing.T) {
	secret, session := Secret(fill(0x20)), SessionID(fill(0x80))
	h := hmac.New(sha256.New, secret[:])
	h.Write(append(append([]byte("ncclmesh open"), session[:]...), unhex(t, "00000007 00000009")...))
	p := Proof(secret, session, 7, 9)
	if !bytes.Equal(h.Sum(nil), p[:]) {
		t.Errorf("proof = %x", p)
	}
	if !CheckProof(secret, session, 7, 9, p) {
		t.Error("a right proof is refused")
	}
	wrong := p
	wrong[31] ^= 1
	for i, ok := range []bool{
		CheckProof(secret, session, 7, 9, wrong),
		CheckProof(secret, session, 7, 8, p),
		CheckProof(secret, session, 8, 9, p),
		CheckProof(secret, SessionID{}, 7, 9, p),
		CheckProof(Secret{}, session, 7, 9, p),
	} {
		if ok {
			t.Errorf("wrong proof %d is accepted", i)
		}
	}
}
