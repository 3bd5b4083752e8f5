package dataport

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A peer is silent from when something waits for it and it acknowledges nothing, and no
// longer than it acknowledged last.
func TestSilence(t *testing.T) {
	const lost = 2
	waits := func(quiet time.Duration, retransmits, probes uint8) unix.TCPInfo {
		return unix.TCPInfo{Unacked: 1, Last_ack_recv: uint32(quiet.Milliseconds()), Retransmits: retransmits, Probes: probes}
	}
	looks := []struct {
		after time.Duration // since the first look
		info  unix.TCPInfo
		want  time.Duration
	}{
		{0, unix.TCPInfo{Last_ack_recv: 1 << 20, Retransmits: 9}, 0}, // nothing waits
		{1 * time.Second, waits(time.Hour, 9, 0), 0},                 // from now on
		{3 * time.Second, waits(time.Hour, 1, 1), 0},                 // too few are lost
		{4 * time.Second, waits(time.Hour, 2, 0), 3 * time.Second},
		{5 * time.Second, waits(time.Hour, 0, 2), 4 * time.Second},
		{6 * time.Second, waits(time.Second, 2, 0), 0}, // it has acknowledged since
		{8 * time.Second, waits(3*time.Second, 2, 0), 2 * time.Second},
		{9 * time.Second, unix.TCPInfo{Notsent_bytes: 1, Last_ack_recv: 4000, Probes: 3}, 3 * time.Second},
		{10 * time.Second, unix.TCPInfo{}, 0},
	}
	var s Silence
	begin := time.Unix(1000, 0)
	for i, l := range looks {
		if got := s.Look(&l.info, begin.Add(l.after), lost); got != l.want {
			t.Errorf("look %d: %v, want %v", i, got, l.want)
		}
	}
}
