package accept

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
)

// Each reason and address is logged once, up to a limit; all refusals are counted.
func TestRefusalsAreLoggedWithinALimit(t *testing.T) {
	var log text
	r := Refusals{name: "port", log: slog.New(slog.NewTextHandler(&log, nil))}
	for i := range 2 * maxLogged {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)
		r.Refuse(TimedOut, from, nil)
		r.Refuse(TimedOut, from, nil)
	}
	r.Count(TimedOut)
	if got := strings.Count(log.String(), "level=WARN"); got != maxLogged+1 {
		t.Errorf("%d lines, want %d", got, maxLogged+1)
	}
	if got := r.Counts()[TimedOut]; got != 4*maxLogged+1 {
		t.Errorf("%d refusals counted, want %d", got, 4*maxLogged+1)
	}
}
