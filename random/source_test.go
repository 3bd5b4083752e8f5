package random

import (
	"encoding/binary"
	"testing"
	"time"
)

// fixed is a source of one number.
func fixed(n uint64, asked *string) Source {
	return func(b []byte, what string) {
		*asked = what
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], n)
		for i := range b {
			b[i] = word[i%8]
		}
	}
}

// A number of a range is that part of it that the source draws of all numbers.
func TestN(t *testing.T) {
	for _, tt := range []struct {
		drawn uint64
		n     time.Duration
		want  time.Duration
	}{
		{0, 20 * time.Millisecond, 0},
		{1 << 63, 20 * time.Millisecond, 10 * time.Millisecond},
		{1<<64 - 1, 20 * time.Millisecond, 20*time.Millisecond - 1},
		{1<<64 - 1, 1, 0},
	} {
		var asked string
		if got := N(fixed(tt.drawn, &asked), tt.n, "a wait"); got != tt.want || asked != "a wait" {
			t.Errorf("%#x of %v is %v for %q, want %v", tt.drawn, tt.n, got, asked, tt.want)
		}
	}
}

// The system's source reaches every number of a small range, and no other.
func TestSystem(t *testing.T) {
	var s Source
	var seen [5]bool
	for range 1000 {
		seen[N(s, len(seen), "test")] = true
	}
	if seen != [5]bool{true, true, true, true, true} {
		t.Errorf("drawn of 5: %v", seen)
	}
	if a, b := s.Uint64("test"), s.Uint64("test"); a == b {
		t.Errorf("drawn twice: %#x", a)
	}
}

// What is drawn for somebody has his name.
func TestFor(t *testing.T) {
	var asked string
	fixed(7, &asked).For(struct{ Lane int }{3}).Uint64("token")
	if want := "{Lane:3}: token"; asked != want {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	if Source(nil).For("somebody") != nil {
		t.Error("the system's source is none any more")
	}
}

func TestEmptyRange(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a number of none was drawn")
		}
	}()
	N(Source(nil), 0, "test")
}
