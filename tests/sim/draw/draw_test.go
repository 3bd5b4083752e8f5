package draw

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func first(s *Stream, n int) (out []uint64) {
	for range n {
		out = append(out, s.Uint64())
	}
	return out
}

// A seed's draws stay as they are: seeds of old failures stand in files.
func TestGolden(t *testing.T) {
	s := New(1)
	want := []uint64{0xb822eada52d48c15, 0xbf082713dfee2008, 0x1c39d33d721abb38}
	if diff := cmp.Diff(want, first(s.Stream("a"), 3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Streams do not depend on one another, and each name and seed has draws of its own.
func TestStreamsAreIndependent(t *testing.T) {
	want := first(New(7).Stream("link 0"), 20)
	s := New(7)
	other := s.Stream("link 1")
	first(other, 13)
	got := s.Stream("link 0")
	var mixed []uint64
	for range 20 {
		mixed = append(mixed, got.Uint64())
		other.Uint64()
	}
	if diff := cmp.Diff(want, mixed); diff != "" {
		t.Errorf("draws beside another stream (-alone +beside):\n%s", diff)
	}
	seen := map[uint64]string{}
	for _, seed := range []uint64{0, 1, 7, 8} {
		s := New(seed)
		for _, name := range []string{"", "a", "b", "ab"} {
			for _, v := range first(s.Stream(name), 100) {
				if seen[v] != "" {
					t.Fatalf("%q of seed %d draws what %s drew", name, seed, seen[v])
				}
				seen[v] = name
			}
		}
	}
}

func TestSameNameTwice(t *testing.T) {
	s := New(1)
	s.Stream("a")
	defer func() {
		if recover() == nil {
			t.Error("two streams of one name")
		}
	}()
	s.Stream("a")
}

func TestDistributions(t *testing.T) {
	s := New(3).Stream("x")
	const n = 20000
	hits := 0
	var tens [5]int // 1 to 9, to 99, to 999 and so on
	for range n {
		if s.Chance(0.25) {
			hits++
		}
		if d := s.Between(3, 5); d < 3 || d > 5 {
			t.Fatalf("%d is not between 3 and 5", d)
		}
		v := s.LogUniform(1, 99999)
		if v < 1 || v > 99999 {
			t.Fatalf("%d is not between 1 and 99999", v)
		}
		decade := 0
		for ; v >= 10; v /= 10 {
			decade++
		}
		tens[decade]++
	}
	if hits < n/5 || hits > n*3/10 {
		t.Errorf("%d of %d draws hit with chance 0.25", hits, n)
	}
	for i, c := range tens {
		if c < n/10 || c > n*3/10 {
			t.Errorf("%d of %d numbers have %d digits, want about a fifth", c, n, i+1)
		}
	}
	zero := false
	for range 1000 {
		zero = zero || s.LogUniform(0, 100) == 0
	}
	if !zero {
		t.Error("LogUniform(0, 100) never draws 0")
	}
	before := s.Draws()
	if s.Chance(0) || !s.Chance(1) {
		t.Error("chances 0 and 1")
	}
	if got := s.Draws() - before; got != 2 {
		t.Errorf("two chances took %d draws", got)
	}
	if d := s.Between(time.Second, time.Second); d != time.Second {
		t.Errorf("between a second and a second: %v", d)
	}
}
