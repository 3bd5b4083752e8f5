package topology

import (
	"net/netip"
	"testing"

	"ncclmesh/handshake"
)

func TestParseRate(t *testing.T) {
	tests := []struct {
		in   string
		want int
		err  string
	}{
		{"200 Gb/sec (4X HDR)", 200000, ""},
		{"2.5 Gb/sec (1X SDR)", 2500, ""},
		{"800 Gb/sec (8X NDR)", 800000, ""},
		{"10 Gb/sec", 10000, ""},
		{"", 0, `rate "": want a number and Gb/sec`},
		{"200", 0, `rate "200": want a number and Gb/sec`},
		{"200 Mb/sec", 0, `rate "200 Mb/sec": want a number and Gb/sec`},
		{"fast Gb/sec", 0, `rate "fast Gb/sec": want a number of Gb/sec above 0`},
		{"NaN Gb/sec", 0, `rate "NaN Gb/sec": want a number of Gb/sec above 0`},
		{"-1 Gb/sec", 0, `rate "-1 Gb/sec": want a number of Gb/sec above 0`},
		{"0 Gb/sec", 0, `rate "0 Gb/sec": want a number of Gb/sec above 0`},
		{"1e300 Gb/sec", 0, `rate "1e300 Gb/sec": want a number of Gb/sec above 0`},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := parseRate(tt.in)
			check(t, got, err, tt.want, tt.err)
		})
	}
}

func TestParsePCILink(t *testing.T) {
	tests := []struct {
		speed, width string
		want         int
		err          string
	}{
		{"2.5 GT/s PCIe", "1", 2000, ""},
		{"5.0 GT/s PCIe", "8", 32000, ""},
		{"8.0 GT/s PCIe", "8", 63015, ""},
		{"16.0 GT/s PCIe", "16", 252061, ""},
		{"32.0 GT/s PCIe", "4", 126030, ""},
		{"64.0 GT/s PCIe", "16", 968000, ""},
		{"8 GT/s", "4", 31507, ""}, // kernels before 5.8
		{"Unknown", "0", 0, `PCIe link speed "Unknown": want a number and GT/s`},
		{"x GT/s", "4", 0, `PCIe link speed "x GT/s": want a number of GT/s above 0`},
		{"inf GT/s", "4", 0, `PCIe link speed "inf GT/s": want a number of GT/s above 0`},
		{"8 GT/s", "0", 0, `PCIe link width "0": want 1 to 32`},
		{"8 GT/s", "255", 0, `PCIe link width "255": want 1 to 32`},
		{"8 GT/s", "-4", 0, `PCIe link width "-4": want 1 to 32`},
	}
	for _, tt := range tests {
		t.Run(tt.speed+" x"+tt.width, func(t *testing.T) {
			got, err := parsePCILink(tt.speed, tt.width)
			check(t, got, err, tt.want, tt.err)
		})
	}
}

func TestParseGID(t *testing.T) {
	const want = "want eight groups of four hexadecimal digits"
	tests := []struct {
		in   string
		want netip.Addr
		err  string
	}{
		{"fe80:0000:0000:0000:5054:00ff:fe00:0a64", netip.MustParseAddr("fe80::5054:ff:fe00:a64"), ""},
		{"0000:0000:0000:0000:0000:ffff:c0a8:6401", netip.MustParseAddr("::ffff:192.168.100.1"), ""},
		{"192.168.100.1", netip.Addr{}, `GID "192.168.100.1": ` + want},
		{"fe80::1%eth0", netip.Addr{}, `GID "fe80::1%eth0": ` + want},
		{"fe80", netip.Addr{}, `GID "fe80": ` + want},
		{"", netip.Addr{}, `GID "": ` + want},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := parseGID(tt.in)
			check(t, got, err, tt.want, tt.err)
		})
	}
}

func TestParseGUID(t *testing.T) {
	const want = "want four groups of four hexadecimal digits"
	tests := []struct {
		in   string
		want uint64
		err  string
	}{
		{"4cbb:4700:0000:0103", 0x4cbb470000000103, ""},
		{"0000:0000:0000:0000", 0, ""},
		{"4cbb:4700:0000", 0, `GUID "4cbb:4700:0000": ` + want},
		{"4cbb:4700:0000:0103:0000", 0, `GUID "4cbb:4700:0000:0103:0000": ` + want},
		{"4cbb:47000:000:0103", 0, `GUID "4cbb:47000:000:0103": ` + want},
		{"4cbb:+470:0000:0103", 0, `GUID "4cbb:+470:0000:0103": ` + want},
		{"", 0, `GUID "": ` + want},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := parseGUID(tt.in)
			check(t, got, err, tt.want, tt.err)
		})
	}
}

func TestParseGIDType(t *testing.T) {
	tests := []struct {
		in    string
		layer uint8
		want  GIDType
		err   string
	}{
		{"IB/RoCE v1", handshake.IBV_LINK_LAYER_ETHERNET, GIDTypeRoCEv1, ""},
		{"RoCE v2", handshake.IBV_LINK_LAYER_ETHERNET, GIDTypeRoCEv2, ""},
		{"IB/RoCE v1", handshake.IBV_LINK_LAYER_INFINIBAND, GIDTypeIB, ""},
		{"", handshake.IBV_LINK_LAYER_INFINIBAND, GIDTypeIB, ""},
		{"", handshake.IBV_LINK_LAYER_ETHERNET, 0, `GID type "": want "IB/RoCE v1" or "RoCE v2"`},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := parseGIDType(tt.in, tt.layer)
			check(t, got, err, tt.want, tt.err)
		})
	}
}

func TestParseState(t *testing.T) {
	tests := []struct {
		in, want string
		active   bool
	}{
		{"4: ACTIVE", "ACTIVE", true},
		{"1: DOWN", "DOWN", false},
		{"3: ARMED", "ARMED", false},
		{"ACTIVE", "ACTIVE", false},
		{"", "", false},
	}
	for _, tt := range tests {
		if state, active := parseState(tt.in); state != tt.want || active != tt.active {
			t.Errorf("parseState(%q) = %q, %t, want %q, %t", tt.in, state, active, tt.want, tt.active)
		}
	}
}

func TestIsPCIAddr(t *testing.T) {
	tests := map[string]bool{
		"0000:01:00.0": true, "10000:e1:1f.7": true, "0002:01:00.1": true,
		"0000:01:00.8": false, "pci0000:00": false, "virtio2": false, "0000:01:00": false, "": false,
		"000:01:00.0": false, "0000:01:00.0.0": false, "0000:0g:00.0": false, "0000:01.00:0": false,
	}
	for in, want := range tests {
		if got := isPCIAddr(in); got != want {
			t.Errorf("isPCIAddr(%q) = %t, want %t", in, got, want)
		}
	}
}

// FuzzParse passes the same bytes to every parser of a sysfs file.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"200 Gb/sec (4X HDR)", "32.0 GT/s PCIe", "16", "4: ACTIVE", "fe80:0000:0000:0000:5054:00ff:fe00:0a64",
		"4cbb:4700:0000:0103", "IB/RoCE v1", "0000:01:00.0", "-1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if mbps, err := parseRate(s); (err == nil) != (mbps > 0) {
			t.Errorf("parseRate(%q) = %d, %v", s, mbps, err)
		}
		for _, mbps := range []func() (int, error){
			func() (int, error) { return parsePCILink(s, "4") },
			func() (int, error) { return parsePCILink("8 GT/s", s) },
		} {
			if v, err := mbps(); (err != nil && v != 0) || v < 0 {
				t.Errorf("parsePCILink of %q = %d, %v", s, v, err)
			}
		}
		if a, err := parseGID(s); err == nil && (!a.Is6() || a.Zone() != "") {
			t.Errorf("parseGID(%q) = %v", s, a)
		}
		if g, err := parseGUID(s); err != nil && g != 0 {
			t.Errorf("parseGUID(%q) = %#x, %v", s, g, err)
		}
		if _, active := parseState(s); active && s[0] != '4' {
			t.Errorf("parseState(%q) is active", s)
		}
		if typ, err := parseGIDType(s, handshake.IBV_LINK_LAYER_ETHERNET); err == nil && typ == GIDTypeIB {
			t.Errorf("parseGIDType(%q) is InfiniBand on Ethernet", s)
		}
		isPCIAddr(s)
	})
}

// check compares a result and the text of an error, "" for none.
func check[T comparable](t *testing.T, got T, err error, want T, wantErr string) {
	t.Helper()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != wantErr {
		t.Errorf("error %q, want %q", text, wantErr)
	}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
