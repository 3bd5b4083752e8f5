package conn

import (
	"encoding/binary"
	"log/slog"
	"testing"

	"ncclmesh/handshake"
	"ncclmesh/transport/lane"
)

// FuzzGranted hands grants in any order to a sender: the ring has only those of the next sequences, each
// once.
func FuzzGranted(f *testing.F) {
	word := func(seqs ...uint64) (b []byte) {
		for _, s := range seqs {
			b = binary.LittleEndian.AppendUint64(b, s)
		}
		return b
	}
	f.Add(word(1, 2, 3), uint64(1), uint8(1))
	f.Add(word(1, 1, lane.Window+1), uint64(1), uint8(8))
	f.Add(word(0, 300, 301, 299+lane.Window, 300+lane.Window, ^uint64(0)), uint64(300), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, head uint64, n uint8) {
		s := NewSender(&Env{Log: slog.New(slog.DiscardHandler), Context: t.Context()}, nil, 1, 0)
		wire, err := lane.NewControlRing()
		if err != nil {
			t.Fatal(err)
		}
		defer wire.Free()
		head = max(head, 1) % (1 << 60)
		s.Ring, s.head = wire, head
		entries := make([]lane.Grant, 1+n%lane.MaxSubs)
		taken := map[uint64]bool{}
		for ; len(b) >= 8; b = b[8:] {
			seq := binary.LittleEndian.Uint64(b)
			next := seq >= head && seq-head < lane.Window && !taken[seq]
			if err := (outgoing{s}).Granted(seq, entries); (err == nil) != next {
				t.Fatalf("grant %d of %d buffers, head %d: error %v", seq, len(entries), head, err)
			}
			taken[seq] = taken[seq] || next
		}
		for seq := head; seq < head+lane.Window; seq++ {
			for i := range entries {
				if g := &wire.Slot(seq)[i]; g.Seq != 0 && g.Seq != seq || (g.Seq == seq) != taken[seq] {
					t.Fatalf("buffer %d of slot %d has %+v", i, lane.SlotOf(seq), g)
				}
			}
		}
	})
}

// A grant that comes again is ignored if the receiver had a reason to send it again, or to send it late. Else the peer has broken
// the protocol.
func TestGrantedAgain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(*Sender)
		ok     bool
	}{
		{"for no reason", func(*Sender) {}, false},
		{"after a lane has failed", func(s *Sender) { s.Count.Failures.Add(1) }, true},
		{"after the peer has added a domain, for which the grant lacked a key", func(s *Sender) {
			for n := range 2 {
				if err := s.setPeerDomains(0, make([]handshake.Domain, 1+n)); err != nil {
					t.Fatal(err)
				}
			}
		}, true},
		{"after an eager message", func(s *Sender) { s.eager.sent = 1 }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewSender(&Env{Log: slog.New(slog.DiscardHandler), Context: t.Context()}, nil, 1, 0)
			ring, err := lane.NewControlRing()
			if err != nil {
				t.Fatal(err)
			}
			defer ring.Free()
			s.Ring = ring
			tt.before(s)
			for again := range 2 {
				if err := (outgoing{s}).Granted(1, make([]lane.Grant, 1)); (err == nil) != (again == 0 || tt.ok) {
					t.Errorf("the grant comes, %d times before: %v", again, err)
				}
			}
		})
	}
}
