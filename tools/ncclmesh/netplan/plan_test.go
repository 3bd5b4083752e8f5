package netplan

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tests/require"
)

func mac(t testing.TB, s string) net.HardwareAddr {
	t.Helper()
	m, err := net.ParseMAC("02:00:00:00:00:" + s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Functions are paired with those at the other end, both halves of a connector too, and never over a switch.
func TestCables(t *testing.T) {
	function := func(name, own string, neighbours ...string) Function {
		f := Function{Name: name, MAC: mac(t, own)}
		for _, n := range neighbours {
			f.Neighbours = append(f.Neighbours, mac(t, n))
		}
		return f
	}
	cable := func(name, own, remote string) Cable { return Cable{name, mac(t, own), mac(t, remote)} }
	tests := []struct {
		name      string
		functions []Function
		want      []Cable
		why       map[string]string
	}{
		{"nothing", nil, nil, map[string]string{}},
		{"two cables", []Function{function("p1", "0b", "1b"), function("p0", "0a", "2a")}, []Cable{cable("p0", "0a", "2a"), cable("p1", "0b", "1b")}, map[string]string{}},
		{"halves that hear each other", []Function{function("h0", "0b", "1b", "1a", "0a"), function("h1", "0a", "0b", "1a", "1b", "1a")},
			[]Cable{cable("h0", "0b", "1b"), cable("h1", "0a", "1a")}, map[string]string{}},
		{"two here and one there", []Function{function("h0", "0a", "1a"), function("h1", "0b", "1a")}, []Cable{cable("h0", "0a", "1a")}, map[string]string{"h1": "paired with h0"}},
		{"one here and two there", []Function{function("h0", "0c", "1b", "1a")}, []Cable{cable("h0", "0c", "1a")}, map[string]string{}},
		{"nobody", []Function{function("p0", "0a"), function("p1", "0b", "0a")}, nil, map[string]string{"p0": "no answer comes from the other end of its cable", "p1": "no answer comes from the other end of its cable"}},
		{"a switch", []Function{function("p0", "0a", "1a", "2a", "3a")}, nil, map[string]string{"p0": "switch"}},
		{"three of this node at a switch", []Function{function("p0", "0a", "1a"), function("p1", "0b", "1a"), function("p2", "0c", "1a")}, nil,
			map[string]string{"p0": "switch", "p1": "switch", "p2": "switch"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, why := Cables(tt.functions)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("cables (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.why, why, cmp.Comparer(func(a, b string) bool { return strings.Contains(a, b) || strings.Contains(b, a) })); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNew(t *testing.T) {
	one, two := Cable{"p0", mac(t, "0a"), mac(t, "1a")}, Cable{"p1", mac(t, "0b"), mac(t, "2b")}
	// In this range they meet, which both of the nodes that have them can see.
	narrow := netip.MustParsePrefix("10.0.0.0/22")
	third := two
	for i := range 1 << 16 {
		third.Remote = net.HardwareAddr{2, 0, 0, 1, byte(i >> 8), byte(i)}
		if address(third, narrow).Masked() == address(one, narrow).Masked() {
			break
		}
	}
	tests := []struct {
		name   string
		cables []Cable
		within netip.Prefix
		used   []Used
		want   string
	}{
		{"fine", []Cable{one, two}, Range, []Used{{netip.MustParsePrefix("192.168.0.0/16"), "eth0"}}, ""},
		{"used", []Cable{one, two}, Range, []Used{{netip.MustParsePrefix("10.0.0.0/8"), "a route over wg0"}}, "which a route over wg0 has (10.0.0.0/8): choose another --range"},
		{"the same twice", []Cable{one, third}, narrow, nil, "p0 and p1 would both get"},
	}
	for _, tt := range tests {
		p, err := New(tt.cables, tt.within, tt.used)
		if tt.want == "" && (err != nil || len(p) != len(tt.cables)) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, %v; want %q", tt.name, p, err, tt.want)
		}
	}
}

func TestParseRange(t *testing.T) {
	for s, fine := range map[string]bool{
		"10.176.0.0/12": true, "198.18.0.0/15": true, "10.0.0.0/22": true, "10.0.0.0/8": true,
		"10.0.0.0/23": false, "0.0.0.0/0": false, "10.1.0.0/12": false, "fd00::/8": false, "10.0.0.0": false, "": false,
	} {
		if p, err := ParseRange(s); (err == nil) != fine {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
}

// The two ends of a cable, each by itself, find two addresses of one subnet.
func FuzzAddress(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 0, 1}, []byte{2, 0, 0, 0, 0, 2}, uint8(12))
	f.Fuzz(func(t *testing.T, a, b []byte, bits uint8) {
		if len(a) != 6 || len(b) != 6 || bytes.Equal(a, b) || bits < 8 || bits > subnetBits-8 {
			t.Skip()
		}
		within := netip.PrefixFrom(netip.MustParseAddr("10.176.0.0"), int(bits)).Masked()
		here, there := address(Cable{"x", a, b}, within), address(Cable{"y", b, a}, within)
		if here.Masked() != there.Masked() || here.Addr() == there.Addr() || !within.Contains(here.Addr()) || here.Addr() == here.Masked().Addr() ||
			here.Masked().Addr().Next().Next().Next() == here.Addr() {
			t.Errorf("%x to %x: %v and %v", a, b, here, there)
		}
	})
}

// netplan itself reads the file, and makes of it what was meant.
func TestFile(t *testing.T) {
	p := Plan{
		{Cable{"enp1s0f0np0", mac(t, "0a"), mac(t, "1a")}, netip.MustParsePrefix("10.176.0.1/30")},
		{Cable{"enP2p1s0f0np0", mac(t, "0b"), mac(t, "1b")}, netip.MustParsePrefix("10.177.0.6/30")},
	}
	require.Tools(t, require.Packages, "netplan")
	root := t.TempDir()
	if err := (&Applier{Root: root}).replace([]byte(p.File())); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("netplan", "generate", "--root-dir", root).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("netplan generate: %v\n%s", err, out)
	}
	for _, e := range p {
		text, err := os.ReadFile(filepath.Join(root, "run/systemd/network/10-netplan-"+e.Name+".network"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Name=" + e.Name, "Address=" + e.Address.String(), "MTUBytes=9000", "LinkLocalAddressing=ipv6", "IPv6AcceptRA=no",
			"ConfigureWithoutCarrier=yes", "RequiredForOnline=no"} {
			if !strings.Contains(string(text), want+"\n") {
				t.Errorf("%s lacks %q:\n%s", e.Name, want, text)
			}
		}
	}
	own, err := Own(root)
	if diff := cmp.Diff([]string{"10.176.0.1/30", "10.177.0.6/30"}, own); diff != "" || err != nil {
		t.Errorf("read again (-want +got):\n%s%v", diff, err)
	}
}
