package topology

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ncclmesh/handshake"
)

var compareAddrs = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func prefixes(list ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range list {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// gid builds a GID from an address in its usual form.
func gid(index int, addr string, typ GIDType, netdev string, prefixLen int) Address {
	raw := netip.MustParseAddr(addr).As16()
	return Address{Index: index, Addr: netip.AddrFrom16(raw), Type: typ, Netdev: netdev, PrefixLen: prefixLen}
}

func TestDiscoverPort(t *testing.T) {
	tests := []struct {
		name, fixture string
		edits         []string
		want          Port
	}{
		{"GB10, the half in the second slot", "gb10", nil, Port{
			Device: "roceP2p1s0f1", Num: 1, Netdev: "enP2p1s0f1np1", IfIndex: 6, NetdevMTU: 9000, Carrier: true,
			Addrs: prefixes("192.168.106.1/24", "fe80::4ebb:47ff:fe00:106/64"),
			GIDs: []Address{
				gid(0, "fe80::4ebb:47ff:fe00:106", GIDTypeRoCEv1, "enP2p1s0f1np1", 64),
				gid(1, "fe80::4ebb:47ff:fe00:106", GIDTypeRoCEv2, "enP2p1s0f1np1", 64),
				gid(2, "192.168.106.1", GIDTypeRoCEv1, "enP2p1s0f1np1", 24),
				gid(3, "192.168.106.1", GIDTypeRoCEv2, "enP2p1s0f1np1", 24),
			},
			LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, State: "ACTIVE", LinkMbps: 200000, PCIMbps: 126030,
			PCIPath: "/sys/devices/pci0002:00/0002:00:00.0/0002:01:00.1", NUMA: 0,
			SysImageGUID: 0x4cbb470000000103, NodeGUID: 0x4cbb470000000106, PhysPort: "p1",
		}},
		{"Soft-RoCE has no PCI function", "rxe", nil, Port{
			Device: "rxe102", Num: 1, Netdev: "r102", IfIndex: 3, NetdevMTU: 9000, Carrier: true,
			Addrs: prefixes("192.168.102.1/24", "fe80::5054:ff:fe00:a66/64"),
			GIDs: []Address{
				gid(0, "fe80::5054:ff:fe00:a66", GIDTypeRoCEv2, "r102", 64),
				gid(1, "192.168.102.1", GIDTypeRoCEv2, "r102", 24),
			},
			LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, State: "ACTIVE", LinkMbps: 2500, NUMA: -1,
			SysImageGUID: 0x505400fffe000a66, NodeGUID: 0x505400fffe000a66,
		}},
		{"Soft-RoCE, interface down and GID table empty: found by its parent", "rxe", []string{
			"link 3 r102 device mtu 1500",
			"devices/virtual/infiniband/rxe102/ports/1/state: 1: DOWN",
			"devices/virtual/infiniband/rxe102/ports/1/gids/0: 0000:0000:0000:0000:0000:0000:0000:0000",
			"devices/virtual/infiniband/rxe102/ports/1/gids/1: 0000:0000:0000:0000:0000:0000:0000:0000",
		}, Port{
			Device: "rxe102", Num: 1, Netdev: "r102", IfIndex: 3, NetdevMTU: 1500,
			LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, State: "DOWN", LinkMbps: 2500, NUMA: -1,
			SysImageGUID: 0x505400fffe000a66, NodeGUID: 0x505400fffe000a66,
		}},
		{"holes in the GID table, a GID whose type is not there yet, an address that is gone", "rxe", []string{
			"link 3 r102 device mtu 9000 up carrier 192.168.102.9/30",
			"devices/virtual/infiniband/rxe102/ports/1/gid_attrs/types/0 !",
			"devices/virtual/infiniband/rxe102/ports/1/gids/3: 0000:0000:0000:0000:0000:ffff:c0a8:6609",
			"devices/virtual/infiniband/rxe102/ports/1/gid_attrs/types/3: RoCE v2",
			"devices/virtual/infiniband/rxe102/ports/1/gid_attrs/ndevs/3 !",
		}, Port{
			Device: "rxe102", Num: 1, Netdev: "r102", IfIndex: 3, NetdevMTU: 9000, Carrier: true, Addrs: prefixes("192.168.102.9/30"),
			GIDs: []Address{
				gid(1, "192.168.102.1", GIDTypeRoCEv2, "r102", -1),
				gid(3, "192.168.102.9", GIDTypeRoCEv2, "r102", 30),
			},
			LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, State: "ACTIVE", LinkMbps: 2500, NUMA: -1,
			SysImageGUID: 0x505400fffe000a66, NodeGUID: 0x505400fffe000a66,
		}},
		{"InfiniBand behind a slower PCIe link", "infiniband", nil, Port{
			Device: "mlx5_0", Num: 1, Netdev: "ibp65s0", IfIndex: 3, NetdevMTU: 2044, Carrier: true,
			Addrs:     prefixes("10.1.0.5/24", "fe80::e42:a1ff:fe00:1/64"),
			GIDs:      []Address{gid(0, "fe80::c42:a103:0:1", GIDTypeIB, "ibp65s0", -1)},
			LinkLayer: handshake.IBV_LINK_LAYER_INFINIBAND, LID: 28, Active: true, State: "ACTIVE", LinkMbps: 200000, PCIMbps: 126030,
			PCIPath: "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0", NUMA: 1,
			SysImageGUID: 0x0c42a10300000001, NodeGUID: 0x0c42a10300000001,
		}},
		{"the second port of a function", "infiniband", nil, Port{
			Device: "mlx4_0", Num: 2, Netdev: "ens2d1", IfIndex: 5, NetdevMTU: 1500, Carrier: true,
			Addrs: prefixes("10.2.0.5/30", "fe80::202:c9ff:fe00:5/64"),
			GIDs: []Address{
				gid(0, "fe80::202:c9ff:fe00:5", GIDTypeRoCEv1, "ens2d1", 64),
				gid(3, "10.2.0.5", GIDTypeRoCEv1, "ens2d1", 30),
			},
			LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, State: "ACTIVE", LinkMbps: 40000, PCIMbps: 63015,
			PCIPath: "/sys/devices/pci0000:00/0000:00:02.0/0000:05:00.0", NUMA: -1,
			SysImageGUID: 0x0002c90300000503, NodeGUID: 0x0002c90300000500,
		}},
		{"a bond with a VLAN: the port is the bond's, each GID has its own interface", "bond", nil, Port{
			Device: "mlx5_bond_0", Num: 1, Netdev: "bond0", IfIndex: 4, NetdevMTU: 9000, Carrier: true,
			Addrs: prefixes("10.9.0.1/24", "fe80::bace:f6ff:fe00:2/64"),
			GIDs: []Address{
				gid(0, "fe80::bace:f6ff:fe00:2", GIDTypeRoCEv1, "bond0", 64),
				gid(1, "fe80::bace:f6ff:fe00:2", GIDTypeRoCEv2, "bond0", 64),
				gid(2, "10.100.0.1", GIDTypeRoCEv1, "bond0.100", 24),
				gid(3, "10.100.0.1", GIDTypeRoCEv2, "bond0.100", 24),
				gid(7, "10.9.0.1", GIDTypeRoCEv1, "bond0", 24),
				gid(12, "10.9.0.1", GIDTypeRoCEv2, "bond0", 24),
			},
			LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, State: "ACTIVE", LinkMbps: 200000, PCIMbps: 252061,
			PCIPath: "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", NUMA: 1,
			SysImageGUID: 0xb8cef60300000002, NodeGUID: 0xb8cef60300000002,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := discover(t, tt.fixture, tt.edits...)
			for _, p := range n.Ports {
				if p.Device == tt.want.Device && p.Num == tt.want.Num {
					if d := cmp.Diff(tt.want, p, compareAddrs); d != "" {
						t.Errorf("(-want +got)\n%s", d)
					}
					return
				}
			}
			t.Errorf("%s is missing from %q", tt.want.String(), summaries(n.Ports, AnyGID))
		})
	}
}

func TestDiscoverNode(t *testing.T) {
	tests := []struct {
		name, fixture string
		edits         []string
		ports         []string
		warnings      []string
	}{
		{"GB10: four functions in PCI order, RoCE v2 though v1 comes first", "gb10", nil, []string{
			"rocep1s0f0:1 (enp1s0f0np0) RoCE ACTIVE, link 200 Gb/s, PCIe 126 Gb/s, MTU 9000, 192.168.103.1 (RoCE v2, GID index 3)",
			"rocep1s0f1:1 (enp1s0f1np1) RoCE ACTIVE, link 200 Gb/s, PCIe 126 Gb/s, MTU 9000, 192.168.104.1 (RoCE v2, GID index 3)",
			"roceP2p1s0f0:1 (enP2p1s0f0np0) RoCE ACTIVE, link 200 Gb/s, PCIe 126 Gb/s, MTU 9000, 192.168.105.1 (RoCE v2, GID index 3)",
			"roceP2p1s0f1:1 (enP2p1s0f1np1) RoCE ACTIVE, link 200 Gb/s, PCIe 126 Gb/s, MTU 9000, 192.168.106.1 (RoCE v2, GID index 3)",
		}, nil},
		{"Soft-RoCE", "rxe", nil, []string{
			"rxe100:1 (r100) RoCE ACTIVE, link 2.5 Gb/s, MTU 9000, 192.168.100.1 (RoCE v2, GID index 1)",
			"rxe102:1 (r102) RoCE ACTIVE, link 2.5 Gb/s, MTU 9000, 192.168.102.1 (RoCE v2, GID index 1)",
		}, nil},
		{"InfiniBand and RoCE v1 only", "infiniband", nil, []string{
			"mlx4_0:1 (ens2) IB lid 65535 DOWN, link 10 Gb/s, PCIe 63.02 Gb/s, MTU 2044, fe80::2:c903:0:501 (IB, GID index 0)",
			"mlx4_0:2 (ens2d1) RoCE ACTIVE, link 40 Gb/s, PCIe 63.02 Gb/s, MTU 1500, 10.2.0.5 (RoCE v1, GID index 3)",
			"mlx5_0:1 (ibp65s0) IB lid 28 ACTIVE, link 200 Gb/s, PCIe 126 Gb/s, MTU 2044, fe80::c42:a103:0:1 (IB, GID index 0)",
		}, []string{`iw0 is left out: its node type is "4: RNIC", and only channel adapters ("1: CA") have the queue pairs needed`}},
		{"bond, VLAN, virtual function", "bond", nil, []string{
			"mlx5_bond_0:1 (bond0) RoCE ACTIVE, link 200 Gb/s, PCIe 252.1 Gb/s, MTU 9000, 10.9.0.1 (RoCE v2, GID index 12)",
			"mlx5_2:1 (vf.20) RoCE ACTIVE, link 100 Gb/s, MTU 1500, 10.20.0.1 (RoCE v2, GID index 0)",
		}, nil},
		{"no RDMA", "plain", nil, nil, nil},
		{"IPv6 only", "rxe", []string{
			"link 2 r100 device mtu 9000 up carrier 2001:db8::1/64 fe80::5054:ff:fe00:a64/64",
			"devices/virtual/infiniband/rxe100/ports/1/gids/1: 2001:0db8:0000:0000:0000:0000:0000:0001",
			"class/infiniband/rxe102 -",
		}, []string{
			"rxe100:1 (r100) RoCE ACTIVE, link 2.5 Gb/s, MTU 9000, 2001:db8::1 (RoCE v2, GID index 1)",
		}, nil},
		{"no address, no speed", "rxe", []string{
			"link 2 r100 device mtu 9000 up carrier",
			"devices/virtual/infiniband/rxe100/ports/1/gids/0: 0000:0000:0000:0000:0000:0000:0000:0000",
			"devices/virtual/infiniband/rxe100/ports/1/gids/1: 0000:0000:0000:0000:0000:0000:0000:0000",
			"devices/virtual/infiniband/rxe100/ports/1/rate !",
			"class/infiniband/rxe102 -",
		}, []string{
			"rxe100:1 (r100) RoCE ACTIVE, 10 Gb/s assumed, MTU 9000, no usable address",
		}, []string{`rxe100:1: rate "": want a number and Gb/sec; its PCIe speed or 10 Gb/s is assumed`}},
		{"nothing sensible", "rxe", []string{
			"devices/virtual/infiniband/rxe100/ports/1/link_layer: Token Ring",
			"devices/virtual/infiniband/rxe102/ports/0/link_layer: Ethernet",
			"devices/virtual/infiniband/rxe102/ports/one/link_layer: Ethernet",
			"class/infiniband/ghost -> ../../devices/virtual/infiniband/gone",
		}, []string{
			"rxe102:1 (r102) RoCE ACTIVE, link 2.5 Gb/s, MTU 9000, 192.168.102.1 (RoCE v2, GID index 1)",
		}, []string{
			"ghost is left out: its ports cannot be listed: open ROOT/class/infiniband/ghost/ports: no such file or directory",
			`rxe100:1 is left out: its link layer is "Token Ring", want InfiniBand or Ethernet`,
			`rxe102: port "0" is left out: want a number from 1 to 255`,
			`rxe102: port "one" is left out: want a number from 1 to 255`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			src := fixture(t, tt.fixture, tt.edits...)
			n, err := Discover(src)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.ports, summaries(n.Ports, AnyGID)); d != "" {
				t.Errorf("ports (-want +got)\n%s", d)
			}
			var warnings []string
			for _, w := range n.Warnings {
				warnings = append(warnings, strings.ReplaceAll(w, src.Sysfs, "ROOT"))
			}
			if d := cmp.Diff(tt.warnings, warnings); d != "" {
				t.Errorf("warnings (-want +got)\n%s", d)
			}
		})
	}
}

func TestDiscoverPlain(t *testing.T) {
	n := discover(t, "gb10")
	want := Port{
		Netdev: "enP2p1s0f1np1", IfIndex: 6, NetdevMTU: 9000, Carrier: true,
		Addrs: prefixes("192.168.106.1/24", "fe80::4ebb:47ff:fe00:106/64"),
		GIDs: []Address{
			gid(0, "192.168.106.1", GIDTypeNone, "enP2p1s0f1np1", 24),
			gid(1, "fe80::4ebb:47ff:fe00:106", GIDTypeNone, "enP2p1s0f1np1", 64),
		},
		LinkLayer: handshake.IBV_LINK_LAYER_ETHERNET, Active: true, State: "UP", LinkMbps: 200000, PCIMbps: 126030,
		PCIPath: "/sys/devices/pci0002:00/0002:00:00.0/0002:01:00.1", NUMA: 0,
		SysImageGUID: 0x4cbb470000000103, NodeGUID: 0x4cbb470000000106, PhysPort: "p1",
	}
	if d := cmp.Diff(want, n.Plain[3], compareAddrs); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}

	tests := []struct {
		fixture string
		want    []string
	}{
		{"plain", []string{
			"enp3s0 TCP UP, link 2.5 Gb/s, PCIe 2 Gb/s, MTU 1500, 10.0.0.7",
			"docker0 TCP UP, link 10 Gb/s, MTU 1500, 172.17.0.1",
			"lo TCP UP, 10 Gb/s assumed, MTU 65536, 127.0.0.1",
			"wlp2s0 TCP DOWN, 10 Gb/s assumed, MTU 1500, no usable address", // sysfs has another wlp2s0
		}},
		{"bond", []string{
			"ens1f0np0 TCP UP, link 100 Gb/s, PCIe 252.1 Gb/s, MTU 9000, no usable address",
			"ens1f1np1 TCP UP, link 100 Gb/s, PCIe 252.1 Gb/s, MTU 9000, no usable address",
			"ens1f0v0 TCP UP, link 100 Gb/s, MTU 1500, no usable address",
			"vf.20 TCP UP, link 100 Gb/s, MTU 1500, 10.20.0.1",
			"bond0 TCP UP, link 200 Gb/s, MTU 9000, 10.9.0.1",
			"bond0.100 TCP UP, link 200 Gb/s, MTU 9000, 10.100.0.1",
			"lo TCP UP, 10 Gb/s assumed, MTU 65536, 127.0.0.1",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.fixture, func(t *testing.T) {
			if d := cmp.Diff(tt.want, summaries(discover(t, tt.fixture).Plain, AnyGID)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// A wireless interface is recognised by its entry in sysfs.
func TestDiscoverRadio(t *testing.T) {
	for _, p := range discover(t, "plain", "class/net/wlp2s0/phy80211/name: phy0").Plain {
		if want := p.Netdev == "wlp2s0"; p.Wireless != want {
			t.Errorf("%s is a radio: %v, want %v", p.Netdev, p.Wireless, want)
		}
	}
}

func TestCage(t *testing.T) {
	tests := []struct {
		fixture string
		plain   bool
		want    map[string][]string // ports by cage
	}{
		{"gb10", false, map[string][]string{
			"4cbb470000000103/p0": {"rocep1s0f0", "roceP2p1s0f0"},
			"4cbb470000000103/p1": {"rocep1s0f1", "roceP2p1s0f1"},
		}},
		{"gb10", true, map[string][]string{
			"4cbb470000000103/p0": {"enp1s0f0np0", "enP2p1s0f0np0"},
			"4cbb470000000103/p1": {"enp1s0f1np1", "enP2p1s0f1np1"},
			"0007:01:00.0/":       {"enP7s7"},
			"docker0":             {"docker0"},
			"lo":                  {"lo"},
		}},
		{"rxe", false, map[string][]string{"rxe100:1 (r100)": {"rxe100"}, "rxe102:1 (r102)": {"rxe102"}}},
		{"infiniband", false, map[string][]string{"0000:05:00.0/1": {"mlx4_0"}, "0000:05:00.0/2": {"mlx4_0"}, "0000:41:00.0/1": {"mlx5_0"}}},
		{"bond", true, map[string][]string{
			"0000:81:00.0/p0": {"ens1f0np0"}, "0000:81:00.1/p1": {"ens1f1np1"}, "0000:81:00.2/": {"ens1f0v0", "vf.20"},
			"bond0": {"bond0", "bond0.100"}, "lo": {"lo"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.fixture, func(t *testing.T) {
			n := discover(t, tt.fixture)
			ports, got := n.Ports, make(map[string][]string)
			if tt.plain {
				ports = n.Plain
			}
			for _, p := range ports {
				name := p.Device
				if name == "" {
					name = p.Netdev
				}
				got[p.Cage()] = append(got[p.Cage()], name)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestPCIPathUnderAuxiliaryBus(t *testing.T) {
	// A subfunction's device is a child of the PCI function.
	n := discover(t, "rxe",
		"devices/pci0000:c0/0000:c0:03.0/0000:c1:00.0/mlx5_core.sf.4/uevent: x",
		"devices/pci0000:c0/0000:c0:03.0/0000:c1:00.0/numa_node: 3",
		"devices/virtual/infiniband/rxe100/device -> ../../../pci0000:c0/0000:c0:03.0/0000:c1:00.0/mlx5_core.sf.4",
		"devices/virtual/infiniband/rxe102/device -> /",
	)
	if got, want := n.Ports[0].PCIPath, "/sys/devices/pci0000:c0/0000:c0:03.0/0000:c1:00.0"; got != want || n.Ports[0].NUMA != 3 {
		t.Errorf("PCI path %q, NUMA node %d, want %q, 3", got, n.Ports[0].NUMA, want)
	}
	if got := n.Ports[1].PCIPath; got != "" {
		t.Errorf("PCI path %q of a link that leaves sysfs, want none", got)
	}
}

func TestDiscoverErrors(t *testing.T) {
	src := fixture(t, "plain")
	src.Links = func() ([]Link, error) { return nil, errors.New("no buffer space available") }
	_, err := Discover(src)
	check(t, 0, err, 0, "cannot list the network interfaces over netlink: no buffer space available")

	_, err = Discover(Source{Sysfs: "testdata/nowhere"})
	check(t, 0, err, 0, "no sysfs to find the RDMA devices in: lstat testdata/nowhere: no such file or directory; mount sysfs on /sys")

	src = fixture(t, "plain", "class/infiniband: not a directory")
	_, err = Discover(src)
	check(t, 0, err, 0, "cannot list the RDMA devices: open "+src.Sysfs+"/class/infiniband: not a directory")
}

// Garbage in one file of one device affects at most that device.
func TestDiscoverGarbage(t *testing.T) {
	src := fixture(t, "gb10")
	whole, err := Discover(src)
	if err != nil {
		t.Fatal(err)
	}
	const broken = "0000:01:00.1" // the function of rocep1s0f1
	dir := filepath.Join(src.Sysfs, "devices/pci0000:00/0000:00:00.0", broken)
	files := 0
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, garbage := range []string{"", "\x00\xff\xfe", "-1", "18446744073709551616", "NaN Gb/sec", "::", "../../..", strings.Repeat("9", 10000)} {
			if err := os.WriteFile(path, []byte(garbage), 0o644); err != nil {
				return err
			}
			n, err := Discover(src)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			var others, want []Port
			for _, p := range n.Ports {
				if p.Device != "rocep1s0f1" {
					others = append(others, p)
				}
			}
			want = append(append(want, whole.Ports[0]), whole.Ports[2:]...)
			if d := cmp.Diff(want, others, compareAddrs); d != "" {
				t.Errorf("%q in %s changed other ports (-want +got)\n%s", garbage, path, d)
			}
			n.Ports[0].Summary(AnyGID)
			Aggregate(n.Ports)
		}
		return os.WriteFile(path, old, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Errorf("only %d files tried", files)
	}
}

// The interface of a RoCE port may be in another network namespace than this process, for example that of a container's
// host. Sysfs shows its name, and in this namespace there may be no interface, or another one, with that name.
func TestDiscoverOutside(t *testing.T) {
	const absent = "interface r100 of rxe100 is not in this network namespace"
	tests := []struct {
		name, link      string // the interface named r100 that is here
		edits           []string
		netdev, outside string
		absent          string
	}{
		{"here", "link 2 r100 device mtu 9000 up carrier mac 52:54:00:00:0a:64 192.168.100.1/24 fe80::5054:ff:fe00:a64/64", nil, "r100", "", ""},
		{"here, without an address", "link 2 r100 device mtu 9000 up mac 52:54:00:00:0a:64", nil, "r100", "", ""},
		{"here, with another MAC address than its GIDs", "link 2 r100 device mtu 9000 up carrier mac 02:42:ac:11:00:02 192.168.100.1/24", nil, "r100", "", ""},
		{"none of that name", "link 2 eth0 veth mtu 1500 up carrier mac 02:42:ac:11:00:02 172.17.0.2/16", nil, "", "r100", absent},
		{"another one of that name", "link 2 r100 veth mtu 1500 up carrier mac 02:42:ac:11:00:02 172.17.0.2/16", nil, "", "r100", absent},
		{"no GID to tell by", "link 2 r100 device mtu 9000 up mac 02:42:ac:11:00:02", []string{
			"devices/virtual/infiniband/rxe100/ports/1/gids/0: 0000:0000:0000:0000:0000:0000:0000:0000",
			"devices/virtual/infiniband/rxe100/ports/1/gids/1: 0000:0000:0000:0000:0000:0000:0000:0000",
		}, "r100", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := discover(t, "rxe", append(tt.edits, tt.link)...).Ports[0]
			if got := p.String(); got != "rxe100:1 (r100)" {
				t.Errorf("it is called %q", got)
			}
			what, remedy := p.Absent()
			if p.Netdev != tt.netdev || p.Outside != tt.outside || what != tt.absent || (remedy == "run the container with --network host") != (what != "") {
				t.Errorf("interface %q here, %q outside, %q: %q; want %q, %q, %q", p.Netdev, p.Outside, what, remedy, tt.netdev, tt.outside, tt.absent)
			}
			if tt.outside != "" && (p.IfIndex != 0 || len(p.Addrs) != 0 || p.Carrier) {
				t.Errorf("it has what another interface has: %+v", p)
			}
		})
	}
	ib := discover(t, "infiniband", "link 3 eth0 veth mtu 1500 up carrier").Ports[2]
	if got, _ := ib.Absent(); got != "" {
		t.Errorf("of an InfiniBand port, whose interface carries none of its data: %q", got)
	}
}
