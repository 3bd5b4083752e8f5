package topology

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
)

// The kernel's own answer, in a network namespace of our own.
func TestKernelLinks(t *testing.T) {
	done := make(chan struct{})
	lacking := ""
	go func() { // its thread ends with it, and the namespace with the thread
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			lacking = fmt.Sprintf("a network namespace of its own needs root: %v", err)
			return
		}
		veth := netlink.NewLinkAttrs()
		veth.Name, veth.MTU, veth.HardwareAddr = "cable0", 9000, net.HardwareAddr{2, 0, 0, 0, 0, 1}
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: veth, PeerName: "cable1", PeerMTU: 1500, PeerHardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2}}); err != nil {
			if errors.Is(err, unix.EOPNOTSUPP) {
				lacking = fmt.Sprintf("this kernel has no veth: %v", err)
				return
			}
			t.Errorf("veth: %v", err)
			return
		}
		index := make(map[string]int)
		for _, name := range []string{"lo", "cable0", "cable1"} {
			l, err := netlink.LinkByName(name)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			index[name] = l.Attrs().Index
			if name != "cable1" {
				err = netlink.LinkSetUp(l)
			}
			for _, s := range map[string][]string{"cable0": {"10.0.0.1/31", "2001:db8::1/64"}}[name] {
				a, perr := netlink.ParseAddr(s)
				a.Flags = unix.IFA_F_NODAD
				err = errors.Join(err, perr, netlink.AddrAdd(l, a))
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
		}
		for _, r := range []netlink.Route{
			{LinkIndex: index["lo"], Dst: &net.IPNet{IP: net.IPv4(10, 9, 0, 0).To4(), Mask: net.CIDRMask(16, 32)}, Scope: netlink.SCOPE_LINK},
			{Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Type: unix.RTN_UNREACHABLE},
			{LinkIndex: index["cable0"], Dst: &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}, Table: 100},
		} {
			if err := netlink.RouteAdd(&r); err != nil {
				t.Errorf("route %v: %v", r, err)
				return
			}
		}
		got, err := kernelLinks()
		if err != nil {
			t.Error(err)
			return
		}
		want := []Link{
			{Name: "lo", Index: index["lo"], MTU: 65536, Kind: "device", Up: true, Carrier: true, Loopback: true, Addrs: prefixes("127.0.0.1/8", "::1/128")},
			{Name: "cable0", Index: index["cable0"], MTU: 9000, Kind: "veth", Parent: index["cable1"], MAC: [6]byte{2, 0, 0, 0, 0, 1}, Up: true, Default: true,
				Addrs: prefixes("10.0.0.1/31", "2001:db8::1/64")},
			{Name: "cable1", Index: index["cable1"], MTU: 1500, Kind: "veth", Parent: index["cable0"], MAC: [6]byte{2, 0, 0, 0, 0, 2}},
		}
		got = slices.DeleteFunc(got, func(l Link) bool { return index[l.Name] == 0 }) // some kernels add tunnels
		byName := func(a, b Link) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(got, byName)
		slices.SortFunc(want, byName)
		if d := cmp.Diff(want, got, compareAddrs); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	}()
	<-done
	if lacking != "" {
		require.Skip(t, require.Netns, lacking)
	}
}

// The machine that the test runs on, whatever it has. With Soft-RoCE or an adapter this is the real sysfs.
func TestDiscoverThisMachine(t *testing.T) {
	n, err := Discover(Source{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range append(summaries(n.Ports, AnyGID), summaries(n.Plain, AnyGID)...) {
		t.Log(s)
	}
	for _, w := range n.Warnings {
		t.Log(w)
	}
	t.Logf("%+v, addresses %v", Aggregate(n.Ports), BootstrapAddrs(n.Links, IfFilter{}, 0, nil))

	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, i := range interfaces {
		want = append(want, i.Name)
	}
	for _, l := range n.Links {
		got = append(got, l.Name)
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("interfaces (-want +got)\n%s", d)
	}

	devices, err := os.ReadDir("/sys/class/infiniband")
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, d := range devices {
		known := slices.ContainsFunc(n.Ports, func(p Port) bool { return p.Device == d.Name() }) ||
			slices.ContainsFunc(n.Warnings, func(w string) bool { return strings.HasPrefix(w, d.Name()) })
		if !known {
			t.Errorf("nothing is said of %s", d.Name())
		}
	}
	// An address of an Ethernet port that is up has a GID, known to be the interface's.
	for _, p := range n.Ports {
		if p.LinkLayer != 2 || !p.Active {
			continue
		}
		for _, a := range p.Addrs {
			if !slices.ContainsFunc(p.GIDs, func(g Address) bool {
				return g.Addr.Unmap() == a.Addr() && g.PrefixLen == a.Bits() && g.Netdev == p.Netdev
			}) {
				t.Errorf("%s: no GID for %s", p.String(), a)
			}
		}
	}
}

// A default route may be of either family, and have several next hops.
func TestDefaultLinks(t *testing.T) {
	all := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	tests := []struct {
		name string
		r    netlink.Route
		want []int
	}{
		{"default", netlink.Route{Type: unix.RTN_UNICAST, LinkIndex: 3, Dst: all}, []int{3}},
		{"without a destination", netlink.Route{Type: unix.RTN_UNICAST, LinkIndex: 3}, []int{3}},
		{"of several hops", netlink.Route{Type: unix.RTN_UNICAST, Dst: all, MultiPath: []*netlink.NexthopInfo{{LinkIndex: 4}, {LinkIndex: 5}}}, []int{0, 4, 5}},
		{"to a subnet", netlink.Route{Type: unix.RTN_UNICAST, LinkIndex: 3, Dst: &net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}}, nil},
		{"to nowhere", netlink.Route{Type: unix.RTN_UNREACHABLE, LinkIndex: 1, Dst: all}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, defaultLinks(tt.r)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
