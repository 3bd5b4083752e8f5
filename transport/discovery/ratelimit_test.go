package discovery

import (
	"net/netip"
	"testing"
	"time"
)

// TestRateLimit: a flood does not use up the replies of others: not at all if it comes from one socket of the same node, or
// from any number of sockets of another node.
func TestRateLimit(t *testing.T) {
	flooder, asker := netip.MustParseAddr("fe80::1%p0"), netip.MustParseAddr("fe80::2%p0")
	tests := []struct {
		name    string
		sockets int
		asker   netip.AddrPort
		flood   int // of its questions that are answered
	}{
		{"a socket of the same node", 1, netip.AddrPortFrom(flooder, 999), 3 * maxToSocket},
		{"many sockets of another node", 1000, netip.AddrPortFrom(asker, 999), 3 * maxToAddress},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f rateLimit
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

// TestRateLimitTotal: the replies of an interface are limited in total, and so is the memory of the senders.
func TestRateLimitTotal(t *testing.T) {
	var f rateLimit
	n := 0
	for i := range 100 * maxReplies {
		if f.allow(time.Time{}, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), uint16(i))) {
			n++
		}
	}
	if n != maxReplies || len(f.to) > 2*maxReplies {
		t.Errorf("%d answers in a second, want %d; %d askers are remembered", n, maxReplies, len(f.to))
	}
	if !f.allow(time.Time{}.Add(time.Second), netip.AddrPortFrom(ownV4, 1)) {
		t.Error("nobody is answered in the next second")
	}
}
