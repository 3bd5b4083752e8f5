package doctor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/doctor/gather"
	"ncclmesh/tools/ncclmesh/topo"
	"ncclmesh/transport/topology"
)

// machine is a node as the kernel would show it: what package gather looks at.
type machine struct {
	name      string
	files     map[string]string // by path; "-> x" is a link, "!" what cannot be read
	links     []topology.Link
	linksErr  error
	routes    []facts.Route
	routesErr error
	verbs     *fakeVerbs
	env       []string
	pid       int
	rise      map[string]string // files as they are when the counters are read again
	echo      func([]int) ([][2]int, error)

	flaps      map[string]uint64 // changes of carriers; an odd number rises whenever it is asked for
	neighbours []facts.Neighbour
	shapers    []facts.Shaper
	outward    netip.Addr
	shared     uint64 // bytes that are free in /dev/shm
	load       error  // of the plugin
	err        error  // of whatever else the kernel is asked for
}

// A half is one function of a cage.
type half struct{ device, netdev, pci, cage string }

// halves of a GB10's adapter, in the order of cages.
var halves = []half{
	{"rocep1s0f0", "enp1s0f0np0", "0000:01:00.0", "p0"},
	{"roceP2p1s0f0", "enP2p1s0f0np0", "0002:01:00.0", "p0"},
	{"rocep1s0f1", "enp1s0f1np1", "0000:01:00.1", "p1"},
	{"roceP2p1s0f1", "enP2p1s0f1np1", "0002:01:00.1", "p1"},
}

// fn is where a function is in sysfs.
func (h half) fn() string {
	domain, _, _ := strings.Cut(h.pci, ":")
	return fmt.Sprintf("sys/devices/pci%s:00/%s:00:00.0/%s", domain, domain, h.pci)
}

func (h half) ib() string  { return h.fn() + "/infiniband/" + h.device }
func (h half) net() string { return h.fn() + "/net/" + h.netdev }

// subnet is that of a half's cable: cage p0 of a node is cabled to p1 of the other.
func subnet(node, i int) int { return 100 + (i+2*node)%4 }

func address(node, i int) netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("192.168.%d.%d/24", subnet(node, i), node+1))
}

// healthy is one of two nodes with nothing wrong, on which job 4711 runs.
func healthy(t *testing.T, node int) *machine {
	m := &machine{
		name: string(rune('a' + node)), files: map[string]string{}, verbs: &fakeVerbs{mtu: 4096},
		env: []string{"NCCL_NET_PLUGIN=/opt/libnccl-net-mesh.so", "HOME=/home/u"},
		links: []topology.Link{
			{Name: "lo", Index: 1, MTU: 65536, Kind: "device", Up: true, Carrier: true, Loopback: true, Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}},
			{Name: "enP7s7", Index: 2, MTU: 1500, Kind: "device", Up: true, Carrier: true, Default: true, Addrs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", node+1))}},
		},
		routes: []facts.Route{{Dst: netip.MustParsePrefix("10.0.0.0/24"), Dev: "enP7s7"}},
		rise:   map[string]string{},
		shared: 60 << 30, outward: netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", node+1)),
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(m.files, map[string]string{
		"proc/sys/kernel/osrelease": "6.17.0-1008-nvidia",
		"proc/meminfo":              "MemTotal:  125829120 kB\nMemAvailable: 104857600 kB\nCmaTotal: 65536 kB\n",
		"proc/modules":              "mlx5_ib 1 0 - Live 0x0\nmlx5_core 1 1 mlx5_ib, Live 0x0\n",
		"proc/sys/kernel/hostname":  m.name,
		"proc/uptime":               "360000.17 1400000.00",
		"etc/hosts":                 "127.0.0.1 localhost\n127.0.1.1 spark\n",
		"proc/self/limits":          "Limit  Soft Limit  Hard Limit  Units\nMax locked memory  unlimited  unlimited  bytes\nMax open files  1024  1048576  files\n",
		"proc/self/root":            "-> ../..",
		"proc/4711/limits":          "Max locked memory  unlimited  unlimited  bytes\nMax open files  1024  1048576  files\n",
		"proc/4711/root":            "-> ../..",
		"proc/4711/environ":         "NCCL_NET_PLUGIN=/opt/libnccl-net-mesh.so\x00HOME=/home/u\x00",
		"proc/4711/maps": "7f00-7f01 r-xp 00000000 08:02 17   /opt/libnccl-net-mesh.so\n7f02-7f03 r-xp 00000000 08:02 18   /usr/lib/libnccl.so.2\n" +
			"7f04-7f05 rw-p 00000000 00:00 0\n",
		"etc/machine-id":                 fmt.Sprintf("%032d", node),
		"etc/netplan/40-mesh.yaml":       "network:\n  ethernets:\n    enp1s0f0np0: {mtu: 9000}\n    enP2p1s0f0np0: {mtu: 9000}\n",
		"usr/lib/libnccl.so.2":           "\x7fELF NCCL version 2.32.3+cuda13.0\x00",
		"opt/libnccl-net-mesh.so":        "-> " + self, // built from this module, as the plugin is
		"sys/class/dmi/id/sys_vendor":    "NVIDIA",
		"sys/class/dmi/id/product_name":  "NVIDIA_DGX_Spark",
		"sys/class/net/enP7s7/ifindex":   "2",
		"sys/class/infiniband_verbs/abi": "6",
	})
	for i, h := range halves {
		m.addHalf(node, i, h)
	}
	return m
}

// addHalf adds a function with its device and interface.
func (m *machine) addHalf(node, i int, h half) {
	a := address(node, i)
	mac := [6]byte{2, 0, 0, 0, byte(node), byte(i)}
	local := netip.MustParsePrefix(fmt.Sprintf("fe80::ff:fe00:%x/64", node<<8|i))
	m.links = append(m.links, topology.Link{
		Name: h.netdev, Index: 3 + i, MTU: 9000, Kind: "device", MAC: mac, Up: true, Carrier: true, Addrs: []netip.Prefix{a, local},
	})
	m.routes = append(m.routes, facts.Route{Dst: a.Masked(), Dev: h.netdev})
	gid := func(p netip.Prefix) string {
		b := p.Addr().As16()
		if p.Addr().Is4() {
			b = netip.AddrFrom16(b).As16()
		}
		var words []string
		for j := 0; j < 16; j += 2 {
			words = append(words, fmt.Sprintf("%02x%02x", b[j], b[j+1]))
		}
		return strings.Join(words, ":")
	}
	put := func(dir string, files map[string]string) {
		for name, text := range files {
			m.files[dir+"/"+name] = text
		}
	}
	put(h.fn(), map[string]string{
		"vendor": "0x15b3", "class": "0x020000", "numa_node": "-1", "aer_dev_fatal": "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0",
		"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "4", "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16",
		"../max_link_speed": "32.0 GT/s PCIe", "../max_link_width": "4",
	})
	put(h.ib(), map[string]string{
		"node_type": "1: CA", "node_guid": fmt.Sprintf("0002:c903:0000:%02x%02x", node, i), "sys_image_guid": fmt.Sprintf("0002:c903:0001:%04x", node),
		"fw_ver": "28.45.4028", "board_id": "NVD0000000087", "device": "-> ../..",
	})
	put(h.ib()+"/ports/1", map[string]string{
		"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "lid": "0x0", "rate": "200 Gb/sec (4X HDR)",
		"gids/0": gid(local), "gid_attrs/types/0": "IB/RoCE v1", "gid_attrs/ndevs/0": h.netdev,
		"gids/1": gid(local), "gid_attrs/types/1": "RoCE v2", "gid_attrs/ndevs/1": h.netdev,
		"gids/2": gid(a), "gid_attrs/types/2": "IB/RoCE v1", "gid_attrs/ndevs/2": h.netdev,
		"gids/3": gid(a), "gid_attrs/types/3": "RoCE v2", "gid_attrs/ndevs/3": h.netdev,
		"counters/port_xmit_data": "1000", "counters/port_rcv_data": "0", "hw_counters/out_of_sequence": "7",
	})
	m.rise[h.ib()+"/ports/1/counters/port_xmit_data"] = "2000000"
	put(h.net(), map[string]string{
		"ifindex": fmt.Sprint(3 + i), "speed": "200000", "mtu": "9000", "phys_port_name": h.cage, "dev_port": "0", "device": "-> ../..",
		"statistics/rx_errors": "0",
	})
	up := strings.TrimPrefix(h.fn(), "sys/")
	m.files["sys/class/infiniband/"+h.device] = "-> ../../" + up + "/infiniband/" + h.device
	m.files["sys/class/net/"+h.netdev] = "-> ../../" + up + "/net/" + h.netdev
	m.files["sys/bus/pci/devices/"+h.pci] = "-> ../../../" + up
}

// link is an interface of the machine.
func (m *machine) link(name string) *topology.Link {
	i := slices.IndexFunc(m.links, func(l topology.Link) bool { return l.Name == name })
	return &m.links[i]
}

// set replaces files: path, contents, path, contents.
func (m *machine) set(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		m.files[pairs[i]] = pairs[i+1]
	}
}

// drop removes all files whose path begins so.
func (m *machine) drop(prefix string) {
	maps.DeleteFunc(m.files, func(path, _ string) bool { return strings.HasPrefix(path, prefix) })
}

// noAdapter takes the RDMA devices away.
func (m *machine) noAdapter() {
	m.drop("sys/class/infiniband")
}

// job makes a job the one that is judged.
func (m *machine) job(environ ...string) {
	m.pid = 4711
	m.files["proc/4711/environ"] = strings.Join(append([]string{"NCCL_NET_PLUGIN=/opt/libnccl-net-mesh.so"}, environ...), "\x00") + "\x00"
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	paths := slices.Sorted(maps.Keys(files))
	for _, path := range paths {
		content, at := files[path], filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		target, isLink := strings.CutPrefix(content, "-> ")
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(target, at)
		case content == "!":
			err = os.Mkdir(at, 0o755)
		default:
			err = os.WriteFile(at, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// known are the facts of the healthy machines, as they travel.
var known struct {
	sync.Mutex
	nodes [2][]byte
}

// look gathers what there is to know of a node, once of one that nothing was done to.
func look(t *testing.T, m *machine, node int) (n facts.Node) {
	t.Helper()
	if !reflect.DeepEqual(m, healthy(t, node)) {
		return m.look(t)
	}
	known.Lock()
	defer known.Unlock()
	if known.nodes[node] == nil {
		b, err := json.Marshal(m.look(t))
		if err != nil {
			t.Fatal(err)
		}
		known.nodes[node] = b
	}
	if err := json.Unmarshal(known.nodes[node], &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// tempDir is in memory where that is to be had: a tree has hundreds of files.
func tempDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "ncclmesh-doctor-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// look gathers what there is to know of the machine.
func (m *machine) look(t *testing.T) facts.Node {
	t.Helper()
	root := tempDir(t)
	write(t, root, m.files)
	return gather.Node(gather.Source{
		Name: m.name, Root: root, Sysfs: filepath.Join(root, "sys"), Environ: m.env, Home: "/home/u", PID: m.pid,
		Links:  func() ([]topology.Link, error) { return slices.Clone(m.links), m.linksErr },
		Routes: func() ([]facts.Route, error) { return m.routes, m.routesErr },
		Carrier: func() (map[string]uint64, error) {
			counts := map[string]uint64{}
			for _, l := range m.links {
				counts[l.Name] = 2
			}
			for name, n := range m.flaps {
				counts[name] = n
				m.flaps[name] += 2 * (n % 2)
			}
			return counts, m.err
		},
		Neighbours: func() ([]facts.Neighbour, error) { return append([]facts.Neighbour{}, m.neighbours...), m.err },
		Shapers:    func() ([]facts.Shaper, error) { return append([]facts.Shaper{}, m.shapers...), m.err },
		Outward:    func() (netip.Addr, error) { return m.outward, m.err },
		Free:       func(string) (uint64, error) { return m.shared, m.err },
		Load:       func(string) error { return m.load },
		Verbs:      m.verbs, Echo: m.hear, Sample: time.Second, Sleep: func(time.Duration) { write(t, root, m.rise) },
	})
}

// hear is what the machine's interfaces hear of each other.
func (m *machine) hear(indices []int) ([][2]int, error) {
	if m.echo == nil {
		return nil, nil
	}
	return m.echo(indices)
}

// fakeVerbs is a library whose devices register as much as they are told to.
type fakeVerbs struct {
	err  error // of the library
	open error // of every device
	most int   // bytes that can be registered; 0: any
	why  error // of what is beyond
	mtu  int
}

func (v *fakeVerbs) Load() (string, error) { return "libfake", v.err }

func (v *fakeVerbs) Open(string) (gather.Device, error) {
	if v.open != nil {
		return nil, v.open
	}
	return v, nil
}

func (v *fakeVerbs) Register(bytes int) error {
	if v.most > 0 && bytes > v.most {
		return v.why
	}
	return nil
}

func (v *fakeVerbs) MTUs() map[uint8]int { return map[uint8]int{1: v.mtu} }
func (v *fakeVerbs) Close() error        { return nil }

var errGone = errors.New("gone for a test")

// twoNodes are the facts of two healthy nodes, after edits of what the kernel shows.
func twoNodes(t *testing.T, edit func(a, b *machine)) *facts.Mesh {
	t.Helper()
	a, b := healthy(t, 0), healthy(t, 1)
	if edit != nil {
		edit(a, b)
	}
	m := &facts.Mesh{Nodes: []facts.Node{look(t, a, 0), look(t, b, 1)}}
	done := facts.Try{Done: true}
	var flows []facts.Flow
	for i, h := range halves {
		from, to := end("a", h), end("b", halves[(i+2)%4])
		flows = append(flows, facts.Flow{RDMA: true, From: from, To: to, Forth: 111.9, Back: 111.7, Both: 194, Allowed: 123})
	}
	m.Flows = facts.Known(flows)
	m.Map = facts.Known(cabled("a", "b"))
	for i := range m.Nodes {
		n, o := &m.Nodes[i], 1-i
		n.Dials = facts.Known([]facts.Dial{{Node: m.Nodes[o].Name, To: fmt.Sprintf("10.0.0.%d:1234", o+1), Try: done}})
		n.Ahead = facts.Known(facts.Ahead{Least: -time.Second, Most: 50 * time.Millisecond})
		var ways []facts.Lookup
		for k := range halves {
			ways = append(ways, facts.Lookup{Node: m.Nodes[o].Name, Addr: address(o, k).Addr(), Dev: halves[(k+2)%4].netdev, Try: done, Dial: done})
		}
		n.Lookups = facts.Known(ways)
	}
	return m
}

// end is a half of a node, as an end of a half of a cable.
func end(node string, h half) facts.End { return facts.End{Node: node, Port: h.netdev} }

// cabled is the map of two nodes whose cages p0 and p1 are cabled crosswise, all halves work.
func cabled(names ...string) topo.Map {
	m := topo.Map{Schema: topo.Schema}
	for _, name := range names {
		n := topo.Node{Name: name, ID: name}
		for _, h := range halves {
			n.Ports = append(n.Ports, topo.Port{Name: h.netdev, Device: h.device + ":1", Cage: "x/" + h.cage, Label: h.cage, State: "ACTIVE", Cable: true, MTU: 9000})
		}
		m.Nodes = append(m.Nodes, n)
	}
	for cage := range 2 {
		c := topo.Cable{Ends: [2]topo.End{{Node: names[0], Cage: halves[2*cage].cage}, {Node: names[1], Cage: halves[2-2*cage].cage}}, MTU: 9000}
		for i := range 2 {
			c.Halves = append(c.Halves, topo.Half{Ports: [2]string{halves[2*cage+i].netdev, halves[2-2*cage+i].netdev}, MTU: [2]int{9000, 9000}, State: topo.RDMA})
		}
		m.Cables = append(m.Cables, c)
	}
	return m
}
