package handshake

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	testQuery  = NeighbourQuery{Nonce: fill(0x10), Process: fill(0x20), Node: fill(0x30), Port: 3, Name: "prev"}
	testAnswer = NeighbourReply{Nonce: fill(0x10), Process: fill(0x40), Node: fill(0x50), Control: 0xbeef, Port: 7, Name: "enp1s0f0np0", Dedicated: true}
)

const (
	goldenQuery      = "4e4d 0a 87 00000057" // and the ids, by TestNeighbourGolden
	goldenQueryEnd   = "03 0004 70726576"
	goldenAnswer     = "4e4d 0a 88 00000061"
	goldenAnswerEnd  = "beef 07 000b 656e7031733066306e7030 01"
	neighboursSecret = "ncclmesh neighbours"
)

// TestNeighbourGolden fixes every byte of both datagrams; the MACs are computed anew from the description.
func TestNeighbourGolden(t *testing.T) {
	mac := func(key []byte, parts ...string) []byte {
		h := hmac.New(sha256.New, key)
		for _, p := range parts {
			h.Write([]byte(p))
		}
		return h.Sum(nil)
	}
	for _, key := range []string{"", "correct horse"} {
		secret := NeighbourSecret([]byte(key))
		if want := mac([]byte(key), neighboursSecret)[:16]; !bytes.Equal(want, secret[:]) {
			t.Fatalf("secret %x, want %x", secret[:], want)
		}
		said := unhex(t, goldenQuery+goldenID(0x10)+goldenID(0x20)+goldenID(0x30)+goldenQueryEnd)
		want := append(bytes.Clone(said), mac(secret[:], "ncclmesh hail", string(said))...)
		raw, err := SealNeighbourQuery(secret, &testQuery)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(hex.EncodeToString(want), hex.EncodeToString(raw)); diff != "" {
			t.Errorf("query (-want +got):\n%s", diff)
		}
		if m, err := OpenNeighbourQuery(secret, raw); err != nil || m != testQuery {
			t.Errorf("opened %+v, %v; want %+v", m, err, testQuery)
		}

		said = unhex(t, goldenAnswer+goldenID(0x10)+goldenID(0x40)+goldenID(0x50)+goldenAnswerEnd)
		want = append(bytes.Clone(said), mac(secret[:], "ncclmesh hail", string(said))...)
		if raw, err = SealNeighbourReply(secret, &testAnswer); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(hex.EncodeToString(want), hex.EncodeToString(raw)); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
		if m, err := OpenNeighbourReply(secret, raw); err != nil || m != testAnswer {
			t.Errorf("opened %+v, %v; want %+v", m, err, testAnswer)
		}
	}
}

// resealed puts the right MAC under a changed datagram, whose header it corrects.
func resealed(s Secret, raw []byte, change func([]byte) []byte) []byte {
	b := change(bytes.Clone(raw[:len(raw)-macSize]))
	b[7] = byte(len(b) - setupHeader + macSize)
	mac := neighbourMAC(s, b)
	return append(b, mac[:]...)
}

func TestNeighbourRefused(t *testing.T) {
	secret := NeighbourSecret(nil)
	query, err := SealNeighbourQuery(secret, &testQuery)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := SealNeighbourReply(secret, &testAnswer)
	if err != nil {
		t.Fatal(err)
	}
	openNeighbour := func(b []byte) error { _, err := OpenNeighbourQuery(secret, b); return err }
	openAnswer := func(b []byte) error { _, err := OpenNeighbourReply(secret, b); return err }
	at := func(i int, v byte) func([]byte) []byte { return func(b []byte) []byte { b[i] = v; return b } }
	const port, name = setupHeader + 48, setupHeader + 49
	tests := []struct {
		name string
		open func([]byte) error
		raw  []byte
		want string
	}{
		{"nothing", openNeighbour, nil, "ends too early"},
		{"half a header", openNeighbour, query[:4], "ends too early"},
		{"one byte less", openNeighbour, query[:len(query)-1], "and has"},
		{"one byte more", openNeighbour, append(bytes.Clone(query), 0), "and has"},
		{"another protocol", openNeighbour, bytes.Repeat([]byte("M-SEARCH * "), 12), "not the plugin's protocol"},
		{"another version", openNeighbour, at(2, Version+1)(bytes.Clone(query)), "protocol version"},
		{"an answer for a question", openNeighbour, answer, "unexpected message type"},
		{"a question for an answer", openAnswer, query, "unexpected message type"},
		{"an absurd length", openNeighbour, at(4, 0xff)(bytes.Clone(query)), "are allowed"},
		{"a bit changed", openNeighbour, at(port, 4)(bytes.Clone(query)), "wrong MAC"},
		{"an answer with a bit changed", openAnswer, at(port, 4)(bytes.Clone(answer)), "wrong MAC"},
		{"a name too long", openNeighbour, resealed(secret, query, at(name+1, MaxLinkName+1)), "at most 15 are allowed"},
		{"a name beyond the end", openNeighbour, resealed(secret, query, at(name+1, 9)), "ends too early"},
		{"a name that is not text", openNeighbour, resealed(secret, query, at(name+2, 7)), "not plain UTF-8 text"},
		{"bytes after the name", openNeighbour, resealed(secret, query, func(b []byte) []byte { return append(b, 0) }), "1 bytes follow"},
		{"no control port", openAnswer, resealed(secret, answer, func(b []byte) []byte { b[port], b[port+1] = 0, 0; return b }), "control port is 0"},
		{"neither dedicated nor not", openAnswer, resealed(secret, answer, func(b []byte) []byte { b[len(b)-1] = 2; return b }), "dedicated is 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.open(tt.raw); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
	for _, key := range []string{"k", "K"} {
		if _, err := OpenNeighbourQuery(NeighbourSecret([]byte(key)), query); !errors.Is(err, ErrNeighbourMAC) {
			t.Errorf("under key %q: %v", key, err)
		}
	}
	if _, err := SealNeighbourReply(secret, &NeighbourReply{}); err == nil {
		t.Error("an answer without a control port was written")
	}
}

// Every bit counts.
func TestNeighbourBits(t *testing.T) {
	secret := NeighbourSecret([]byte("k"))
	raw, err := SealNeighbourReply(secret, &testAnswer)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(raw) {
		bad := bytes.Clone(raw)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := OpenNeighbourReply(secret, bad); err == nil {
			t.Fatalf("an answer with bit %d flipped is believed", i)
		}
	}
}

func TestLargestNeighbour(t *testing.T) {
	m := testAnswer
	m.Name = strings.Repeat("x", 2*MaxLinkName)
	raw, err := SealNeighbourReply(Secret{}, &m)
	if err != nil || len(raw) != MaxNeighbourSize {
		t.Fatalf("%d bytes, %v; want %d", len(raw), err, MaxNeighbourSize)
	}
	if _, err := OpenNeighbourReply(Secret{}, raw); err != nil {
		t.Error(err)
	}
}

// FuzzNeighbour: whatever is opened is what would have been sealed.
func FuzzNeighbour(f *testing.F) {
	secret := NeighbourSecret(nil)
	for _, raw := range [][]byte{must(SealNeighbourQuery(secret, &testQuery)), must(SealNeighbourReply(secret, &testAnswer))} {
		f.Add(raw[3], raw[setupHeader:len(raw)-macSize])
	}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		raw := setup(kind, len(body)+macSize)
		raw.bytes(body)
		mac := neighbourMAC(secret, raw.b)
		raw.bytes(mac[:])
		if m, err := OpenNeighbourQuery(secret, raw.b); err == nil && !bytes.Equal(raw.b, must(SealNeighbourQuery(secret, &m))) {
			t.Errorf("two spellings of %+v: %x", m, raw.b)
		}
		if m, err := OpenNeighbourReply(secret, raw.b); err == nil && !bytes.Equal(raw.b, must(SealNeighbourReply(secret, &m))) {
			t.Errorf("two spellings of %+v: %x", m, raw.b)
		}
		_, _ = OpenNeighbourQuery(secret, body)
		_, _ = OpenNeighbourReply(secret, body)
	})
}

func must(raw []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return raw
}
