package topology

import (
	"net/netip"
	"testing"
)

func TestOnLink(t *testing.T) {
	for in, want := range map[string]string{
		"192.168.1.1":        "192.168.1.1",
		"::ffff:192.168.1.1": "192.168.1.1",
		"169.254.1.1":        "169.254.1.1",
		"2001:db8::1":        "2001:db8::1",
		"fe80::1":            "fe80::1%p0",
		"fe80::1%other":      "fe80::1%p0",
	} {
		if got := OnLink(netip.MustParseAddr(in), "p0"); got != netip.MustParseAddr(want) {
			t.Errorf("OnLink(%s) = %v, want %s", in, got, want)
		}
	}
}
