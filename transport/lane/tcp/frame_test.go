package tcp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/lane"
	"ncclmesh/transport/topology"
)

func hexBytes(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes of each frame are fixed.
func TestFrames(t *testing.T) {
	t.Run("part", func(t *testing.T) {
		f := dataFrame{imm: lane.Imm{Slot: 0x12, Sub: 3, Part: 1, Last: 4}.Encode(), length: 0x01020304, offset: 0x1112131415161718}
		var b [frameHeader]byte
		f.encode(&b)
		if diff := cmp.Diff(hexBytes(t, "00 20 61 12  04 03 02 01  18 17 16 15 14 13 12 11"), b[:]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := decodeData(&b); got != f {
			t.Errorf("decoded %+v, want %+v", got, f)
		}
	})
	t.Run("put", func(t *testing.T) {
		f := dataFrame{imm: lane.PutCode(0x01020304), length: 0x05060708, offset: 0x1112131415161718}
		var b [frameHeader]byte
		f.encode(&b)
		if diff := cmp.Diff(hexBytes(t, "13 0c 08 04  08 07 06 05  18 17 16 15 14 13 12 11"), b[:]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := decodeData(&b); got != f || !got.placed() || got.kind() != kindPut {
			t.Errorf("decoded %+v, want %+v", got, f)
		}
	})
	eager := []struct {
		name string
		what lane.Eager
		size int
		want string
	}{
		{"eager message", lane.Eager{Number: 0x2aaaaaaa, Tag: -2, Head: 0x01020304}, 0x400, "a9 aa aa aa  00 04 00 00  fe ff ff ff  04 03 02 01"},
		{"question for grants", lane.Eager{Number: 5, Ask: true}, 0, "16 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00"},
	}
	for _, tt := range eager {
		t.Run(tt.name, func(t *testing.T) {
			var b [frameHeader]byte
			f := eagerFrame(&tt.what, tt.size)
			f.encode(&b)
			if diff := cmp.Diff(hexBytes(t, tt.want), b[:]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got, err := decodeData(&b).eager(); err != nil || got != tt.what || f.length != uint32(tt.size) {
				t.Errorf("decoded %+v of %d bytes, error %v; want %+v", got, f.length, err, tt.what)
			}
		})
	}
	returns := []struct {
		name    string
		frame   reverseFrame
		entries []lane.Grant
		want    string
	}{
		{"acknowledgement", reverseFrame{kind: kindAck, number: 0x1112131415161718}, nil, "02 00 000000000000 1817161514131211"},
		{"taken", reverseFrame{kindMatched, 8, 7, 0x01020304, 0x1112131415161718}, nil, "03 08 07 00 04030201 1817161514131211"},
		{"grant of one", reverseFrame{kind: kindGrant, n: 1, number: 1}, []lane.Grant{{Capacity: 0x01020304, Tag: 0x05060708}},
			"01 01 000000000000 0100000000000000 04030201 08070605"},
		{"grant of three", reverseFrame{kind: kindGrant, n: 3, number: 0x1112131415161718}, []lane.Grant{{Capacity: 1, Tag: 2}, {}, {Capacity: 0xffffffff, Tag: 0xffffffff}},
			"01 03 000000000000 1817161514131211 01000000 02000000 00000000 00000000 ffffffff ffffffff"},
	}
	for _, tt := range returns {
		t.Run(tt.name, func(t *testing.T) {
			var b [maxReverseFrame]byte
			tt.frame.encode((*[frameHeader]byte)(b[:]))
			n := frameHeader + encodeBuffers(b[frameHeader:], tt.entries)
			if diff := cmp.Diff(hexBytes(t, tt.want), b[:n]); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			got, err := decodeReverse((*[frameHeader]byte)(b[:]))
			if err != nil || got != tt.frame {
				t.Fatalf("decoded %+v, error %v; want %+v", got, err, tt.frame)
			}
			for i, want := range tt.entries {
				want.N, want.Sub = got.n, uint8(i)
				if e := decodeBuffer(b[frameHeader:], uint8(i), got.n); e != want {
					t.Errorf("buffer %d: %+v, want %+v", i, e, want)
				}
			}
		})
	}
}

// FuzzReturn checks that a header which can be decoded encodes to the same bytes.
func FuzzReturn(f *testing.F) {
	f.Add(hexBytes(f, "01 01 000000000000 0100000000000000"))
	f.Add(hexBytes(f, "02 00 000000000000 ffffffffffffffff"))
	f.Add(hexBytes(f, "01 09 000000000000 0000000000000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameHeader {
			return
		}
		r, err := decodeReverse((*[frameHeader]byte)(b))
		if err != nil {
			return
		}
		var again [frameHeader]byte
		if r.encode(&again); !bytes.Equal(again[:], b[:frameHeader]) {
			t.Fatalf("%x was read and is written as %x", b[:frameHeader], again)
		}
	})
}

// FuzzEager checks that the header of an eager message which can be decoded encodes to the same bytes.
func FuzzEager(f *testing.F) {
	f.Add(hexBytes(f, "a9aaaaaa 00040000 feffffff 04030201"))
	f.Add(hexBytes(f, "16000000 00000000 00000000 00000000"))
	f.Add(hexBytes(f, "03000000 00000000 00000000 00000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameHeader {
			return
		}
		d := decodeData((*[frameHeader]byte)(b))
		e, err := d.eager()
		if err != nil {
			return
		}
		if d.length > lane.EagerSize {
			t.Fatalf("a message of %d bytes was taken", d.length)
		}
		var again [frameHeader]byte
		if eagerFrame(&e, int(d.length)).encode(&again); !bytes.Equal(again[:], b[:frameHeader]) {
			t.Fatalf("%x was read and is written as %x", b[:frameHeader], again)
		}
	})
}

// FuzzReturns checks that a sender accepts or refuses any bytes on the reverse stream, however they are
// divided: it passes on complete grants unchanged, and counts each part that was sent once, in order.
func FuzzReturns(f *testing.F) {
	f.Add(hexBytes(f, "01 01 000000000000 0100000000000000 04030201 08070605  02 00 000000000000 0100000000000000"), uint8(0))
	f.Add(hexBytes(f, "03 02 01 00 05000000 0100000000000000  02 00 000000000000 0100000000000000"), uint8(9))
	f.Add(hexBytes(f, "01 01 000000000000 0100000000000000 04030201 08070605  01 01 000000000000 0100000000000000 04030201 08070605"), uint8(20))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		sink := &sender{t: t}
		c := &lane.Shared{Sending: true, Sink: sink}
		l := lane.New(c, 0, lane.Spec{Port: NewPort(topology.Port{Netdev: "p0"}, 0, Options{})})
		k := &socket{lane: l, outgoing: outgoing{accepted: 2}}
		k.parts[0] = sentPart{request: 7, part: 9}
		k.parts[1] = sentPart{request: 8, part: 10}
		have := b[:min(int(cut), len(b))]
		used, err := k.handleReverse(have)
		if err == nil {
			have = b[used:]
			var more int
			more, err = k.handleReverse(have)
			used += more
		}
		if k.delivered > 2 || k.accepted < 0 || k.accepted+int(k.delivered) != 2 || !slices.Equal(sink.delivered, []int{7, 8}[:k.delivered]) {
			t.Fatalf("%d delivered, requests %d, %d accepted of 2", k.delivered, sink.delivered, k.accepted)
		}
		if err == nil && used < len(b) && len(b)-used >= maxReverseFrame {
			t.Fatalf("%d bytes are left of %d", len(b)-used, len(b))
		}
		if sent := bytes.Join(sink.granted, nil); len(sent) > len(b) {
			t.Fatalf("%d bytes of grants in %d", len(sent), len(b))
		}
		for rest, i := b, 0; i < len(sink.granted); i++ {
			at := bytes.Index(rest, sink.granted[i])
			if at < 0 {
				t.Fatalf("grant %x was not sent", sink.granted[i])
			}
			rest = rest[at+len(sink.granted[i]):]
		}
	})
}

// sender is the message layer of a sender. It accepts grants in order.
type sender struct {
	lane.Sink
	t         *testing.T
	delivered []int
	granted   [][]byte // as they were sent
}

func (s *sender) Delivered(_ *lane.Lane, request, part int) {
	if part != request+2 {
		s.t.Fatalf("part %d of request %d", part, request)
	}
	s.delivered = append(s.delivered, request)
}

func (s *sender) EagerMatched(m lane.EagerMatch) error {
	if m.N < 1 || m.N > lane.MaxSubs || m.Sub >= m.N {
		s.t.Fatalf("an eager message in buffer %d of %d", m.Sub, m.N)
	}
	return nil
}

func (s *sender) Granted(seq uint64, entries []lane.Grant) error {
	if n := len(entries); n < 1 || n > lane.MaxSubs {
		s.t.Fatalf("a grant of %d buffers", n)
	}
	for i, e := range entries {
		if int(e.N) != len(entries) || int(e.Sub) != i {
			s.t.Fatalf("buffer %d of %d is said to be %d of %d", i, len(entries), e.Sub, e.N)
		}
	}
	if seq != uint64(len(s.granted))+1 {
		return errors.New("out of turn")
	}
	var b [maxReverseFrame]byte
	reverseFrame{kind: kindGrant, n: uint8(len(entries)), number: seq}.encode((*[frameHeader]byte)(b[:]))
	s.granted = append(s.granted, b[:frameHeader+encodeBuffers(b[frameHeader:], entries)])
	return nil
}
