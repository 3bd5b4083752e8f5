package handshake

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	goldenMAC0 = "ed38a8d16d4c5d282a28b1701b53db59ca0649a17a0d3d5a36495a1861cacd78"
	goldenMAC1 = "a888c9ffd93d1763c5040113e49af9129687b2dd3aea3809a4c40998760acf1f"
)

var testKey = Key(fill32(0x90))

func testFrames() []*Frame {
	return []*Frame{
		{Type: TypeBye, Number: 1, Ack: 2, Body: []byte{0, 0, 0, 6}},
		{Type: TypeAck, Number: 1, Ack: 3},
		{Type: TypeRefuse, Number: 1<<64 - 1, Ack: 1<<64 - 2, Body: bytes.Repeat([]byte{7}, MaxBody)},
	}
}

func sealed() (all []byte, each [][]byte) {
	s := NewSealer(testKey)
	for _, f := range testFrames() {
		start := len(all)
		all = s.Append(all, f)
		each = append(each, all[start:])
	}
	return all, each
}

func readAll(b []byte) (frames []*Frame, err error) {
	o := NewOpener(testKey)
	for in := bytes.NewReader(b); ; {
		f, err := o.Read(in)
		if err != nil {
			return frames, err
		}
		frames = append(frames, f)
	}
}

func TestFrameGolden(t *testing.T) {
	all, each := sealed()
	// The MACs were computed with another program: HMAC-SHA-256(90..af, position || frame).
	for i, want := range []string{
		"00000035 08 0000000000000001 0000000000000002 00000006" + goldenMAC0,
		"00000031 00 0000000000000001 0000000000000003" + goldenMAC1,
	} {
		if diff := cmp.Diff(hex.EncodeToString(unhex(t, want)), hex.EncodeToString(each[i])); diff != "" {
			t.Errorf("frame %d (-want +got):\n%s", i, diff)
		}
	}
	got, err := readAll(all)
	if err != io.EOF {
		t.Errorf("error = %v, want EOF", err)
	}
	if diff := cmp.Diff(testFrames(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

func TestFrameRefused(t *testing.T) {
	_, each := sealed()
	flip := func(b []byte, i int) []byte {
		b = bytes.Clone(b)
		b[i] ^= 1
		return b
	}
	length := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	tests := []struct {
		name  string
		in    []byte
		taken int
		want  string
	}{
		{"repeated", bytes.Join([][]byte{each[0], each[0]}, nil), 1, "wrong MAC"},
		{"left out", each[1], 0, "wrong MAC"},
		{"swapped", bytes.Join([][]byte{each[1], each[0]}, nil), 0, "wrong MAC"},
		{"changed type", flip(each[0], 4), 0, "wrong MAC"},
		{"changed number", flip(each[0], 12), 0, "wrong MAC"},
		{"changed ack", flip(each[0], 20), 0, "wrong MAC"},
		{"changed body", flip(each[0], 21), 0, "wrong MAC"},
		{"changed MAC", flip(each[0], len(each[0])-1), 0, "wrong MAC"},
		{"another link", NewSealer(Key{}).Append(nil, testFrames()[0]), 0, "wrong MAC"},
		{"too short", length(minFrame - 1), 0, "frame says 48 bytes, 49 to 16433 are allowed"},
		{"too long", length(maxFrame + 1), 0, "frame says 16434 bytes"},
		{"absurd", length(1<<32 - 1), 0, "frame says 4294967295 bytes"},
		{"cut length", each[0][:3], 0, "unexpected EOF"},
		{"cut frame", each[0][:30], 0, "unexpected EOF"},
		{"length alone", each[0][:4], 0, "unexpected EOF"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readAll(tt.in)
			if len(got) != tt.taken || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%d frames, error %v; want %d and one that says %q", len(got), err, tt.taken, tt.want)
			}
		})
	}
}

func FuzzFrame(f *testing.F) {
	all, each := sealed()
	f.Add(all)
	f.Add(each[0])
	f.Fuzz(func(t *testing.T, in []byte) {
		frames, err := readAll(in)
		if err == nil {
			t.Fatal("no error at the end")
		}
		s := NewSealer(testKey)
		var out []byte
		for _, f := range frames {
			out = s.Append(out, f)
		}
		if !bytes.HasPrefix(in, out) {
			t.Errorf("a frame was taken that was not sealed like this:\n%x\n%x", in, out)
		}
		if len(out) == len(in) && !errors.Is(err, io.EOF) {
			t.Errorf("error at the end of whole frames: %v", err)
		}
	})
}
