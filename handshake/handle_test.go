package handshake

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var equalAddrs = cmp.Options{cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()}

// fill returns bytes that count up from first.
func fill(first byte) (b [16]byte) {
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

func fill32(first byte) (b [32]byte) {
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testHandle() Handle {
	return Handle{
		Port: 0x1234, Listen: 0xa1a2a3a4, Process: fill(0x10), Secret: fill(0x20), State: 0,
		Addrs: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::1")},
		Build: "1.0-dev",
	}
}

const goldenHandle = `
	4e4d 0a 00 1234 a1a2a3a4
	101112131415161718191a1b1c1d1e1f
	202122232425262728292a2b2c2d2e2f
	0000000000000000
	04 0a010203
	06 20010db8000000000000000000000001`

func TestHandleGolden(t *testing.T) {
	h := testHandle()
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, HandleSize)
	copy(want, unhex(t, goldenHandle))
	copy(want[104:], unhex(t, goldenBuild))
	if diff := cmp.Diff(hex.EncodeToString(want), hex.EncodeToString(b[:])); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
	got, err := DecodeHandle(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h, got, equalAddrs); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestHandleKeepsTheFirstAddressesThatFit(t *testing.T) {
	h := testHandle()
	h.Addrs = nil
	for i := range 20 {
		h.Addrs = append(h.Addrs, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeHandle(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(h.Addrs[:10], got.Addrs, equalAddrs); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	h.Addrs = nil
	for range 5 {
		h.Addrs = append(h.Addrs, netip.MustParseAddr("2001:db8::1"))
	}
	h.Addrs = append(h.Addrs, netip.MustParseAddr("::ffff:10.0.0.9"))
	if b, err = h.Encode(); err != nil {
		t.Fatal(err)
	}
	if got, err = DecodeHandle(&b); err != nil {
		t.Fatal(err)
	}
	want := h.Addrs[:3]
	if diff := cmp.Diff(want, got.Addrs, equalAddrs); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestHandleEncodeRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Handle)
		want   string
	}{
		{"no port", func(h *Handle) { h.Port = 0 }, "the listener is not open"},
		{"no address", func(h *Handle) { h.Addrs = nil }, "no address"},
		{"unset address", func(h *Handle) { h.Addrs = []netip.Addr{{}} }, "not set"},
		{"link-local", func(h *Handle) { h.Addrs = []netip.Addr{netip.MustParseAddr("fe80::1")} }, "only on its own link"},
		{"unspecified", func(h *Handle) { h.Addrs = []netip.Addr{netip.MustParseAddr("0.0.0.0")} }, "not that of one host"},
		{"multicast", func(h *Handle) { h.Addrs = []netip.Addr{netip.MustParseAddr("224.0.0.1")} }, "not that of one host"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := testHandle()
			tt.change(&h)
			if _, err := h.Encode(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

func TestHandleDecodeRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(b *[HandleSize]byte)
		want   string
	}{
		{"zeroes", func(b *[HandleSize]byte) { *b = [HandleSize]byte{} }, "was not made by this plugin"},
		{"flags", func(b *[HandleSize]byte) { b[3] = 0x80 }, "unknown flags 0x80"},
		{"port", func(b *[HandleSize]byte) { b[4], b[5] = 0, 0 }, "port is 0"},
		{"no address", func(b *[HandleSize]byte) { clear(b[handleAddrs:]) }, "no address"},
		{"address type", func(b *[HandleSize]byte) { b[handleAddrs] = 5 }, "address type is 5"},
		{"truncated address", func(b *[HandleSize]byte) {
			for i := handleAddrs; i < HandleSize; i++ {
				b[i] = 6
			}
		}, "ends too early"},
		{"bytes after the list", func(b *[HandleSize]byte) { b[handleBuild-1] = 1 }, "bytes follow the last address"},
		{"bytes after the build", func(b *[HandleSize]byte) { b[HandleSize-1] = 1 }, "the build's name is not plain text"},
		{"no build", func(b *[HandleSize]byte) { clear(b[handleBuild:]) }, "no build is named"},
		{"link-local", func(b *[HandleSize]byte) { b[handleAddrs+5+1], b[handleAddrs+5+2] = 0xfe, 0x80 }, "only on its own link"},
		{"IPv4 as IPv6", func(b *[HandleSize]byte) {
			a := netip.MustParseAddr("::ffff:1.2.3.4").As16()
			copy(b[handleAddrs+6:], a[:])
		}, "is written as IPv6"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := testHandle()
			b, err := h.Encode()
			if err != nil {
				t.Fatal(err)
			}
			tt.change(&b)
			if _, err := DecodeHandle(&b); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// The connector reads the handle first, so that it is where most learn of another version.
func TestHandleOfAnotherVersion(t *testing.T) {
	tests := []struct {
		version uint8
		want    string
	}{
		{1, "handle: protocol version 1 (an older build), this side speaks version 10 (build 1.0-dev): install the same plugin on every node"},
		{11, "handle: protocol version 11 (build 3.1+gabc), this side speaks version 10 (build 1.0-dev): install the same plugin on every node"},
	}
	for _, tt := range tests {
		h := testHandle()
		h.Build = "3.1+gabc"
		b, err := h.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b[2], b[3] = tt.version, 0xff // nothing else of it is looked at
		_, err = DecodeHandle(&b)
		var version *VersionError
		if !errors.As(err, &version) || version.Theirs != tt.version || err.Error() != tt.want {
			t.Errorf("error = %v, want %q", err, tt.want)
		}
	}
}

func TestConnectorState(t *testing.T) {
	h := testHandle()
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if got := ConnectorState(&b); got != 0 {
		t.Errorf("state of a fresh handle = %#x", got)
	}
	SetConnectorState(&b, 0x0102030405060708)
	if got := ConnectorState(&b); got != 0x0102030405060708 {
		t.Errorf("state = %#x", got)
	}
	got, err := DecodeHandle(&b)
	if err != nil {
		t.Fatal(err)
	}
	h.State = 0x0102030405060708
	if diff := cmp.Diff(h, got, equalAddrs); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	h := testHandle()
	k := Key(fill32(0x20))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, v := range []any{h, &h, h.Secret, k, Keys{Send: k}} {
			text := fmt.Sprintf(verb, v)
			if strings.Contains(text, "202122") || strings.Contains(text, "32 33 34") || strings.Contains(text, "0x20, 0x21") {
				t.Errorf("%s of %T shows a secret: %s", verb, v, text)
			}
		}
	}
}

func FuzzHandle(f *testing.F) {
	h := testHandle()
	b, err := h.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:])
	f.Add(append(append(unhex(f, goldenHandle), make([]byte, 32)...), unhex(f, goldenBuild)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		var b [HandleSize]byte
		copy(b[:], in)
		h, err := DecodeHandle(&b)
		if err != nil {
			return
		}
		again, err := h.Encode()
		if err != nil {
			t.Fatalf("decoded but not encodable: %v", err)
		}
		if again != b {
			t.Errorf("two spellings of one handle:\n%x\n%x", b, again)
		}
	})
}

// A handle that somebody has sent may be of any length, and one of another is none.
func TestReadHandle(t *testing.T) {
	h := testHandle()
	b, err := h.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadHandle(b[:]); err != nil {
		t.Error(err)
	}
	for _, raw := range [][]byte{nil, b[1:], append(b[:], 0)} {
		if _, err := ReadHandle(raw); err == nil || !strings.Contains(err.Error(), "a handle of ") {
			t.Errorf("%d bytes: %v", len(raw), err)
		}
	}
}
