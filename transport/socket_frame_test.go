package transport

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
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
		var b [frameHeader]byte
		f.encode(&b)
		if diff := cmp.Diff(hexBytes(t, "00 20 61 12  04 03 02 01  18 17 16 15 14 13 12 11"), b[:]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := decodeData(&b); got != f {
			t.Errorf("decoded %+v, want %+v", got, f)
		}
	})
	returns := []struct {
		name    string
		frame   returnFrame
		entries []grant
		want    string
	}{
		{"acknowledgement", returnFrame{kind: kindAck, number: 0x1112131415161718}, nil, "02 00 000000000000 1817161514131211"},
		{"grant of one", returnFrame{kindGrant, 1, 1}, []grant{{capacity: 0x01020304, tag: 0x05060708}},
			"01 01 000000000000 0100000000000000 04030201 08070605"},
		{"grant of three", returnFrame{kindGrant, 3, 0x1112131415161718}, []grant{{capacity: 1, tag: 2}, {}, {capacity: 0xffffffff, tag: 0xffffffff}},
			"01 03 000000000000 1817161514131211 01000000 02000000 00000000 00000000 ffffffff ffffffff"},
	}
	for _, tt := range returns {
		t.Run(tt.name, func(t *testing.T) {
			var b [maxReturn]byte
			tt.frame.encode((*[frameHeader]byte)(b[:]))
			n := frameHeader + encodeBuffers(b[frameHeader:], tt.entries)
			if diff := cmp.Diff(hexBytes(t, tt.want), b[:n]); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			got, err := decodeReturn((*[frameHeader]byte)(b[:]))
			if err != nil || got != tt.frame {
				t.Fatalf("decoded %+v, error %v; want %+v", got, err, tt.frame)
			}
			for i, want := range tt.entries {
				want.n, want.sub = got.n, uint8(i)
				if e := decodeBuffer(b[frameHeader:], uint8(i), got.n); e != want {
					t.Errorf("buffer %d: %+v, want %+v", i, e, want)
				}
			}
		})
	}
}

// FuzzReturn: a header that is understood is one that would have been written so.
func FuzzReturn(f *testing.F) {
	f.Add(hexBytes(f, "01 01 000000000000 0100000000000000"))
	f.Add(hexBytes(f, "02 00 000000000000 ffffffffffffffff"))
	f.Add(hexBytes(f, "01 09 000000000000 0000000000000000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameHeader {
			return
		}
		r, err := decodeReturn((*[frameHeader]byte)(b))
		if err != nil {
			return
		}
		var again [frameHeader]byte
		if r.encode(&again); !bytes.Equal(again[:], b[:frameHeader]) {
			t.Fatalf("%x was read and is written as %x", b[:frameHeader], again)
		}
	})
}

// FuzzReturns: whatever a receiver sends, in whatever pieces, its sender takes it
// or refuses it, and the ring has grants of the next sequences only.
func FuzzReturns(f *testing.F) {
	f.Add(hexBytes(f, "01 01 000000000000 0100000000000000 04030201 08070605  02 00 000000000000 0100000000000000"), uint8(0))
	f.Add(hexBytes(f, "01 01 000000000000 0100000000000000 04030201 08070605  01 01 000000000000 0100000000000000 04030201 08070605"), uint8(20))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		s, k := fuzzSender()
		have := b[:min(int(cut), len(b))]
		used, err := k.takeReturns(have)
		if err == nil {
			_, err = k.takeReturns(b[used:])
		}
		if k.delivered > 2 || k.accepted < 0 || k.accepted+int(k.delivered) != 2 {
			t.Fatalf("%d delivered, %d accepted of 2", k.delivered, k.accepted)
		}
		for seq := uint64(0); seq < window; seq++ {
			if g := s.wire.slot(seq)[0]; g.seq != 0 && (slotOf(g.seq) != uint8(seq) || g.seq-s.head >= window || g.n < 1 || g.n > maxSubs) {
				t.Fatalf("slot %d has %+v after error %v", seq, g, err)
			}
		}
	})
}

// fuzzSender is a sender with two parts under way, on a lane without a socket.
func fuzzSender() (*SendConn, *socket) {
	c := newConn(&Transport{opts: Options{}.withDefaults()}, nil, 1, true)
	c.wire.ring = make([]grant, window*maxSubs)
	s := newSendConn(c)
	k := &socket{lane: &lane{conn: c, up: true, port: &port{}}, outgoing: outgoing{accepted: 2}}
	for i := range 2 {
		q := &s.requests[i]
		c.begin(q, 1)
		q.left, k.parts[i].request = 1, i
	}
	return s, k
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
		var b [frameHeader]byte
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
				return r.ended() != nil
			})
			if !strings.Contains(r.ended().Error(), tt.want) {
				t.Errorf("error %q, want one about %q", r.ended(), tt.want)
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

// A sender believes no grant that is out of turn, and no acknowledgement of what it has not sent.
func TestSocketHostileReturns(t *testing.T) {
	tests := []struct {
		name, sent, want string
	}{
		{"unknown kind", "03 01 000000000000 0100000000000000", "frame of kind 3"},
		{"reserved bits", "01 01 000000000001 0100000000000000", "000000000001 where zeros belong"},
		{"none", "01 00 000000000000 0100000000000000", "names 0 buffers"},
		{"nine", "01 09 000000000000 0100000000000000", "names 9 buffers"},
		{"sequence 0", "01 01 000000000000 0000000000000000 00000000 00000000", "grant 0 is out of turn; 1 is next"},
		{"beyond the window", "01 01 000000000000 0101000000000000 00000000 00000000", "grant 257 is out of turn"},
		{"twice", "01 01 000000000000 0100000000000000 01000000 05000000 01 01 000000000000 0100000000000000 00000000 00000000", "grant 1 is out of turn"},
		{"acknowledgement of nothing", "02 00 000000000000 0000000000000000", "0 parts are said to have arrived; 0 were said before, and 0 were sent"},
		{"acknowledgement of what was not sent", "02 00 000000000000 0100000000000000", "1 parts are said to have arrived; 0 were said before, and 0 were sent"},
		{"acknowledgement with a buffer", "02 01 000000000000 0000000000000000", "names 1 buffers"},
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

// A count of parts that falls, stays or exceeds what was sent ends the lane: what is
// delivered stays so, and nothing else becomes it.
func TestSocketHostileAcks(t *testing.T) {
	const each = 3 // parts on every lane
	for _, count := range []uint64{0, 1, each + 1, 1<<64 - 1} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			leaks(t)
			s, r := tcpPair(t, 1)
			m, _ := memory(t, 8)
			sg, rg := register(t, s, m), register(t, r, m)
			var sent []*Request
			for range each * len(s.lanes) {
				irecv(t, r, Buffer{m.Addr(), 8, 0, rg})
				sent = append(sent, isend(t, s, m, 0, 8, 0, sg))
			}
			var b [2 * frameHeader]byte
			returnFrame{kind: kindAck, number: 1}.encode((*[frameHeader]byte)(b[:]))
			returnFrame{kind: kindAck, number: count}.encode((*[frameHeader]byte)(b[frameHeader:]))
			if _, err := writeFD(r.sockets[0].fd, b[:]); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("%d parts are said to have arrived; 1 were said before, and %d were sent", count, each)
			done(t, "the first send", sent[0])
			for _, q := range sent[1:] {
				await(t, "the error", func() bool {
					ok, err := q.Test()
					if ok || err != nil && (!errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), want)) {
						t.Fatalf("done %v, error %v; want one about %q", ok, err, want)
					}
					return err != nil
				})
			}
			closeBoth(t, s, r)
		})
	}
}
