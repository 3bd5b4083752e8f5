package topology

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Discovery on the machine that the test runs on. With Soft-RoCE or an adapter this uses the real sysfs.
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
