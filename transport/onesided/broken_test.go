package onesided_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"ncclmesh/tests/transporttest"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
)

// A peer that breaks the protocol is lost with an error that says how, and nothing is written.
func TestPeerBreaksProtocol(t *testing.T) {
	const signal, get, got = 1, 2, 3
	message := func(kind, window uint32, offset, value, bytes uint64, toWindow, what uint32, toOffset uint64) []byte {
		b := make([]byte, 64)
		for i, v := range []uint32{0: kind, 1: window, 8: toWindow, 9: what} {
			binary.LittleEndian.PutUint32(b[4*i:], v)
		}
		for at, v := range map[int]uint64{8: offset, 16: value, 24: bytes, 40: toOffset} {
			binary.LittleEndian.PutUint64(b[at:], v)
		}
		return b
	}
	for _, tt := range []struct {
		name    string
		message []byte
		times   int
		want    string
	}{
		{"a signal word beyond the window", message(signal, 1, size, 1, 0, 0, 1, 0), 1, "a signal word at offset 4194304 of window 1, which has 4194304 bytes; a multiple of 8 inside the window is needed"},
		{"a signal word that is not aligned", message(signal, 1, 4, 1, 0, 0, 1, 0), 1, "a signal word at offset 4 of window 1"},
		{"a signal word at an offset that wraps", message(signal, 1, ^uint64(7), 1, 0, 0, 1, 0), 1, "a signal word at offset 18446744073709551608 of window 1"},
		{"a signal into a window that was never opened", message(signal, 7, 0, 1, 0, 0, 1, 0), 1, "a message names window 7; windows up to 1 were opened"},
		{"a signal that does nothing known", message(signal, 1, 0, 1, 0, 0, 4, 0), 1, "a message that is no signal, get or answer: 01 00 00 00"},
		{"a message of no kind", message(9, 1, 0, 1, 0, 0, 0, 0), 1, "a message that is no signal, get or answer: 09 00 00 00"},
		{"a message of another size", make([]byte, 63), 1, "a message of 63 bytes; all have 64"},
		{"an answer to no get", message(got, 0, 0, 1, 0, 0, 0, 0), 1, "an answer to operation 1, which is no get that is outstanding"},
		{"more gets than may be outstanding", message(get, 1, 0, 1, 8, 9, 0, 0), 65, "more than 64 gets are outstanding"},
	} {
		t.Run(tt.name, transporttest.Simulated(func(t *testing.T) {
			from, to := transporttest.New(t), transporttest.New(t)
			s1, r1 := transporttest.ConnectOver(t, from, to, lane.Verbs, lane.Verbs)
			s2, r2 := transporttest.ConnectOver(t, to, from, lane.Verbs, lane.Verbs)
			b := newSide(t, s2, r1)
			m, bytes := transporttest.Memory(t, 64)
			copy(bytes, tt.message)
			g := transporttest.Register(t, s1, m)
			sent := 0
			transporttest.Await(t, "the end of the peer", func() bool {
				if sent < tt.times {
					begun, err := s1.Signal(m.Addr(), len(tt.message), 0x4f53, g, 0)
					if begun {
						sent++
					}
					if err != nil && b.peer.Err() == nil {
						t.Fatal(err)
					}
				}
				_, _ = s1.ProgressPuts(func(uint64, error) {}) // the error is that the other side has failed
				r2.Progress()
				b.space.Progress()
				return b.peer.Err() != nil
			})
			if err := b.peer.Err(); !errors.Is(err, fault.ErrProtocol) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the peer is lost with %v; want a protocol error about %q", err, tt.want)
			}
			if !zeros(b.b) {
				t.Error("the window was written")
			}
			transporttest.WorldOf(t).Sleep(time.Second)
			if err := errors.Join(s1.Close(), r2.Close(), b.space.Close()); err != nil {
				t.Error(err)
			}
		}))
	}
}
