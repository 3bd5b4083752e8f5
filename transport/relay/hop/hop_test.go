package hop

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
)

// A header is decoded as it was encoded, and other bytes are refused.
func TestHeader(t *testing.T) {
	want := Header{Seq: 1<<40 + 3, Length: 1 << 17, Kind: More, Socket: [2]uint64{0x1122334455667788, 9}}
	var b [HeaderSize]byte
	want.Encode(b[:])
	got, err := Decode(&b)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, tt := range []struct {
		name string
		at   int
	}{
		{"no zeros", 32},
		{"no zeros at the end", 63},
		{"kind", 13},
	} {
		bad := b
		bad[tt.at] = 1
		if _, err := Decode(&bad); err == nil {
			t.Errorf("%s: it passes", tt.name)
		}
	}
}

func TestCheck(t *testing.T) {
	const ring = 16 * Unit
	for _, tt := range []struct {
		name        string
		h           Header
		place, came uint32
		whole       uint32
		err         string
	}{
		{"whole", Header{Seq: 7, Length: 100}, 13, 164, 1 << 20, ""},
		{"empty", Header{Seq: 7}, 15, 64, 1 << 20, ""},
		{"its header alone", Header{Seq: 7, Length: 100}, 13, 64, 99, ""},
		{"before its turn", Header{Seq: 8}, 0, 64, 1 << 20, "frame 8 arrived, 7 is next"},
		{"again", Header{Seq: 6}, 0, 64, 1 << 20, "frame 6 arrived, 7 is next"},
		{"short", Header{Seq: 7, Length: 100}, 0, 163, 1 << 20, "arrived with 99"},
		{"long", Header{Seq: 7, Length: 100}, 0, 165, 1 << 20, "arrived with 101"},
		{"more than its header", Header{Seq: 7, Length: 100}, 0, 164, 99, "arrived with 100"},
		{"across the end", Header{Seq: 7, Length: 100}, 14, 164, 1 << 20, "outside the ring"},
		{"far outside", Header{Seq: 7, Length: 100}, 1<<31 - 1, 164, 1 << 20, "outside the ring"},
		{"far too long", Header{Seq: 7, Length: 1<<32 - 1}, 0, 64, 99, "outside the ring"},
	} {
		err := tt.h.Check(7, tt.place, ring, tt.came, tt.whole)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
	}
}

// Counts that fall, or exceed the frames sent, are refused, also after they have wrapped around.
func TestCredits(t *testing.T) {
	for _, base := range []uint64{0, 1<<15 - 5, 1 << 40} {
		w := NewWindow(handshake.Ring{}, Forth, ForthUndelivered)
		w.Sent, w.Done, w.Freed, w.Delivered, w.released = base, base, base, base, base
		for range 10 {
			if _, ok := w.Take(HeaderSize); !ok {
				t.Fatal("no room")
			}
		}
		for _, tt := range []struct {
			name             string
			freed, delivered uint64
			ok               bool
		}{
			{"nothing new", base, base, true},
			{"some", base + 4, base + 2, true},
			{"freed falls", base + 3, base + 2, false},
			{"delivered falls", base + 4, base + 1, false},
			{"freed exceeds", base + 11, base + 2, false},
			{"delivered exceeds", base + 4, base + 11, false},
			{"all", base + 10, base + 10, true},
		} {
			before := w
			err := w.HandleCredit(Credit(tt.freed, tt.delivered))
			if (err == nil) != tt.ok {
				t.Errorf("after %d, %s: %v", base, tt.name, err)
			}
			if err != nil && (w.Freed != before.Freed || w.Delivered != before.Delivered) {
				t.Errorf("after %d, %s: it counts", base, tt.name)
			}
		}
		if err := w.HandleCredit(Credit(base+10, base+10) | 1<<15); err == nil {
			t.Error("a bit that is zero is one")
		}
	}
}

// For frames of any sizes, no two frames in flight overlap, none crosses the end of the ring, and the whole ring is
// free at the end.
func TestPlaces(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ring := handshake.Ring{Size: MinRing}
	w := NewWindow(ring, Forth, ForthUndelivered)
	type span struct{ from, to uint32 }
	var under []span
	for range 20000 {
		size := HeaderSize + rng.IntN(MostPayload(ring.Size)+1)
		place, ok := w.Take(size)
		if ok {
			s := span{place * Unit, place*Unit + uint32(size)}
			for _, o := range under {
				if s.from < o.to && o.from < s.to {
					t.Fatalf("a frame at %v over one at %v", s, o)
				}
			}
			if s.to > ring.Size {
				t.Fatalf("a frame at %v of %d", s, ring.Size)
			}
			under = append(under, s)
		}
		if len(under) > Forth || !ok && len(under) == 0 {
			t.Fatalf("%d frames under way, another: %v", len(under), ok)
		}
		for n := rng.IntN(3); (n > 0 || !ok) && len(under) > 0; n-- {
			w.Complete()
			if err := w.HandleCredit(Credit(w.Freed+1, w.Freed+1)); err != nil {
				t.Fatal(err)
			}
			under, ok = under[1:], true
		}
	}
	for len(under) > 0 {
		w.Complete()
		if err := w.HandleCredit(Credit(w.Done, w.Done)); err != nil {
			t.Fatal(err)
		}
		under = under[1:]
	}
	if w.used != 0 || w.tail != 0 {
		t.Errorf("%d units are used, the next is %d", w.used, w.tail)
	}
}

// A place is free, and a frame has arrived, only after both this side's adapter and the next process are done with the
// frame, in any order.
func TestBothAreDone(t *testing.T) {
	w := NewWindow(handshake.Ring{Size: MinRing}, 1, 2)
	if _, ok := w.Take(1000); !ok {
		t.Fatal("no room at first")
	}
	if err := w.HandleCredit(Credit(1, 1)); err != nil {
		t.Fatal(err)
	}
	if _, ok := w.Take(1000); ok || w.Arrived() != 0 {
		t.Errorf("room %v, %d arrived, and the adapter may send again", ok, w.Arrived())
	}
	w.Complete()
	if _, ok := w.Take(1000); !ok || w.Arrived() != 1 {
		t.Errorf("room %v, %d arrived", ok, w.Arrived())
	}
}

// Eight of the largest frames fill a ring of any size.
func TestMostPayload(t *testing.T) {
	for bytes := 64 << 10; bytes <= 1<<20; bytes *= 2 {
		ring := handshake.Ring{Size: uint32(RingOf(bytes))}
		most := MostPayload(ring.Size)
		if most < bytes/8 || most%align != 0 {
			t.Errorf("a ring for %d: frames of %d", bytes, most)
		}
		w := NewWindow(ring, Forth, ForthUndelivered)
		n := 0
		for ; n < 9; n++ {
			if _, ok := w.Take(HeaderSize + most); !ok {
				break
			}
		}
		if n != 8 {
			t.Errorf("a ring for %d takes %d frames of %d", bytes, n, most)
		}
	}
}
