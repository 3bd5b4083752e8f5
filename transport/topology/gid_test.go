package topology

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
)

func TestRankGIDs(t *testing.T) {
	const dev = "eth0"
	port := Port{Device: "mlx5_0", Num: 1, Netdev: dev, LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, GIDs: []Address{
		gid(0, "fe80::1", GIDTypeRoCEv1, dev, 64),
		gid(1, "fe80::1", GIDTypeRoCEv2, dev, 64),
		gid(2, "fe80::ff", GIDTypeRoCEv1, dev, -1), // default GIDs, when the interface uses stable privacy addresses
		gid(3, "fe80::ff", GIDTypeRoCEv2, dev, -1),
		gid(4, "169.254.1.1", GIDTypeRoCEv1, dev, 16),
		gid(5, "169.254.1.1", GIDTypeRoCEv2, dev, 16),
		gid(6, "2001:db8::1", GIDTypeRoCEv1, dev, 64),
		gid(7, "2001:db8::1", GIDTypeRoCEv2, dev, 64),
		gid(8, "10.5.0.1", GIDTypeRoCEv2, "eth0.5", 24),
		gid(9, "10.0.0.1", GIDTypeRoCEv1, dev, 31),
		gid(20, "10.0.0.1", GIDTypeRoCEv2, dev, 31),
	}}
	ib := Port{Device: "mlx5_1", Num: 1, LinkLayer: handshake.IBV_LINK_LAYER_INFINIBAND, GIDs: []Address{
		gid(0, "fe80::2:c903:0:1", GIDTypeIB, "ib0", -1),
		gid(1, "fec0::2:c903:0:1", GIDTypeIB, "ib0", -1),
	}}
	plain := Port{Netdev: dev, LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, GIDs: []Address{
		gid(0, "fe80::1", GIDTypeNone, dev, 64),
		gid(1, "2001:db8::1", GIDTypeNone, dev, 64),
		gid(2, "10.0.0.1", GIDTypeNone, dev, 24),
	}}
	subnet := netip.MustParsePrefix
	tests := []struct {
		name string
		port Port
		pol  GIDPolicy
		want []int // table indices
	}{
		{"nothing said", port, AnyGID, []int{20, 7, 8, 5, 1, 3, 9, 6, 4, 0, 2}},
		{"zero family and version mean the same", port, GIDPolicy{Index: -1}, []int{20, 7, 8, 5, 1, 3, 9, 6, 4, 0, 2}},
		{"IPv6 preferred", port, GIDPolicy{Index: -1, Family: 6, RoCE: 2}, []int{7, 20, 8, 1, 5, 3, 6, 9, 0, 4, 2}},
		{"RoCE v1 preferred", port, GIDPolicy{Index: -1, Family: 4, RoCE: 1}, []int{9, 6, 4, 0, 2, 20, 7, 8, 5, 1, 3}},
		{"index forced", port, GIDPolicy{Index: 4, Family: 6, RoCE: 2}, []int{4}},
		{"index forced out of the range", port, GIDPolicy{Index: 20, Range: subnet("10.5.0.0/16")}, []int{20}},
		{"index forced that is not in use", port, GIDPolicy{Index: 10}, nil},
		{"index 0 is an index", port, GIDPolicy{}, []int{0}},
		{"IPv4 range", port, GIDPolicy{Index: -1, Range: subnet("10.0.0.0/16")}, []int{20, 9}},
		{"IPv6 range", port, GIDPolicy{Index: -1, Range: subnet("2001:db8::/32")}, []int{7, 6}},
		{"range with nothing in it", port, GIDPolicy{Index: -1, Range: subnet("10.7.0.0/16")}, nil},
		{"InfiniBand", ib, AnyGID, []int{0, 1}},
		{"InfiniBand pays no heed to the index", ib, GIDPolicy{Index: 3}, []int{0, 1}},
		{"TCP", plain, AnyGID, []int{2, 1, 0}},
		{"TCP pays no heed to index and version", plain, GIDPolicy{Index: 3, Family: 6, RoCE: 1}, []int{1, 2, 0}},
		{"no GID", Port{Device: "mlx5_2", Num: 1}, AnyGID, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []int
			for _, g := range tt.port.RankGIDs(tt.pol) {
				got = append(got, g.Index)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestGIDString(t *testing.T) {
	tests := map[string]Address{
		"192.168.1.1 (RoCE v2, GID index 3)":         gid(3, "192.168.1.1", GIDTypeRoCEv2, "e", 24),
		"fe80::1 (RoCE v1, GID index 0)":             gid(0, "fe80::1", GIDTypeRoCEv1, "e", 64),
		"10.0.0.1":                                   gid(0, "10.0.0.1", GIDTypeNone, "e", 24),
		"fe80::2:c903:0:1 (GID type 7, GID index 1)": gid(1, "fe80::2:c903:0:1", 7, "", -1),
	}
	for want, g := range tests {
		if got := g.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
