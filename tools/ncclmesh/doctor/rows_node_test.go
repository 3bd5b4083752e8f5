package doctor_test

import (
	"errors"
	"net/netip"
	"syscall"
	"time"

	"ncclmesh/tools/ncclmesh/doctor"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport/topology"
)

// A row is something wrong with the healthy nodes, or something that nobody could see.
type row struct {
	check, name string
	want        doctor.Severity // the worst that the check says, in the order of the severities
	machines    func(a, b *machine)
	mesh        func(m *facts.Mesh)
}

const (
	fail    = doctor.Fail
	warn    = doctor.Warn
	info    = doctor.Info
	unknown = doctor.Unknown
)

// h0 and h2 are the first halves of cages p0 and p1.
var h0, h1, h2 = halves[0], halves[1], halves[2]

func noTopology(a, _ *machine) { a.linksErr = errGone }

// adapterRows are faults of the adapter and its ports.
var adapterRows = []row{
	{"rdma-absent", "the module is not loaded", fail, func(a, _ *machine) { a.noAdapter(); a.set("proc/modules", "mlx5_core 1") }, nil},
	{"rdma-absent", "the module is, and shows nothing", fail, func(a, _ *machine) { a.noAdapter() }, nil},
	{"rdma-absent", "no adapter", info, func(a, _ *machine) {
		a.noAdapter()
		for _, h := range halves {
			a.set(h.fn()+"/vendor", "0x8086")
		}
	}, nil},
	{"rdma-absent", "netlink does not answer", unknown, noTopology, nil},
	{"rdma-absent", "no bus and no modules to see", unknown, func(a, _ *machine) {
		a.noAdapter()
		a.drop("sys/bus")
		a.set("proc/modules", "!")
	}, nil},

	{"nic-unplugged", "two functions of four", fail, func(a, _ *machine) { a.drop("sys/bus/pci/devices/0002") }, nil},
	{"nic-unplugged", "another machine", "", func(a, b *machine) {
		a.drop("sys/bus/pci/devices/0002")
		a.set("sys/class/dmi/id/product_name", "PowerEdge")
	}, nil},
	{"nic-unplugged", "no DMI", unknown, func(a, _ *machine) { a.drop("sys/class/dmi") }, nil},
	{"nic-unplugged", "no bus", unknown, func(a, _ *machine) { a.drop("sys/bus") }, nil},

	{"verbs-missing", "the library", fail, func(a, _ *machine) { a.verbs.err = errors.New("libibverbs.so.1: cannot open shared object file") }, nil},
	{"verbs-missing", "netlink does not answer", unknown, noTopology, nil},

	{"uverbs-denied", "a container without the devices", fail, func(a, _ *machine) { a.verbs.open = syscall.EACCES }, nil},
	{"uverbs-denied", "no library", unknown, func(a, _ *machine) { a.verbs.err = errGone }, nil},

	{"port-enslaved", "of a bridge", fail, func(a, _ *machine) {
		a.link(h0.netdev).Master = 20
		addrs := a.link(h0.netdev).Addrs[:1]
		a.link(h0.netdev).Addrs = a.link(h0.netdev).Addrs[1:]
		a.links = append(a.links, topology.Link{Name: "br0", Index: 20, Kind: "bridge", Up: true, Carrier: true, Addrs: addrs})
	}, nil},
	{"port-enslaved", "of Open vSwitch", fail, func(a, _ *machine) {
		a.link(h0.netdev).Master = 20
		a.links = append(a.links, topology.Link{Name: "ovs-system", Index: 20, Kind: "openvswitch"})
	}, nil},
	{"port-enslaved", "of a routing domain", "", func(a, _ *machine) {
		a.link(h0.netdev).Master = 20
		a.links = append(a.links, topology.Link{Name: "red", Index: 20, Kind: "vrf"})
	}, nil},
	{"port-enslaved", "netlink does not answer", unknown, noTopology, nil},

	{"port-flapping", "while it was looked at", warn, func(a, _ *machine) { a.flaps = map[string]uint64{h0.netdev: 3} }, nil},
	{"port-flapping", "since boot", warn, func(a, _ *machine) { a.flaps = map[string]uint64{h0.netdev: 2000} }, nil},
	{"port-flapping", "once a day", "", func(a, _ *machine) { a.flaps = map[string]uint64{h0.netdev: 22} }, nil},
	{"port-flapping", "an interface of no cable", "", func(a, _ *machine) { a.flaps = map[string]uint64{"enP7s7": 2000} }, nil},
	{"port-flapping", "the kernel does not answer", unknown, func(a, _ *machine) { a.err = errGone }, nil},
	{"port-flapping", "no uptime", unknown, func(a, _ *machine) { a.drop("proc/uptime") }, nil},

	{"port-shaped", "an interface alone", warn, func(a, _ *machine) {
		a.noAdapter()
		a.shapers = []facts.Shaper{{Dev: h0.netdev, Kind: "htb"}, {Dev: h0.netdev, Kind: "netem"}, {Dev: "enP7s7", Kind: "tbf"}}
	}, nil},
	{"port-shaped", "of RDMA", "", func(a, _ *machine) { a.shapers = []facts.Shaper{{Dev: h0.netdev, Kind: "htb"}} }, nil},
	{"port-shaped", "the kernel does not answer", unknown, func(a, _ *machine) { a.err = errGone }, nil},

	{"shm-small", "64 KiB", fail, func(a, _ *machine) { a.shared = 64 << 10 }, nil},
	{"shm-small", "nearly full", warn, func(a, _ *machine) { a.shared = 20 << 20 }, nil},
	{"shm-small", "as Docker has it", "", func(a, _ *machine) { a.shared = 64 << 20 }, nil},
	{"shm-small", "not there", unknown, func(a, _ *machine) { a.err = syscall.ENOENT }, nil},

	{"files-low", "64", fail, func(a, _ *machine) { a.openFiles("64", "64") }, nil},
	{"files-low", "64 of a job", fail, func(a, _ *machine) { a.openFiles("64", "64"); a.job() }, nil},
	{"files-low", "512", warn, func(a, _ *machine) { a.openFiles("512", "512") }, nil},
	{"files-low", "the soft limit alone, which the plugin raises", "", func(a, _ *machine) { a.openFiles("64", "524288") }, nil},
	{"files-low", "none", "", func(a, _ *machine) { a.openFiles("64", "unlimited") }, nil},
	{"files-low", "not in /proc", unknown, func(a, _ *machine) { a.set("proc/self/limits", "Max open files\n") }, nil},

	{"clock-differs", "ahead", warn, nil, func(m *facts.Mesh) {
		m.Nodes[1].Ahead = facts.Known(facts.Ahead{Least: 5 * time.Minute, Most: 5*time.Minute + time.Second})
	}},
	{"clock-differs", "behind", warn, nil, func(m *facts.Mesh) {
		m.Nodes[1].Ahead = facts.Known(facts.Ahead{Least: -26 * time.Hour, Most: -26 * time.Hour})
	}},
	{"clock-differs", "nobody knows, as the answer took a minute", "", nil, func(m *facts.Mesh) {
		m.Nodes[1].Ahead = facts.Known(facts.Ahead{Least: -time.Second, Most: time.Minute})
	}},
	{"clock-differs", "not told", unknown, nil, func(m *facts.Mesh) { m.Nodes[1].Ahead = facts.Fact[facts.Ahead]{} }},

	{"port-down", "one half", fail, func(a, _ *machine) { a.down(h0) }, nil},
	{"port-down", "a cage with addresses", fail, func(a, _ *machine) { a.down(h0); a.down(h1) }, nil},
	{"port-down", "switched off", fail, func(a, _ *machine) { a.down(h0); a.link(h0.netdev).Up = false }, nil},
	{"port-down", "active without a carrier", fail, func(a, _ *machine) { a.link(h0.netdev).Carrier = false }, nil},
	{"port-down", "a cage that nobody uses", info, func(a, _ *machine) {
		for _, h := range halves[2:] {
			a.down(h)
			a.link(h.netdev).Addrs = nil
		}
	}, nil},
	{"port-down", "every port, without an address", fail, func(a, _ *machine) {
		for _, h := range halves {
			a.down(h)
			a.link(h.netdev).Addrs = nil
		}
	}, nil},
	{"port-down", "an interface outside of the container", fail, func(a, _ *machine) { a.link(h0.netdev).Name = "eth0" }, nil},
	{"port-down", "the other end is an interface outside of the container", fail, func(a, b *machine) {
		a.link(h0.netdev).Name = "eth0"
		b.down(halves[2])
	}, func(m *facts.Mesh) { cable(m).Halves[0].State = topo.None }},
	{"port-down", "the other end is in another network namespace, and nobody knows of which half", fail, func(a, b *machine) {
		a.link(h0.netdev).Name = "eth0"
		b.down(halves[2])
	}, func(m *facts.Mesh) { cable(m).Halves[0].State, cable(m).Halves[0].Ports[0] = topo.None, "" }},
	{"port-down", "both halves, which are up to the adapter", fail, func(a, _ *machine) { a.link(h0.netdev).Carrier, a.link(h1.netdev).Carrier = false, false }, nil},
	{"port-down", "switched off at the other end", fail, func(a, b *machine) {
		a.down(h0)
		b.down(halves[2])
		b.link(halves[2].netdev).Up = false
	}, nil},
	{"port-down", "an interface that was moved away, and is down", fail, func(a, _ *machine) {
		a.down(h0)
		a.links = append(a.links[:2], a.links[3:]...)
	}, nil},
	{"port-down", "an interface alone without a carrier", fail, func(a, b *machine) {
		a.noAdapter()
		b.noAdapter()
		a.link(h0.netdev).Carrier = false
	}, nil},
	{"port-down", "an interface alone switched off", fail, func(a, b *machine) {
		a.noAdapter()
		b.noAdapter()
		a.link(h0.netdev).Up, a.link(h0.netdev).Carrier = false, false
		b.link(halves[2].netdev).Carrier = false
	}, nil},
	{"port-down", "an interface alone that no other node shares a subnet with", info, func(a, _ *machine) {
		a.noAdapter()
		a.links = append(a.links, topology.Link{Name: "eno2", Index: 21, Kind: "device", MAC: [6]byte{2, 1}, Up: true, Addrs: []netip.Prefix{netip.MustParsePrefix("172.31.0.1/24")}})
	}, nil},
	{"port-down", "no state", unknown, func(a, _ *machine) { a.set(h0.ib()+"/ports/1/state", "") }, nil},

	{"pcie-narrow", "half the lanes", warn, func(a, _ *machine) { a.set(h1.fn()+"/current_link_width", "2") }, nil},
	{"pcie-narrow", "a generation less", warn, func(a, _ *machine) { a.set(h1.fn()+"/current_link_speed", "16.0 GT/s PCIe") }, nil},
	{"pcie-narrow", "no width", unknown, func(a, _ *machine) { a.set(h1.fn()+"/current_link_width", "Unknown") }, nil},

	{"pcie-fatal", "two", fail, func(a, _ *machine) { a.set(h0.fn()+"/aer_dev_fatal", "Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 2") }, nil},
	{"pcie-fatal", "not counted", unknown, func(a, _ *machine) { a.drop(h0.fn() + "/aer_dev_fatal") }, nil},

	{"speed-low", "a cable of half the speed", warn, func(a, _ *machine) { a.set(h0.net()+"/speed", "100000") }, nil},
	{"speed-low", "of the whole node", warn, func(a, _ *machine) {
		for _, h := range halves {
			a.set(h.net()+"/speed", "100000")
		}
	}, nil},
	{"speed-low", "not said", unknown, func(a, _ *machine) { a.set(h0.net()+"/speed", "-1") }, nil},

	{"mst-loaded", "mst", warn, func(a, _ *machine) { a.set("proc/modules", "mst_pciconf 1\nmlx5_ib 1") }, nil},
	{"mst-loaded", "no list", unknown, func(a, _ *machine) { a.set("proc/modules", "!") }, nil},
}

// down takes the link of a half away.
func (m *machine) down(h half) {
	m.set(h.ib()+"/ports/1/state", "1: DOWN")
	m.link(h.netdev).Carrier = false
}

// limit sets the limit of locked memory.
func (m *machine) limit(bytes string) {
	for _, who := range []string{"self", "4711"} {
		m.set("proc/"+who+"/limits", "Max locked memory         "+bytes+"              "+bytes+"              bytes\nMax open files  1024  1048576  files\n")
	}
}

var memoryRows = []row{
	{"memlock", "64 KiB", fail, func(a, _ *machine) {
		a.limit("65536")
		a.verbs.most, a.verbs.why = 65536, syscall.ENOMEM
	}, nil},
	{"memlock", "beyond the limit it works", "", func(a, _ *machine) { a.limit("65536") }, nil}, // CAP_IPC_LOCK
	{"memlock", "of a job", warn, func(a, _ *machine) { a.limit("8388608"); a.job() }, nil},
	{"memlock", "no limit to see", unknown, func(a, _ *machine) { a.set("proc/self/limits", "!") }, nil},
	{"memlock", "not tried", unknown, func(a, _ *machine) { a.limit("65536"); a.verbs.open = syscall.EACCES }, nil},

	{"regmr-enomem", "a few bytes", fail, func(a, _ *machine) {
		a.verbs.most, a.verbs.why = 1, syscall.ENOMEM
		a.set("proc/meminfo", "MemTotal: 125829120 kB\nMemAvailable: 104857600 kB\nCmaTotal: 0 kB\n")
	}, nil},
	{"regmr-enomem", "another error", fail, func(a, _ *machine) { a.verbs.most, a.verbs.why = 1, syscall.EFAULT }, nil},
	{"regmr-enomem", "the limit is the reason", "", func(a, _ *machine) {
		a.limit("65536")
		a.verbs.most, a.verbs.why = 65536, syscall.ENOMEM
	}, nil},
	{"regmr-enomem", "not tried", unknown, func(a, _ *machine) { a.verbs.open = syscall.EACCES }, nil},
	{"regmr-enomem", "refused, and no limit to see", unknown, func(a, _ *machine) {
		a.verbs.most, a.verbs.why = 1, syscall.ENOMEM
		a.set("proc/self/limits", "!")
	}, nil},

	{"mem-low", "1 GiB", warn, func(a, _ *machine) { a.set("proc/meminfo", "MemTotal: 125829120 kB\nMemAvailable: 1048576 kB\n") }, nil},
	{"mem-low", "less than the test takes", warn, nil, func(m *facts.Mesh) { m.Plan = facts.Known(int64(110 << 30)) }},
	{"mem-low", "not to be seen", unknown, func(a, _ *machine) { a.set("proc/meminfo", "MemTotal: 125829120 kB\n") }, nil},
}

// bare takes the addresses that somebody gave from an interface.
func (m *machine) bare(h half) {
	l := m.link(h.netdev)
	l.Addrs = l.Addrs[1:]
	m.drop(h.ib() + "/ports/1/gids/2")
	m.drop(h.ib() + "/ports/1/gids/3")
}

var addressRows = []row{
	{"addr-none", "an interface alone without any, beside one over which nothing comes", warn, noAddress, func(m *facts.Mesh) { m.Map.Value.Cables = m.Map.Value.Cables[1:] }},
	{"addr-none", "an interface alone without any, where all others have their cables", "", noAddress, nil},
	{"addr-none", "one port", info, func(a, _ *machine) { a.bare(h0) }, nil},
	{"addr-none", "netlink does not answer", unknown, noTopology, nil},

	{"route-wrong", "a blackhole", fail, nil, func(m *facts.Mesh) {
		w := &(*m.Nodes[0].Lookups.Value)[2]
		w.Dev, w.Try = "", facts.Tried(0, syscall.EINVAL)
	}},
	{"route-wrong", "a tunnel", warn, nil, func(m *facts.Mesh) { (*m.Nodes[0].Lookups.Value)[2].Dev = "wg0" }},
	{"route-wrong", "not asked", unknown, nil, func(m *facts.Mesh) { m.Nodes[0].Lookups = facts.Fact[[]facts.Lookup]{} }},

	{"neighbour-wrong", "an entry that somebody made", fail, func(a, _ *machine) {
		a.neighbours = []facts.Neighbour{{Dev: h0.netdev, Addr: address(1, 2).Addr(), MAC: [6]byte{2, 0, 0, 0, 9, 9}, Permanent: true}}
	}, noDial},
	{"neighbour-wrong", "an entry that somebody made, and that leads to the node", "", func(a, _ *machine) {
		a.neighbours = []facts.Neighbour{{Dev: h0.netdev, Addr: address(1, 2).Addr(), MAC: [6]byte{2, 0, 0, 0, 9, 9}, Permanent: true}}
	}, nil},
	{"neighbour-wrong", "another machine answers", warn, func(a, _ *machine) {
		a.neighbours = []facts.Neighbour{{Dev: h0.netdev, Addr: address(1, 2).Addr(), MAC: [6]byte{2, 0, 0, 0, 9, 9}}}
	}, noDial},
	{"neighbour-wrong", "another interface of the node answers", "", func(a, _ *machine) {
		a.neighbours = []facts.Neighbour{{Dev: h0.netdev, Addr: address(1, 2).Addr(), MAC: [6]byte{2, 0, 0, 0, 1, 3}}}
	}, noDial},
	{"neighbour-wrong", "an entry that is right", "", func(a, _ *machine) {
		a.neighbours = []facts.Neighbour{{Dev: h0.netdev, Addr: address(1, 2).Addr(), MAC: [6]byte{2, 0, 0, 0, 1, 2}, Permanent: true}}
	}, noDial},
	{"neighbour-wrong", "the kernel does not answer", unknown, func(a, _ *machine) { a.err = errGone }, nil},

	{"addr-volatile", "under /run alone", warn, func(a, _ *machine) {
		a.set("run/NetworkManager/system-connections/Wired.nmconnection", "[connection]\ninterface-name=enp1s0f1np1\n")
	}, nil},
	{"addr-volatile", "under /run alone, without RDMA", warn, func(a, _ *machine) {
		a.noAdapter()
		a.set("run/NetworkManager/system-connections/Wired.nmconnection", "[connection]\ninterface-name=enp1s0f1np1\n")
	}, nil},
	{"addr-volatile", "of the management network", "", func(a, _ *machine) {
		a.set("run/NetworkManager/system-connections/Wired.nmconnection", "[connection]\ninterface-name=enP7s7\n")
	}, nil},
	{"addr-volatile", "netplan's under /run", "", func(a, _ *machine) {
		a.set("run/NetworkManager/system-connections/netplan-enp1s0f0np0.nmconnection", "[connection]\ninterface-name=enp1s0f0np0\n")
	}, nil},
	{"addr-volatile", "a file that cannot be read", unknown, func(a, _ *machine) { a.set("run/NetworkManager/system-connections/Wired.nmconnection", "!") }, nil},

	{"addr-owner-clash", "netplan and NetworkManager", warn, func(a, _ *machine) {
		a.set("etc/NetworkManager/system-connections/mesh.nmconnection", "[connection]\ninterface-name=enp1s0f0np0\n")
	}, nil},
	{"addr-owner-clash", "a longer name", "", func(a, _ *machine) {
		a.set("etc/NetworkManager/system-connections/mesh.nmconnection", "[connection]\ninterface-name=enp1s0f0np0.7\n")
	}, nil},
	{"addr-owner-clash", "a file that cannot be read", unknown, func(a, _ *machine) { a.set("etc/netplan/99-secret.yaml", "!") }, nil},

	{"addr-duplicate", "of two nodes", fail, func(_, b *machine) { b.link(h0.netdev).Addrs[0] = address(0, 0) }, nil},
	{"addr-duplicate", "bridges to containers", "", func(a, b *machine) {
		for _, m := range []*machine{a, b} {
			m.links = append(m.links, topology.Link{Name: "docker0", Index: 20, Kind: "bridge", Addrs: []netip.Prefix{netip.MustParsePrefix("172.17.0.1/16")}})
		}
	}, nil},
	{"addr-duplicate", "netlink does not answer", unknown, noTopology, nil},

	{"subnet-shared", "both halves", info, func(a, _ *machine) {
		a.link(h1.netdev).Addrs[0] = netip.MustParsePrefix("192.168.100.9/24")
	}, nil},
	{"subnet-shared", "netlink does not answer", unknown, noTopology, nil},

	{"subnet-overlap", "a tunnel, without RDMA", warn, func(a, _ *machine) {
		a.noAdapter()
		a.routes = append(a.routes, facts.Route{Dst: netip.MustParsePrefix("192.168.0.0/16"), Dev: "wg0"})
	}, nil},
	{"subnet-overlap", "a tunnel", warn, func(a, _ *machine) {
		a.routes = append(a.routes, facts.Route{Dst: netip.MustParsePrefix("192.168.0.0/16"), Dev: "wg0"})
	}, nil},
	{"subnet-overlap", "no routes to see", unknown, func(a, _ *machine) { a.routesErr = errGone }, nil},

	{"mtu-small", "1500", warn, func(a, _ *machine) { a.link(h0.netdev).MTU = 1500; a.verbs.mtu = 1024 }, nil},
	{"mtu-small", "no interface", unknown, func(a, _ *machine) { a.links = append(a.links[:2], a.links[3:]...) }, nil},

	{"mtu-mismatch", "two ends", warn, nil, func(m *facts.Mesh) { cable(m).Halves[0].MTU[1] = 4200 }},
	{"mtu-mismatch", "no way was tried", unknown, nil, noMap},
	{"mtu-mismatch", "an end that is not known", unknown, nil, func(m *facts.Mesh) { cable(m).Halves[0].MTU[1] = 0 }},

	{"gid-none", "an empty table", fail, func(a, _ *machine) { a.drop(h0.ib() + "/ports/1/gids") }, nil},
	{"gid-none", "netlink does not answer", unknown, noTopology, nil},

	{"gid-pinned", "an empty entry", warn, func(a, _ *machine) { a.env = append(a.env, "NCCL_IB_GID_INDEX=5") }, nil},
	{"gid-pinned", "RoCE v1, by the older name", warn, func(a, _ *machine) { a.env = append(a.env, "NCCL_MESH_GID_INDEX=2") }, nil},
	{"gid-pinned", "an address that went", warn, func(a, _ *machine) {
		a.env = append(a.env, "NCCL_IB_GID_INDEX=3")
		a.link(h0.netdev).Addrs = a.link(h0.netdev).Addrs[1:]
	}, nil},
	{"gid-pinned", "the right entry", "", func(a, _ *machine) { a.env = append(a.env, "NCCL_IB_GID_INDEX=3") }, nil},
	{"gid-pinned", "-1", "", func(a, _ *machine) { a.env = append(a.env, "NCCL_IB_GID_INDEX=-1") }, nil},
	{"gid-pinned", "a job that cannot be read", unknown, otherUsersJob, nil},

	{"gid-pinned-empty", "emptied", warn, func(a, _ *machine) { a.env = append(a.env, "NCCL_IB_GID_INDEX=") }, nil},
	{"gid-pinned-empty", "a job that cannot be read", unknown, otherUsersJob, nil},
}

// noAddress takes all addresses of an interface of a node without RDMA.
func noAddress(a, b *machine) {
	a.noAdapter()
	b.noAdapter()
	a.link(h0.netdev).Addrs = nil
}

// noDial is that no connection to an address of the other node comes about.
func noDial(m *facts.Mesh) {
	for i := range m.Nodes {
		for k := range *m.Nodes[i].Lookups.Value {
			(*m.Nodes[i].Lookups.Value)[k].Dial = facts.Tried(0, syscall.ETIMEDOUT)
		}
	}
}

// openFiles sets the limits of open files, soft and hard.
func (m *machine) openFiles(soft, hard string) {
	for _, who := range []string{"self", "4711"} {
		m.set("proc/"+who+"/limits", "Max locked memory unlimited unlimited bytes\nMax open files            "+soft+"                 "+hard+"              files\n")
	}
}

func otherUsersJob(a, _ *machine) {
	a.pid = 4711
	a.set("proc/4711/environ", "!", "proc/4711/maps", "!")
}
