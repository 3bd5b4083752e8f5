package links

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ncclmesh/tests/require"
	"ncclmesh/transport/topology"
)

// discover returns the interfaces of the calling thread's network namespace, as a transport sees them.
func discover(t *testing.T) ([]topology.Link, error) {
	n, err := topology.Discover(topology.Source{Sysfs: t.TempDir()})
	if err != nil {
		return nil, err
	}
	return n.Links, nil
}

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// TestKernelLinks compares what is reported with interfaces, addresses and routes that it makes in a network namespace of its own.
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
		got, err := discover(t)
		if err != nil {
			t.Error(err)
			return
		}
		want := []topology.Link{
			{Name: "lo", Index: index["lo"], MTU: 65536, Kind: "device", Up: true, Carrier: true, Loopback: true, Addrs: prefixes("127.0.0.1/8", "::1/128")},
			{Name: "cable0", Index: index["cable0"], MTU: 9000, Kind: "veth", Parent: index["cable1"], MAC: [6]byte{2, 0, 0, 0, 0, 1}, Up: true, Default: true,
				Addrs: prefixes("10.0.0.1/31", "2001:db8::1/64")},
			{Name: "cable1", Index: index["cable1"], MTU: 1500, Kind: "veth", Parent: index["cable0"], MAC: [6]byte{2, 0, 0, 0, 0, 2}},
		}
		got = slices.DeleteFunc(got, func(l topology.Link) bool { return index[l.Name] == 0 }) // some kernels add tunnels
		byName := func(a, b topology.Link) int { return strings.Compare(a.Name, b.Name) }
		slices.SortFunc(got, byName)
		slices.SortFunc(want, byName)
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	}()
	<-done
	if lacking != "" {
		require.Skip(t, require.Netns, lacking)
	}
}
