package topology

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
)

// roce builds an active port with a v1 and a v2 GID for each address, as the kernel does. An address without a prefix
// length is a default GID that the interface does not have.
func roce(device string, addrs ...string) Port {
	p := Port{Device: device, Num: 1, Netdev: "e" + device, LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, State: "ACTIVE"}
	for _, s := range addrs {
		bits := -1
		if prefix, err := netip.ParsePrefix(s); err == nil {
			p.Addrs = append(p.Addrs, prefix)
			s, bits = prefix.Addr().String(), prefix.Bits()
		}
		p.GIDs = append(p.GIDs, gid(len(p.GIDs), s, GIDTypeRoCEv1, p.Netdev, bits))
		p.GIDs = append(p.GIDs, gid(len(p.GIDs), s, GIDTypeRoCEv2, p.Netdev, bits))
	}
	return p
}

// only keeps the GIDs of one type.
func only(typ GIDType, p Port) Port {
	var kept []Address
	for _, g := range p.GIDs {
		if g.Type == typ {
			kept = append(kept, g)
		}
	}
	p.GIDs = kept
	return p
}

func tcp(netdev string, addrs ...string) Port {
	p := roce("", addrs...)
	p.Num, p.Netdev = 0, netdev
	p = only(GIDTypeRoCEv2, p)
	for i := range p.GIDs {
		p.GIDs[i].Type, p.GIDs[i].Netdev = GIDTypeNone, netdev
	}
	return p
}

func ib(device, g string) Port {
	return Port{Device: device, Num: 1, LinkLayer: handshake.IBV_LINK_LAYER_INFINIBAND, LID: 7, Active: true, GIDs: []Address{gid(0, g, GIDTypeIB, "", -1)}}
}

func down(p Port) Port {
	p.Active, p.State = false, "DOWN"
	return p
}

func TestCandidates(t *testing.T) {
	tests := []struct {
		name          string
		local, remote []Port
		pol, peerPol  GIDPolicy
		want          []string // tier: local-remote, why
	}{
		{"a subnet for each function", []Port{roce("a0", "192.168.1.1/24"), roce("a1", "192.168.2.1/24")},
			[]Port{roce("b0", "192.168.2.2/24"), roce("b1", "192.168.1.2/24")}, AnyGID, AnyGID, []string{
				"0: a0-b1, 192.168.1.1 and 192.168.1.2 are in 192.168.1.0/24, RoCE v2",
				"0: a1-b0, 192.168.2.1 and 192.168.2.2 are in 192.168.2.0/24, RoCE v2",
				"3: a0-b1, 192.168.1.1 and 192.168.1.2 are in 192.168.1.0/24, RoCE v1",
				"3: a1-b0, 192.168.2.1 and 192.168.2.2 are in 192.168.2.0/24, RoCE v1",
			}},
		{"a /31 and a /30", []Port{only(2, roce("a0", "10.0.0.0/31")), only(2, roce("a1", "10.0.1.1/30"))},
			[]Port{only(2, roce("b0", "10.0.0.1/31")), only(2, roce("b1", "10.0.1.2/30"))}, AnyGID, AnyGID, []string{
				"0: a0-b0, 10.0.0.0 and 10.0.0.1 are in 10.0.0.0/31, RoCE v2",
				"0: a1-b1, 10.0.1.1 and 10.0.1.2 are in 10.0.1.0/30, RoCE v2",
			}},
		{"prefix lengths differ: the longer one decides", []Port{only(2, roce("a0", "10.0.0.1/24"))},
			[]Port{only(2, roce("b0", "10.0.0.2/30")), only(2, roce("b1", "10.0.0.6/30")), only(2, roce("b2", "10.0.0.2/32"))}, AnyGID, AnyGID, []string{
				"0: a0-b0, 10.0.0.1 and 10.0.0.2 are in 10.0.0.0/30, RoCE v2",
			}},
		{"both functions of a cable in one subnet: distinct ports first", []Port{only(2, roce("a0", "192.168.1.1/24")), only(2, roce("a1", "192.168.1.2/24"))},
			[]Port{only(2, roce("b0", "192.168.1.3/24")), only(2, roce("b1", "192.168.1.4/24"))}, AnyGID, AnyGID, []string{
				"0: a0-b0, 192.168.1.1 and 192.168.1.3 are in 192.168.1.0/24, RoCE v2",
				"0: a1-b1, 192.168.1.2 and 192.168.1.4 are in 192.168.1.0/24, RoCE v2",
				"0: a0-b1, 192.168.1.1 and 192.168.1.4 are in 192.168.1.0/24, RoCE v2",
				"0: a1-b0, 192.168.1.2 and 192.168.1.3 are in 192.168.1.0/24, RoCE v2",
			}},
		{"169.254/16 everywhere says nothing: all pairs, after a real subnet", []Port{only(2, roce("a0", "169.254.0.1/16")), only(2, roce("a1", "169.254.0.2/16", "10.0.0.1/24"))},
			[]Port{only(2, roce("b0", "169.254.9.1/16", "10.0.0.2/24")), only(2, roce("b1", "169.254.9.2/16"))}, AnyGID, AnyGID, []string{
				"0: a1-b0, 10.0.0.1 and 10.0.0.2 are in 10.0.0.0/24, RoCE v2",
				"0: a0-b1, 169.254.0.1 and 169.254.9.2 are in 169.254.0.0/16, RoCE v2",
				"0: a0-b0, 169.254.0.1 and 169.254.9.1 are in 169.254.0.0/16, RoCE v2",
				"0: a1-b1, 169.254.0.2 and 169.254.9.2 are in 169.254.0.0/16, RoCE v2",
			}},
		{"link-local IPv6 only as a later resort", []Port{only(2, roce("a0", "fe80::a/64", "10.0.0.1/24"))},
			[]Port{only(2, roce("b0", "fe80::b/64", "10.0.0.2/24")), only(2, roce("b1", "fe80::c/64"))}, AnyGID, AnyGID, []string{
				"0: a0-b0, 10.0.0.1 and 10.0.0.2 are in 10.0.0.0/24, RoCE v2",
				"1: a0-b1, fe80::a and fe80::c are link-local, RoCE v2",
				"1: a0-b0, fe80::a and fe80::b are link-local, RoCE v2",
			}},
		{"default GIDs on no interface: RoCE v2 before v1", []Port{roce("a0", "fe80::a")}, []Port{roce("b0", "fe80::b")}, AnyGID, AnyGID, []string{
			"2: a0-b0, fe80::a and fe80::b are default GIDs, but an interface does not have the address, RoCE v2",
			"3: a0-b0, fe80::a and fe80::b are link-local, RoCE v1",
		}},
		{"default GIDs on no interface, RoCE v1 preferred", []Port{roce("a0", "fe80::a")}, []Port{roce("b0", "fe80::b")}, GIDPolicy{Index: -1, RoCE: 1}, AnyGID, []string{
			"1: a0-b0, fe80::a and fe80::b are link-local, RoCE v1",
			"3: a0-b0, fe80::a and fe80::b are default GIDs, but an interface does not have the address, RoCE v2",
		}},
		{"the other version only: an address of the interface before a default GID", []Port{only(2, roce("a0", "fe80::aa", "fe80::a/64"))},
			[]Port{only(2, roce("b0", "fe80::bb", "fe80::b/64"))}, GIDPolicy{Index: -1, RoCE: 1}, AnyGID, []string{
				"3: a0-b0, fe80::a and fe80::b are link-local, RoCE v2",
			}},
		{"an address that is on no interface has no subnet", []Port{roce("a0", "10.0.0.1")}, []Port{roce("b0", "10.0.0.2/24")}, AnyGID, AnyGID, nil},
		{"IPv6 subnet; IPv4 first when both match", []Port{only(2, roce("a0", "2001:db8::1/64")), only(2, roce("a1", "2001:db8:1::1/64", "10.1.0.1/24"))},
			[]Port{only(2, roce("b0", "2001:db8::2/64")), only(2, roce("b1", "2001:db8:1::2/64", "10.1.0.2/24"))}, AnyGID, AnyGID, []string{
				"0: a1-b1, 10.1.0.1 and 10.1.0.2 are in 10.1.0.0/24, RoCE v2",
				"0: a0-b0, 2001:db8::1 and 2001:db8::2 are in 2001:db8::/64, RoCE v2",
			}},
		{"IPv6 preferred", []Port{only(2, roce("a1", "10.1.0.1/24", "2001:db8::1/64"))}, []Port{only(2, roce("b1", "10.1.0.2/24", "2001:db8::2/64"))},
			GIDPolicy{Index: -1, Family: 6}, AnyGID, []string{"0: a1-b1, 2001:db8::1 and 2001:db8::2 are in 2001:db8::/64, RoCE v2"}},
		{"RoCE v1 preferred", []Port{roce("a0", "10.1.0.1/24")}, []Port{roce("b0", "10.1.0.2/24")}, GIDPolicy{Index: -1, RoCE: 1}, AnyGID, []string{
			"0: a0-b0, 10.1.0.1 and 10.1.0.2 are in 10.1.0.0/24, RoCE v1",
			"3: a0-b0, 10.1.0.1 and 10.1.0.2 are in 10.1.0.0/24, RoCE v2",
		}},
		{"never between versions or families", []Port{only(1, roce("a0", "10.1.0.1/24")), only(2, roce("a1", "::ffff:10.2.0.1/120"))},
			[]Port{only(2, roce("b0", "10.1.0.2/24")), only(2, roce("b1", "2001:db8::1/64"))}, AnyGID, AnyGID, nil},
		{"forced index on one side", []Port{roce("a0", "fe80::a/64", "10.0.0.1/24")}, []Port{roce("b0", "fe80::b/64", "10.0.0.2/24")},
			GIDPolicy{Index: 2}, AnyGID, []string{"3: a0-b0, 10.0.0.1 and 10.0.0.2 are in 10.0.0.0/24, RoCE v1"}},
		{"range on the other side", []Port{roce("a0", "10.0.0.1/24", "10.9.0.1/24")}, []Port{roce("b0", "10.0.0.2/24", "10.9.0.2/24")},
			AnyGID, GIDPolicy{Index: -1, Range: netip.MustParsePrefix("10.9.0.0/16"), RoCE: 2}, []string{
				"0: a0-b0, 10.9.0.1 and 10.9.0.2 are in 10.9.0.0/24, RoCE v2",
				"3: a0-b0, 10.9.0.1 and 10.9.0.2 are in 10.9.0.0/24, RoCE v1",
			}},
		{"ports that are down", []Port{down(roce("a0", "10.0.0.1/24")), roce("a1", "10.1.0.1/24")}, []Port{roce("b0", "10.0.0.2/24"), down(roce("b1", "10.1.0.2/24"))}, AnyGID, AnyGID, nil},
		{"InfiniBand with InfiniBand of the same subnet", []Port{ib("a0", "fe80::1"), roce("a1", "fe80::2/64")},
			[]Port{ib("b0", "fe80::3"), ib("b1", "fec0::4"), roce("b2", "10.0.0.1/24")}, AnyGID, AnyGID, []string{
				"0: a0-b0, both ports are in InfiniBand subnet fe80::/64",
			}},
		{"TCP with TCP", []Port{tcp("eth0", "10.0.0.1/24", "fe80::1/64"), roce("a0", "10.0.0.3/24")}, []Port{tcp("eth1", "10.0.0.2/24", "fe80::2/64")}, AnyGID, AnyGID, []string{
			"0: eth0-eth1, 10.0.0.1 and 10.0.0.2 are in 10.0.0.0/24, TCP",
			"1: eth0-eth1, fe80::1 and fe80::2 are link-local, TCP",
		}},
		{"the same private address on both nodes", []Port{tcp("docker0", "172.17.0.1/16", "fe80::1/64")}, []Port{tcp("docker0", "172.17.0.1/16", "fe80::2/64")}, AnyGID, AnyGID, []string{
			"1: docker0-docker0, fe80::1 and fe80::2 are link-local, TCP",
		}},
		{"routed addresses on loopback, and cables without an address of their own", []Port{tcp("lo", "127.0.0.1/8", "10.10.10.1/32"), tcp("p0", "fe80::1/64")},
			[]Port{tcp("lo", "127.0.0.1/8", "10.10.10.2/32"), tcp("p0", "fe80::2/64")}, AnyGID, AnyGID, []string{
				"1: p0-p0, fe80::1 and fe80::2 are link-local, TCP",
			}},
		{"loopback leads nowhere else", []Port{tcp("lo", "127.0.0.1/8")}, []Port{tcp("lo", "127.0.0.2/8")}, AnyGID, AnyGID, nil},
		{"nobody", nil, nil, AnyGID, AnyGID, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			remote := Describe(tt.remote, tt.peerPol)
			var got []string
			for _, c := range Candidates(tt.local, remote, tt.pol) {
				l, r := tt.local[c.Local], remote[c.Remote]
				got = append(got, fmt.Sprintf("%d: %s-%s, %s", c.Tier, short(l.Device, l.Netdev), short(r.Device, r.Netdev), c.Why))
				if lg, rg := l.GIDs[c.LocalGID], r.Addrs[c.RemoteGID]; uint8(lg.Type) != rg.GIDType {
					t.Errorf("%s pairs %s with a GID of type %d", c.Why, lg, rg.GIDType)
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func short(device, netdev string) string {
	if device == "" {
		return netdev
	}
	return device
}

// The GIDs of a candidate are those of the addresses that match, wherever they are in the tables.
func TestCandidateGIDs(t *testing.T) {
	local := []Port{roce("a0", "fe80::a/64", "10.0.0.1/24", "10.7.0.1/24")}
	remote := Describe([]Port{roce("b0", "10.7.0.2/24", "fe80::b/64")}, AnyGID)
	want := Candidate{LocalGID: 5, RemoteGID: 0, Tier: TierSubnet, Why: "10.7.0.1 and 10.7.0.2 are in 10.7.0.0/24, RoCE v2"}
	got := Candidates(local, remote, AnyGID)
	if len(got) == 0 {
		t.Fatal("no candidate")
	}
	if d := cmp.Diff(want, got[0]); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if i := remote[0].Addrs[0].GIDIndex; i != 1 {
		t.Errorf("GID index %d, want 1", i)
	}
}

func TestCandidatesOwnPorts(t *testing.T) {
	node := []Port{roce("a0", "fe80::a/64", "10.0.0.1/24"), down(roce("a1", "10.0.1.1/24")), roce("a2", "169.254.0.1/16"), roce("a3", "169.254.0.2/16"), roce("a4"), ib("a5", "fe80::5")}
	tests := []struct {
		name          string
		local, remote []Port
		want          []string
	}{
		{"all of them", node, node, []string{"a0-a0 10.0.0.1 (RoCE v2, GID index 3)", "a2-a2 169.254.0.1 (RoCE v2, GID index 1)",
			"a3-a3 169.254.0.2 (RoCE v2, GID index 1)", "a5-a5 fe80::5 (IB, GID index 0)"}},
		{"another process of the node that uses other ports as well", node[:1], []Port{node[2], node[0]}, []string{"a0-a0 10.0.0.1 (RoCE v2, GID index 3)"}},
		{"another node with the same names and an address in common", node[:1], []Port{roce("a0", "fe80::b/64", "10.0.0.1/24")}, nil},
		{"the same names and IPv4 addresses, and nothing to tell them apart", node[2:3], []Port{roce("a2", "169.254.0.1/16")}, []string{"a2-a2 169.254.0.1 (RoCE v2, GID index 1)"}},
		{"loopback", []Port{tcp("lo", "127.0.0.1/8")}, []Port{tcp("lo", "127.0.0.1/8")}, []string{"lo-lo 127.0.0.1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, c := range Candidates(tt.local, Describe(tt.remote, AnyGID), AnyGID) {
				if c.Tier != TierSubnet {
					continue
				}
				l, r := tt.local[c.Local], tt.remote[c.Remote]
				got = append(got, fmt.Sprintf("%s-%s %s", short(l.Device, l.Netdev), short(r.Device, r.Netdev), l.GIDs[c.LocalGID]))
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// Both ends of a connection find the same pairs of addresses, in any order of their tables.
func TestCandidatesSymmetric(t *testing.T) {
	a := []Port{roce("a0", "10.0.0.1/24", "10.1.0.1/16", "fe80::a/64", "2001:db8::1/64"), roce("a1", "10.0.0.9/24", "fe80::aa")}
	b := []Port{roce("b0", "2001:db8::2/64", "fe80::b/64", "10.1.0.2/16", "10.0.0.2/24"), roce("b1", "fe80::bb", "10.0.0.10/24")}
	for _, pol := range []GIDPolicy{AnyGID, {Index: -1, Family: 6}, {Index: -1, RoCE: 1}} {
		toldA, toldB := Describe(a, pol), Describe(b, pol)
		pairs := func(local []Port, remote []handshake.Port, swap bool) map[string]bool {
			found := make(map[string]bool)
			for _, c := range Candidates(local, remote, pol) {
				g := local[c.Local].GIDs[c.LocalGID]
				l, r := g.Addr.Unmap(), remote[c.Remote].Addrs[c.RemoteGID].Addr.Unmap()
				if swap {
					l, r = r, l
				}
				found[fmt.Sprintf("%d %s %s %s", c.Tier, l, r, g.Type)] = true
			}
			return found
		}
		if d := cmp.Diff(pairs(a, toldB, false), pairs(b, toldA, true)); d != "" {
			t.Errorf("%+v (-a +b)\n%s", pol, d)
		}
	}
}

func TestAnswer(t *testing.T) {
	port := roce("a0", "fe80::a/64", "10.0.0.1/24", "10.1.0.1/30", "2001:db8::1/64")
	addr := func(s string, typ GIDType, bits uint8) handshake.PortAddr {
		return handshake.PortAddr{Addr: netip.AddrFrom16(netip.MustParseAddr(s).As16()), GIDType: uint8(typ), PrefixLen: bits}
	}
	tests := []struct {
		name string
		addr handshake.PortAddr
		pol  GIDPolicy
		want string
	}{
		{"subnet", addr("10.1.0.2", GIDTypeRoCEv2, 30), AnyGID, "10.1.0.1 (RoCE v2, GID index 5)"},
		{"the version that the peer chose", addr("10.0.0.2", GIDTypeRoCEv1, 24), AnyGID, "10.0.0.1 (RoCE v1, GID index 2)"},
		{"the family that the peer chose", addr("2001:db8::2", GIDTypeRoCEv2, 64), AnyGID, "2001:db8::1 (RoCE v2, GID index 7)"},
		{"link-local", addr("fe80::b", GIDTypeRoCEv2, 64), AnyGID, "fe80::a (RoCE v2, GID index 1)"},
		{"itself", addr("10.0.0.1", GIDTypeRoCEv2, 24), AnyGID, "10.0.0.1 (RoCE v2, GID index 3)"},
		{"index forced", addr("10.0.0.2", GIDTypeRoCEv2, 24), GIDPolicy{Index: 3}, "10.0.0.1 (RoCE v2, GID index 3)"},
		{"index forced that does not fit", addr("10.0.0.2", GIDTypeRoCEv2, 24), GIDPolicy{Index: 5}, ""},
		{"no such subnet", addr("10.9.0.2", GIDTypeRoCEv2, 24), AnyGID, ""},
		{"no such type", addr("10.0.0.2", GIDTypeIB, 24), AnyGID, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if i, ok := port.Answer(tt.addr, tt.pol); ok {
				got = port.GIDs[i].String()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A triangle as it is cabled in practice: every function has a subnet, and cables connect unlike cages.
func TestCandidatesGB10(t *testing.T) {
	a := discover(t, "gb10").Ports
	b := Describe([]Port{
		roce("rocep1s0f0", "192.168.104.2/24", "fe80::b0/64"), roce("roceP2p1s0f0", "192.168.106.2/24", "fe80::b1/64"),
		roce("rocep1s0f1", "192.168.110.2/24", "fe80::b2/64"), roce("roceP2p1s0f1", "192.168.111.2/24", "fe80::b3/64"),
	}, AnyGID)
	var got []string
	for _, c := range Candidates(a, b, AnyGID) {
		if c.Tier == TierSubnet {
			got = append(got, a[c.Local].Device+"-"+b[c.Remote].Device)
		}
	}
	want := []string{"rocep1s0f1-rocep1s0f0", "roceP2p1s0f1-roceP2p1s0f0"}
	if d := cmp.Diff(want, got, compareAddrs); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestDescribe(t *testing.T) {
	a := roce("a0", "fe80::a/64", "10.0.0.1/31", "fe80::aa")
	a.NetdevMTU, a.LinkMbps, a.LID = 9000, 100000, 3
	got := Describe([]Port{down(roce("a1", "10.1.0.1/24")), a}, AnyGID)
	addr := func(s string, index uint16, typ, bits uint8) handshake.PortAddr {
		return handshake.PortAddr{Addr: netip.AddrFrom16(netip.MustParseAddr(s).As16()), GIDIndex: index, GIDType: typ, PrefixLen: bits}
	}
	want := []handshake.Port{
		{Index: 0, Device: "a1", Num: 1, Netdev: "ea1", LinkLayer: 2, SpeedMbps: DefaultMbps},
		{Index: 1, Device: "a0", Num: 1, Netdev: "ea0", LinkLayer: 2, LID: 3, NetdevMTU: 9000, SpeedMbps: 100000, Addrs: []handshake.PortAddr{
			addr("10.0.0.1", 3, 2, 31), addr("fe80::a", 1, 2, 64), addr("fe80::aa", 5, 2, 0),
			addr("10.0.0.1", 2, 1, 31), addr("fe80::a", 0, 1, 64),
			addr("fe80::aa", 4, 1, 0),
		}},
	}
	if d := cmp.Diff(want, got, compareAddrs); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestDescribeIsBounded(t *testing.T) {
	var many []Port
	for n := range 300 {
		p := roce(fmt.Sprintf("%03d", n) + strings.Repeat("x", 300))
		for i := range 100 {
			p.GIDs = append(p.GIDs, gid(i, fmt.Sprintf("10.0.0.%d", i), GIDTypeRoCEv2, p.Netdev, 24))
		}
		many = append(many, p)
	}
	got := Describe(many, AnyGID)
	if len(got) != handshake.MaxPorts {
		t.Errorf("%d ports, want %d", len(got), handshake.MaxPorts)
	}
	for _, p := range got {
		if len(p.Device) != handshake.MaxName || len(p.Netdev) != handshake.MaxName || len(p.Addrs) != maxAddrs {
			t.Fatalf("name of %d and interface of %d bytes, %d addresses", len(p.Device), len(p.Netdev), len(p.Addrs))
		}
	}
	own := many[:8]
	if got := len(Candidates(own, got, AnyGID)); got != len(own)*handshake.MaxPorts { // all are in one subnet
		t.Errorf("%d candidates, want %d", got, len(own)*handshake.MaxPorts)
	}
}

func TestExplain(t *testing.T) {
	got := Explain([]Port{roce("a0", "10.0.0.1/24", "fe80::a"), down(roce("a1", "10.0.1.1/24"))}, Describe([]Port{tcp("eth0", "10.5.0.1/24")}, AnyGID), AnyGID)
	want := "this node has a0:1 (ea0) 10.0.0.1/24 fe80::a, a1:1 (ea1) inactive or without an address; the peer has eth0 10.5.0.1/24"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := Explain(nil, nil, AnyGID), "this node has no port; the peer has no port"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// FuzzCandidates passes any description that a peer could send: candidates are in range, in order, and contain each
// pair of ports at most once in a tier.
func FuzzCandidates(f *testing.F) {
	f.Add([]byte{2, 2, 24, 10, 0, 0, 2, 2, 64, 0xfe, 0x80, 0, 1}, int8(-1), uint8(4), uint8(2))
	f.Add([]byte{1, 0, 64, 0xfe, 0x80, 0, 9}, int8(2), uint8(6), uint8(1))
	f.Add([]byte{2, 255, 200, 10, 0, 0, 7, 2, 0, 10, 0, 0, 1}, int8(-1), uint8(0), uint8(9))
	f.Fuzz(func(t *testing.T, peer []byte, index int8, family, version uint8) {
		local := []Port{roce("a0", "10.0.0.1/24", "fe80::a/64"), roce("a1", "169.254.0.1/16", "fe80::c"), ib("a2", "fe80::1"), tcp("eth0", "10.0.0.9/24")}
		var remote []handshake.Port
		for i := 0; len(peer) >= 7 && len(remote) < handshake.MaxPorts; i++ {
			p := handshake.Port{Index: uint8(i), Device: "a0", Num: 1, Netdev: "ea0", LinkLayer: peer[0]}
			for n := 0; len(peer) >= 7 && n <= i%3; n++ {
				var g [16]byte
				if peer[3] == 0xfe {
					copy(g[:], peer[3:5])
					copy(g[14:], peer[5:7])
				} else {
					g[10], g[11] = 0xff, 0xff
					copy(g[12:], peer[3:7])
				}
				p.Addrs = append(p.Addrs, handshake.PortAddr{Addr: netip.AddrFrom16(g), GIDType: peer[1], PrefixLen: peer[2]})
				peer = peer[6:]
			}
			remote = append(remote, p)
		}
		pol := GIDPolicy{Index: int(index), Family: int(family), RoCE: int(version)}
		type pair struct {
			l, r int
			t    Tier
		}
		seen := make(map[pair]bool)
		last := Tier(0)
		for _, c := range Candidates(local, remote, pol) {
			if seen[pair{c.Local, c.Remote, c.Tier}] || c.Tier < last {
				t.Errorf("%+v again or out of order", c)
			}
			seen[pair{c.Local, c.Remote, c.Tier}], last = true, c.Tier
			g, a := local[c.Local].GIDs[c.LocalGID], remote[c.Remote].Addrs[c.RemoteGID]
			if uint8(g.Type) != a.GIDType || g.Addr.Is4In6() != a.Addr.Is4In6() {
				t.Errorf("%+v pairs %v with %v", c, g, a)
			}
		}
		Explain(local, remote, pol)
		for i := range remote {
			for _, a := range remote[i].Addrs {
				if g, ok := local[0].Answer(a, pol); ok && uint8(local[0].GIDs[g].Type) != a.GIDType {
					t.Errorf("%v answers %v", local[0].GIDs[g], a)
				}
			}
		}
	})
}

// 127.0.0.1 is sent to a peer only if a node has no other address, and used only for a peer on this machine.
func TestLoopbackIsNotTold(t *testing.T) {
	lo, routed := tcp("lo", "127.0.0.1/8", "::1/128"), tcp("lo", "127.0.0.1/8", "10.10.10.1/32")
	tests := []struct {
		name      string
		ports     []Port
		told, far [][]string // addresses, port by port
	}{
		{"nothing else", []Port{lo}, [][]string{{"127.0.0.1", "::1"}}, [][]string{nil}},
		{"a routed address on the same interface", []Port{routed}, [][]string{{"10.10.10.1"}}, [][]string{{"10.10.10.1"}}},
		{"another interface", []Port{lo, tcp("p0", "fe80::1/64")}, [][]string{nil, {"fe80::1"}}, [][]string{nil, {"fe80::1"}}},
		{"another interface that is down", []Port{down(tcp("p0", "10.0.0.1/24")), lo}, [][]string{nil, {"127.0.0.1", "::1"}}, [][]string{nil, nil}},
	}
	addrs := func(ports []handshake.Port) (all [][]string) {
		for _, p := range ports {
			var some []string
			for _, a := range p.Addrs {
				some = append(some, a.Addr.Unmap().String())
			}
			all = append(all, some)
		}
		return all
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			described := Describe(tt.ports, AnyGID)
			if d := cmp.Diff(tt.told, addrs(described)); d != "" {
				t.Errorf("told (-want +got)\n%s", d)
			}
			if d := cmp.Diff(tt.far, addrs(Far(described))); d != "" {
				t.Errorf("of use to another machine (-want +got)\n%s", d)
			}
			if d := cmp.Diff(tt.told, addrs(described)); d != "" {
				t.Errorf("what was told has changed (-want +got)\n%s", d)
			}
		})
	}
}
