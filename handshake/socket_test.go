package handshake

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	testLane   = LaneName{Session: fill(0x80), Conn: 0xc1c2c3c4, Lane: 5}
	testTokens = LaneTokens{Dialler: 0x0102030405060708, Listener: 0x1112131415161718}
)

// TestLaneGolden fixes every byte of the exchange of a lane; the MACs are computed anew from the description.
func TestLaneGolden(t *testing.T) {
	resume := Key(fill32(0x20))
	mac := func(key []byte, parts ...string) []byte {
		h := hmac.New(sha256.New, key)
		for _, p := range parts {
			h.Write([]byte(p))
		}
		return h.Sum(nil)
	}
	key := mac(resume[:], "ncclmesh lanes")
	if got := resume.LaneKey(); !bytes.Equal(key, got[:]) {
		t.Fatalf("lane key %x, want %x", got[:], key)
	}
	said := unhex(t, "4e4d 0a 85 00000035 808182838485868788898a8b8c8d8e8f c1c2c3c4 05")
	tokens := unhex(t, "0102030405060708 1112131415161718")

	hello, err := LaneHello(Key(key), testLane, testTokens)
	if err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Clone(said), mac(key, "ncclmesh lane hello", string(said), string(tokens))...)
	if diff := cmp.Diff(hex.EncodeToString(want), hex.EncodeToString(hello[:])); diff != "" {
		t.Errorf("hello (-want +got):\n%s", diff)
	}
	welcome := LaneWelcome(Key(key), hello, testTokens)
	want = append(unhex(t, "4e4d 0a 86 00000020"), mac(key, "ncclmesh lane welcome", string(said), string(tokens))...)
	if diff := cmp.Diff(hex.EncodeToString(want), hex.EncodeToString(welcome[:])); diff != "" {
		t.Errorf("welcome (-want +got):\n%s", diff)
	}

	if n, err := HearLaneHello(hello); err != nil || n != testLane {
		t.Errorf("heard %+v, %v; want %+v", n, err, testLane)
	}
	if err := CheckLaneHello(Key(key), hello, testTokens); err != nil {
		t.Errorf("hello: %v", err)
	}
	if err := CheckLaneWelcome(Key(key), welcome, hello, testTokens); err != nil {
		t.Errorf("welcome: %v", err)
	}
}

// TestCodeKeys fixes how the keys of a lane's codes are made, and that whatever names the lane changes both.
func TestCodeKeys(t *testing.T) {
	key := Key(fill32(0x20))
	lane := string(unhex(t, "808182838485868788898a8b8c8d8e8f c1c2c3c4 05 0102030405060708 1112131415161718"))
	expand := func(label string) (k Key) {
		h := hmac.New(sha256.New, key[:]) // HKDF-Expand of one block
		h.Write([]byte(label + lane + "\x01"))
		return Key(h.Sum(nil))
	}
	dialler, listener, err := key.CodeKeys(testLane, testTokens)
	if err != nil || dialler != expand("ncclmesh codes of the dialler ") || listener != expand("ncclmesh codes of the listener ") {
		t.Errorf("keys %x, %x, %v", dialler[:], listener[:], err)
	}
	seen := map[Key]bool{dialler: true, listener: true}
	for i, change := range []func(*Key, *LaneName, *LaneTokens){
		func(k *Key, _ *LaneName, _ *LaneTokens) { k[31]++ },
		func(_ *Key, n *LaneName, _ *LaneTokens) { n.Session[0]++ },
		func(_ *Key, n *LaneName, _ *LaneTokens) { n.Conn++ },
		func(_ *Key, n *LaneName, _ *LaneTokens) { n.Lane++ },
		func(_ *Key, _ *LaneName, t *LaneTokens) { t.Dialler++ },
		func(_ *Key, _ *LaneName, t *LaneTokens) { t.Listener++ },
	} {
		k, n, tokens := key, testLane, testTokens
		change(&k, &n, &tokens)
		a, b, err := k.CodeKeys(n, tokens)
		if err != nil || seen[a] || seen[b] || a == b {
			t.Errorf("change %d: the keys are those of another lane or direction, or %v", i, err)
		}
		seen[a], seen[b] = true, true
	}
}

// Every bit counts, and so does what is not sent: the key and the tokens.
func TestLaneRefused(t *testing.T) {
	key, other := Key(fill32(0x20)), Key(fill32(0x21))
	hello, err := LaneHello(key, testLane, testTokens)
	if err != nil {
		t.Fatal(err)
	}
	welcome := LaneWelcome(key, hello, testTokens)
	for i := range 8 * LaneHelloSize {
		bad := hello
		bad[i/8] ^= 1 << (i % 8)
		_, malformed := HearLaneHello(bad)
		if malformed == nil && !errors.Is(CheckLaneHello(key, bad, testTokens), ErrLaneMAC) {
			t.Fatalf("hello with bit %d flipped is believed", i)
		}
	}
	for i := range 8 * LaneWelcomeSize {
		bad := welcome
		bad[i/8] ^= 1 << (i % 8)
		if CheckLaneWelcome(key, bad, hello, testTokens) == nil {
			t.Fatalf("welcome with bit %d flipped is believed", i)
		}
	}
	swapped := LaneTokens{testTokens.Listener, testTokens.Dialler}
	for _, tt := range []struct {
		name   string
		key    Key
		tokens LaneTokens
	}{
		{"another key", other, testTokens},
		{"the dialler's token differs", key, LaneTokens{testTokens.Dialler + 1, testTokens.Listener}},
		{"the listener's token differs", key, LaneTokens{testTokens.Dialler, testTokens.Listener + 1}},
		{"the tokens are swapped", key, swapped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := CheckLaneHello(tt.key, hello, tt.tokens); !errors.Is(err, ErrLaneMAC) {
				t.Errorf("hello: %v", err)
			}
			if err := CheckLaneWelcome(tt.key, welcome, hello, tt.tokens); !errors.Is(err, ErrLaneMAC) {
				t.Errorf("welcome: %v", err)
			}
		})
	}
	if _, err := LaneHello(key, LaneName{Lane: MaxLanes}, testTokens); err == nil {
		t.Error("a lane beyond the limit was written")
	}
}

// FuzzLaneHello: whatever is heard is what would have been said.
func FuzzLaneHello(f *testing.F) {
	key := Key(fill32(0x20))
	hello, err := LaneHello(key, testLane, testTokens)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(hello[:])
	f.Add(make([]byte, LaneHelloSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		var raw [LaneHelloSize]byte
		copy(raw[:], in)
		n, err := HearLaneHello(raw)
		if err != nil {
			return
		}
		again, err := LaneHello(key, n, testTokens)
		if err != nil {
			t.Fatalf("%+v was heard and cannot be said: %v", n, err)
		}
		if believed, same := CheckLaneHello(key, raw, testTokens) == nil, raw == again; believed != same {
			t.Fatalf("believed %v; the same bytes %v", believed, same)
		}
		if !bytes.Equal(raw[:LaneHelloSize-macSize], again[:LaneHelloSize-macSize]) {
			t.Fatalf("%x was heard and is said as %x", raw, again)
		}
	})
}

// A hop's name passes, and the key of hops is none of lanes.
func TestHop(t *testing.T) {
	want := LaneName{Session: SessionID{1}, Conn: 7, Lane: HopLane}
	key := Key{3}
	if key.HopKey() == key.LaneKey() || key.HopKey() == key {
		t.Error("the key of hops is another's")
	}
	raw, err := LaneHello(key.HopKey(), want, LaneTokens{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := HearLaneHello(raw); err != nil || got != want {
		t.Errorf("heard %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []uint8{MaxLanes, HopLane - 1} {
		raw[8+16+4] = bad
		if got, err := HearLaneHello(raw); err == nil {
			t.Errorf("heard %+v, want an error", got)
		}
	}
}
