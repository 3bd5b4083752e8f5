package transport

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func hexBytes(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes on a lane's socket are fixed.
func TestSocketFrames(t *testing.T) {
	t.Run("part", func(t *testing.T) {
		f := dataFrame{imm: imm{slot: 0x12, sub: 3, part: 1, last: 4}.encode(), length: 0x01020304, offset: 0x1112131415161718}
		var b [dataHeader]byte
		f.encode(&b)
		if diff := cmp.Diff(hexBytes(t, "00 20 61 12  04 03 02 01  18 17 16 15 14 13 12 11"), b[:]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := decodeData(&b); got != f {
			t.Errorf("decoded %+v, want %+v", got, f)
		}
	})
	grants := []struct {
		name    string
		seq     uint64
		entries []grant
		want    string
	}{
		{"one", 1, []grant{{capacity: 0x01020304, tag: 0x05060708}}, "0100000000000000 01000000 04030201 08070605"},
		{"three", 0x1112131415161718, []grant{{capacity: 1, tag: 2}, {}, {capacity: 0xffffffff, tag: 0xffffffff}},
			"1817161514131211 03000000 01000000 02000000 00000000 00000000 ffffffff ffffffff"},
	}
	for _, tt := range grants {
		t.Run("grant of "+tt.name, func(t *testing.T) {
			var b [maxGrant]byte
			n := encodeGrant(b[:], tt.seq, tt.entries)
			if diff := cmp.Diff(hexBytes(t, tt.want), b[:n]); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			var got [maxSubs]grant
			for short := range n {
				if _, _, length, err := decodeGrant(b[:short], &got); length != 0 || err != nil {
					t.Errorf("%d of %d bytes: length %d, error %v", short, n, length, err)
				}
			}
			seq, count, length, err := decodeGrant(b[:], &got)
			if err != nil || seq != tt.seq || count != len(tt.entries) || length != n {
				t.Fatalf("sequence %d, %d entries, %d bytes, error %v", seq, count, length, err)
			}
			for i, want := range tt.entries {
				want.n, want.sub = uint8(count), uint8(i)
				if got[i] != want {
					t.Errorf("entry %d: %+v, want %+v", i, got[i], want)
				}
			}
		})
	}
}

// FuzzGrant: a grant that is understood is one that would have been written so.
func FuzzGrant(f *testing.F) {
	f.Add(hexBytes(f, "0100000000000000 01000000 04030201 08070605"))
	f.Add(hexBytes(f, "0100000000000000 09000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var entries [maxSubs]grant
		seq, n, length, err := decodeGrant(b, &entries)
		if err != nil || length == 0 {
			return
		}
		var again [maxGrant]byte
		if m := encodeGrant(again[:], seq, entries[:n]); !bytes.Equal(again[:m], b[:length]) {
			t.Fatalf("%x was read and is written as %x", b[:length], again[:m])
		}
	})
}

// pipe is a receiver's lane of which the test holds the sender's end.
func pipe(t *testing.T) (r *RecvConn, k *socket, send func([]byte)) {
	t.Helper()
	s, r := tcpPair(t, 1)
	t.Cleanup(func() { closeBoth(t, s, r) })
	return r, r.sockets[0], func(b []byte) {
		for len(b) > 0 {
			n, err := writeFD(s.sockets[0].fd, b)
			if err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
	}
}

// Whatever a peer says, nothing lands outside what was granted, and what is wrong
// is the connection's end.
func TestSocketHostileParts(t *testing.T) {
	const size = 4096
	good := imm{slot: 1, last: 1}
	frame := func(m imm, length uint32, offset uint64) []byte {
		var b [dataHeader]byte
		dataFrame{m.encode(), length, offset}.encode(&b)
		return b[:]
	}
	body := bytes.Repeat([]byte{0xee}, size)
	whole := append(frame(good, 100, 0), body[:100]...)
	tests := []struct {
		name string
		sent []byte
		want string
	}{
		{"reserved bits", hexBytes(t, "01000001 00000000 0000000000000000"), "malformed"},
		{"part beyond the last", frame(imm{slot: 1, part: 2, last: 1}, 0, 0), "malformed"},
		{"slot without a receive", frame(imm{slot: 2}, 0, 0), "no receive outstanding"},
		{"sub-receive beyond the group", frame(imm{slot: 1, sub: 1}, 0, 0), "has 1 buffers"},
		{"plain writes", frame(imm{slot: 1, writes: 1}, 0, 0), "plain writes"},
		{"too long", frame(good, size+1, 0), "for a buffer of 4096"},
		{"beyond the end", frame(good, 1, size), "for a buffer of 4096"},
		{"offset that wraps", frame(good, 2, ^uint64(0)), "for a buffer of 4096"},
		{"length that wraps", frame(good, ^uint32(0), 8), "for a buffer of 4096"},
		{"a part twice", append(bytes.Clone(whole), whole...), "begun before"},
		{"another number of parts", append(bytes.Clone(whole), frame(imm{slot: 1, part: 1, last: 2}, 0, 0)...), "number of parts changed"},
		{"more than the buffer in all", append(append(append(bytes.Clone(whole), frame(imm{slot: 1, part: 1, last: 1}, size, 0)...), body...), whole...), "bytes for a buffer"},
		{"after the last part", append(append(append(bytes.Clone(whole), frame(imm{slot: 1, part: 1, last: 1}, 10, 100)...), body[:10]...), whole...), "no receive outstanding"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			leaks(t)
			r, _, send := pipe(t)
			m, b := memory(t, 3*size)
			g := register(t, r, m)
			q := irecv(t, r, Buffer{m.Addr() + size, size, 0, g})
			send(tt.sent)
			// What is wrong may only show after the receive itself is done.
			await(t, "the end of the connection", func() bool {
				if q.active {
					_, _ = q.Test()
				} else {
					q = irecvOrNil(r, Buffer{m.Addr() + size, size, 0, g})
					if q == nil {
						q = r.Request(1)
					}
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.err != nil
			})
			if !strings.Contains(r.err.Error(), tt.want) {
				t.Errorf("error %q, want one about %q", r.err, tt.want)
			}
			if !bytes.Equal(b[:size], make([]byte, size)) || !bytes.Equal(b[2*size:], make([]byte, size)) {
				t.Error("memory outside the buffer was written")
			}
		})
	}
}

func irecvOrNil(r *RecvConn, b Buffer) *Request {
	q, err := r.Irecv([]Buffer{b})
	if err != nil {
		return nil
	}
	return q
}

// A sender believes no grant that is out of turn.
func TestSocketHostileGrants(t *testing.T) {
	tests := []struct {
		name, sent, want string
	}{
		{"none", "0100000000000000 00000000", "names 0 buffers"},
		{"nine", "0100000000000000 09000000", "names 9 buffers"},
		{"sequence 0", "0000000000000000 01000000 00000000 00000000", "grant 0 is out of turn; 1 is next"},
		{"beyond the window", "0101000000000000 01000000 00000000 00000000", "grant 257 is out of turn"},
		{"twice", "0100000000000000 01000000 01000000 05000000 0100000000000000 01000000 00000000 00000000", "grant 1 is out of turn"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			leaks(t)
			s, r := tcpPair(t, 1)
			if _, err := writeFD(r.sockets[0].fd, hexBytes(t, tt.sent)); err != nil {
				t.Fatal(err)
			}
			var err error
			await(t, "the error", func() bool {
				_, err = s.Isend(0, 0, 77, nil)
				return err != nil
			})
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q, want one about %q", err, tt.want)
			}
			closeBoth(t, s, r)
		})
	}
}
