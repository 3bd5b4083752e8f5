package tcp

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/topology"
)

// The codes of a lane are GMAC over a header, or over at most 64 KiB of a payload, with the number of the code
// as nonce: the bytes of an authenticated stream are fixed.
func TestCodes(t *testing.T) {
	var key handshake.Key
	for i := range key {
		key[i] = byte(i)
	}
	c, err := newCoder(key)
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte{0xa5}, pieceSize)
	// Computed by another implementation of AES-256-GCM, without plaintext, with these additional data.
	for _, tt := range []struct {
		number uint64
		b      []byte
		want   string
	}{
		{0, hexBytes(t, "02 00 000000000000 0100000000000000"), goldenCodes[0]},
		{1, hexBytes(t, "02 00 000000000000 0100000000000000"), goldenCodes[1]},
		{0x0102030405060708, []byte{1}, goldenCodes[2]},
		{2, long, goldenCodes[3]},
	} {
		var code [codeSize]byte
		if !c.seal(&code, tt.number, tt.b) {
			t.Fatal("not mapped")
		}
		if diff := cmp.Diff(tt.want, fmt.Sprintf("%x", code)); diff != "" {
			t.Errorf("code %d of %d bytes (-want +got):\n%s", tt.number, len(tt.b), diff)
		}
		for number, want := range map[uint64]bool{tt.number: true, tt.number + 1: false} {
			if right, ok := c.open(&code, number, tt.b); right != want || !ok {
				t.Errorf("code %d of %d bytes as number %d: %v, %v", tt.number, len(tt.b), number, right, ok)
			}
		}
	}
}

// The number of a code is never used twice: a frame has exactly as many codes as codes returns.
func TestCodeNumbers(t *testing.T) {
	var on, off coder
	on, err := newCoder(handshake.Key{})
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]int{0: 1, 1: 2, pieceSize: 2, pieceSize + 1: 3, 1<<32 - 1: 1 + 1<<16} {
		if got := on.codes(size); got != want || off.codes(size) != 0 {
			t.Errorf("%d bytes: %d codes, want %d; unchecked: %d", size, got, want, off.codes(size))
		}
	}
}

func TestWantsCheck(t *testing.T) {
	prefixes := func(s ...string) (all []netip.Prefix) {
		for _, p := range s {
			all = append(all, netip.MustParsePrefix(p))
		}
		return all
	}
	cable := topology.Port{Addrs: prefixes("192.168.1.1/24", "fd00::1/64", "fe80::1/64")}
	uplink := cable
	uplink.Default = true
	host := topology.Port{Addrs: prefixes("10.0.0.1/32")}
	tests := []struct {
		name, policy, own, peer string
		port                    topology.Port
		want                    bool
	}{
		{"on the cable", CheckAuto, "192.168.1.1", "192.168.1.2", cable, false},
		{"on the cable, mapped", CheckAuto, "::ffff:192.168.1.1", "::ffff:192.168.1.2", cable, false},
		{"on the cable, IPv6", CheckAuto, "fd00::1", "fd00::2", cable, false},
		{"link-local", CheckAuto, "fe80::1%eth9", "fe80::2", cable, false},
		{"link-local to global", CheckAuto, "fe80::1", "2001:db8::2", cable, true},
		{"routed", CheckAuto, "192.168.1.1", "192.168.2.2", cable, true},
		{"the subnet of another address", CheckAuto, "fd00::1", "192.168.1.2", cable, true},
		{"an address of its own", CheckAuto, "10.0.0.1", "10.0.0.2", host, true},
		{"an address that has gone", CheckAuto, "192.168.3.1", "192.168.3.2", cable, true},
		{"on the way out", CheckAuto, "192.168.1.1", "192.168.1.2", uplink, true},
		{"not wanted", CheckOff, "192.168.1.1", "192.168.2.2", uplink, false},
		{"wanted", CheckOn, "192.168.1.1", "192.168.1.2", cable, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := wantsCheck(tt.policy, netip.MustParseAddr(tt.own), netip.MustParseAddr(tt.peer), &tt.port); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

var goldenCodes = [...]string{
	"75e5962422209af9b5778317a42c1f91",
	"b3c618a2e0a850681b601ab3e6f8cbc6",
	"b9f07b732faaf30e9f292ad4f5f3be67",
	"52c65ae10c695c288354c940bdcb2b38",
}
