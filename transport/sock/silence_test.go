package sock

import (
	"testing"
	"time"
)

// A peer is silent from when something waits for it and it acknowledges nothing, and no
// longer than it acknowledged last.
func TestSilence(t *testing.T) {
	const lost = 2
	waits := func(quiet time.Duration, lost uint8) Info { return Info{Waiting: true, LastAck: quiet, Lost: lost} }
	looks := []struct {
		after time.Duration // since the first look
		info  Info
		want  time.Duration
	}{
		{0, Info{LastAck: time.Hour, Lost: 9}, 0}, // nothing waits
		{1 * time.Second, waits(time.Hour, 9), 0}, // from now on
		{3 * time.Second, waits(time.Hour, 1), 0}, // too few are lost
		{4 * time.Second, waits(time.Hour, 2), 3 * time.Second},
		{5 * time.Second, waits(time.Hour, 3), 4 * time.Second},
		{6 * time.Second, waits(time.Second, 2), 0}, // it has acknowledged since
		{8 * time.Second, waits(3*time.Second, 2), 2 * time.Second},
		{9 * time.Second, waits(4*time.Second, 3), 3 * time.Second},
		{10 * time.Second, Info{}, 0},
	}
	var s Silence
	begin := time.Unix(1000, 0)
	for i, l := range looks {
		if got := s.Look(l.info, begin.Add(l.after), lost); got != l.want {
			t.Errorf("look %d: %v, want %v", i, got, l.want)
		}
	}
}
