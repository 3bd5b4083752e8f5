package sock

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ncclmesh/transport/limit"
)

func TestParsePortRange(t *testing.T) {
	tests := []struct {
		in   string
		want PortRange
		ok   bool
	}{
		{"50000-50999", PortRange{50000, 50999}, true},
		{" 1024 - 65535 ", PortRange{1024, 65535}, true},
		{"50000-50000", PortRange{50000, 50000}, true},
		{"50001-50000", PortRange{}, false},
		{"1023-2000", PortRange{}, false},
		{"50000-65536", PortRange{}, false},
		{"50000", PortRange{}, false},
		{"-50000", PortRange{}, false},
		{"50000-", PortRange{}, false},
		{"50000:50999", PortRange{}, false},
		{"50000-50999-51000", PortRange{}, false},
		{"0xc350-50999", PortRange{}, false},
		{"", PortRange{}, false},
	}
	for _, tt := range tests {
		got, err := ParsePortRange(tt.in)
		if (err == nil) != tt.ok || got != tt.want {
			t.Errorf("%q: %v, %v", tt.in, got, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "want FIRST-LAST, two ports from 1024 to 65535 in rising order") {
			t.Errorf("%q: %v", tt.in, err)
		}
	}
}

func FuzzParsePortRange(f *testing.F) {
	for _, s := range []string{"50000-50999", "1-2", "-", "1024-65535", " 2000 -\t3000", "9-0-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParsePortRange(s)
		if err != nil {
			return
		}
		if r.First < firstPort || r.First > r.Last {
			t.Errorf("%q: %v", s, r)
		}
		if again, err := ParsePortRange(r.String()); err != nil || again != r {
			t.Errorf("%q: %v, which reads as %v, %v", s, r, again, err)
		}
	})
}

func TestPortRangeFrom(t *testing.T) {
	tests := []struct {
		ports  PortRange
		offset uint32
		want   []uint16
	}{
		{PortRange{}, 7, []uint16{0}},
		{PortRange{50000, 50000}, 3, []uint16{50000}},
		{PortRange{50000, 50002}, 0, []uint16{50000, 50001, 50002}},
		{PortRange{50000, 50002}, 4, []uint16{50001, 50002, 50000}},
		{PortRange{65534, 65535}, 1<<32 - 1, []uint16{65535, 65534}},
	}
	for _, tt := range tests {
		if d := cmp.Diff(tt.want, slices.Collect(tt.ports.from(tt.offset))); d != "" {
			t.Errorf("%v from %d (-want +got):\n%s", tt.ports, tt.offset, d)
		}
	}
	all := slices.Collect(PortRange{1024, 65535}.from(9))
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 65536-1024 {
		t.Errorf("%d ports from 1024 to 65535", n)
	}
}

// ownAddr is an address of the loopback interface that other processes do not use.
func ownAddr(last byte) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(64 + pid>>16&63), byte(pid >> 8), byte(pid)&^3 | last})
}

// ownPorts are some that other processes do not use, below those that the kernel chooses from.
func ownPorts(n uint16) PortRange {
	first := uint16(20000 + os.Getpid()%1500*8)
	return PortRange{first, first + n - 1}
}

// isUsedUp fails the test unless an error says that a range is used up.
func isUsedUp(t *testing.T, what string, err error, ports PortRange) {
	t.Helper()
	if !limit.IsOwn(err) || !strings.Contains(err.Error(), "all ports of NCCL_MESH_PORTS="+ports.String()+" are in use on this machine; give it more ports") {
		t.Errorf("%s: %v", what, err)
	}
}

// Listeners take the ports of a range from its beginning, and say so when there is none left.
func TestListenInRange(t *testing.T) {
	ports := ownPorts(3)
	var listeners []Listener
	listen := func(a netip.Addr, want uint16) {
		t.Helper()
		l, err := Kernel{}.Listen(netip.AddrPortFrom(a, 0), "", ports)
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		if got := l.Addr(); got != netip.AddrPortFrom(a, want) {
			t.Errorf("at %v, want port %d", got, want)
		}
	}
	for port := ports.First; port <= ports.Last; port++ {
		listen(ownAddr(0), port)
	}
	listen(ownAddr(1), ports.First) // another address
	_, err := Kernel{}.Listen(netip.AddrPortFrom(ownAddr(0), 0), "", ports)
	isUsedUp(t, "one listener too many", err, ports)
	if err := listeners[1].Close(); err != nil {
		t.Error(err)
	}
	listen(ownAddr(0), ports.First+1)
	_, err = Kernel{}.Listen(netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), 0), "", ports)
	if !errors.Is(err, unix.EADDRNOTAVAIL) || limit.IsOwn(err) {
		t.Errorf("at a foreign address: %v", err)
	}
	for _, l := range listeners {
		_ = l.Close()
	}
	if n := len(marked()); n != 0 {
		t.Errorf("%d descriptors are marked at the end", n)
	}
}

// A socket that dials has a port of the range for itself. When there is none left those that lead to different places share
// one, and there is an error only when nothing leads from any port to the place any more.
func TestDialInRange(t *testing.T) {
	here, there := ownAddr(0), ownAddr(1)
	var to [2]netip.AddrPort
	for i := range to {
		ln, err := net.Listen("tcp", netip.AddrPortFrom(there, 0).String())
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		to[i] = ln.Addr().(*net.TCPAddr).AddrPort()
	}
	ports := ownPorts(3)
	all := []uint16{ports.First, ports.First + 1, ports.Last}
	lanes := From{Addr: here, Netdev: "lo", Ports: ports}
	var open []Conn
	dial := func(what string, d From, to netip.AddrPort) (port uint16) {
		t.Helper()
		f, err := Kernel{}.Dial(t.Context(), d, to)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		open = append(open, f)
		port = f.Local().Port()
		if port < ports.First || port > ports.Last {
			t.Errorf("%s: from port %d, want one of %v", what, port, ports)
		}
		return port
	}
	var got []uint16
	for range 2 {
		got = append(got, dial("a lane", lanes, to[0]))
	}
	got = append(got, dial("a session", From{Ports: ports}, to[0]))
	slices.Sort(got)
	if d := cmp.Diff(all, got); d != "" {
		t.Errorf("ports of the first (-want +got):\n%s", d)
	}
	_, err := Kernel{}.Dial(t.Context(), From{Netdev: "lo", Ports: ports}, to[1])
	isUsedUp(t, "a neighbour, which shares its port with nobody", err, ports)
	got = nil
	for range 3 {
		got = append(got, dial("a lane to another place", lanes, to[1]))
	}
	slices.Sort(got)
	if d := cmp.Diff(all, got); d != "" {
		t.Errorf("ports that are shared (-want +got):\n%s", d)
	}
	_, err = Kernel{}.Dial(t.Context(), lanes, to[1])
	isUsedUp(t, "a lane too many", err, ports)
	_, err = Kernel{}.Dial(t.Context(), From{Addr: netip.MustParseAddr("192.0.2.1"), Ports: ports}, to[0])
	if !errors.Is(err, unix.EADDRNOTAVAIL) || limit.IsOwn(err) {
		t.Errorf("from a foreign address: %v", err)
	}
	for _, c := range open {
		_ = c.Close()
	}
	if n := len(marked()); n != 0 {
		t.Errorf("%d descriptors are marked at the end", n)
	}
}

// A port that was given back is not the next one to be dialled from.
func TestDialTurnsRound(t *testing.T) {
	here, there := ownAddr(2), ownAddr(3)
	ln, err := net.Listen("tcp", netip.AddrPortFrom(there, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	to := ln.Addr().(*net.TCPAddr).AddrPort()
	d := From{Addr: here, Ports: ownPorts(4)}
	var got []uint16
	for range 4 {
		f, err := Kernel{}.Dial(t.Context(), d, to)
		if err != nil {
			t.Fatal(err)
		}
		in, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, in.RemoteAddr().(*net.TCPAddr).AddrPort().Port())
		_ = in.(*net.TCPConn).SetLinger(0) // leaves no trace of the connection
		_ = in.Close()
		_ = f.Close()
	}
	slices.Sort(got)
	if n := len(slices.Compact(got)); n != 4 {
		t.Errorf("four connections that were closed at once were dialled from %d ports", n)
	}
}
