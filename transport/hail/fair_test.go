package hail

import (
	"net/netip"
	"testing"
	"time"
)

// TestFair: a flood leaves those who ask beside it their answers: all of them where it comes from a socket of the same
// node, and from however many sockets of another one.
func TestFair(t *testing.T) {
	flooder, asker := netip.MustParseAddr("fe80::1%p0"), netip.MustParseAddr("fe80::2%p0")
	tests := []struct {
		name    string
		sockets int
		asker   netip.AddrPort
		flood   int // of its questions that are answered
	}{
		{"a socket of the same node", 1, netip.AddrPortFrom(flooder, 999), 3 * maxOfSocket},
		{"many sockets of another node", 1000, netip.AddrPortFrom(asker, 999), 3 * maxOfAddress},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f fair
			now, flood, asked, answered := time.Time{}, 0, 0, 0
			for i := range 3 * 5000 {
				now = now.Add(time.Second / 5000)
				if f.allow(now, netip.AddrPortFrom(flooder, uint16(1000+i%tt.sockets))) {
					flood++
				}
				if i%(5000/10) == 5000/10-1 {
					asked++
					if f.allow(now, tt.asker) {
						answered++
					}
				}
			}
			if answered != asked || flood != tt.flood {
				t.Errorf("%d of %d questions are answered beside a flood, and %d of the flood's, want all and %d", answered, asked, flood, tt.flood)
			}
		})
	}
}

// TestFairLimit: there is an end to all answers of an interface, and to what is remembered of those who asked.
func TestFairLimit(t *testing.T) {
	var f fair
	n := 0
	for i := range 100 * maxAnswers {
		if f.allow(time.Time{}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), uint16(i))) {
			n++
		}
	}
	if n != maxAnswers || len(f.to) > 2*maxAnswers {
		t.Errorf("%d answers in a second, want %d; %d askers are remembered", n, maxAnswers, len(f.to))
	}
	if !f.allow(time.Time{}.Add(time.Second), netip.AddrPortFrom(ownV4, 1)) {
		t.Error("nobody is answered in the next second")
	}
}
