package nccl

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"ncclmesh/tests/fabric"
)

// A function of a GB10's adapter: two are behind each cage, one on each of two PCIe
// slots of four lanes.
type function struct{ device, iface, pci string }

var gb10 = map[string][2]function{
	"p0": {{"rocep1s0f0", "enp1s0f0np0", "0000:01:00.0"}, {"roceP2p1s0f0", "enP2p1s0f0np0", "0002:01:00.0"}},
	"p1": {{"rocep1s0f1", "enp1s0f1np1", "0000:01:00.1"}, {"roceP2p1s0f1", "enP2p1s0f1np1", "0002:01:00.1"}},
}

// gpu is where a GB10 has its GPU.
const gpu = "devices/pci000f:00/000f:00:00.0/000f:01:00.0"

// GB10 is the topology of such machines in a ring: cage p0 of each is cabled to cage
// p1 of the next, and each function of a cable is a subnet. Two machines have one
// cable.
func GB10(nodes ...string) string {
	var ports, links strings.Builder
	subnet := byte(100)
	for i, from := range nodes {
		to := nodes[(i+1)%len(nodes)]
		if len(nodes) == 2 && i == 1 {
			break
		}
		for half := range 2 {
			net := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, subnet, 0}), 24)
			subnet++
			var ends [2]string
			for e, at := range []struct{ node, cage string }{{from, "p0"}, {to, "p1"}} {
				f := gb10[at.cage][half]
				ends[e] = at.node + ":" + f.device
				fmt.Fprintf(&ports, "port %s %s netdev %s addr %v/24 cage %s pci %s pcie 32.0x4 speed 200G image nic-%s\n",
					at.node, f.device, f.iface, fabric.Host(net, e+1), at.cage, f.pci, at.node)
			}
			fmt.Fprintf(&links, "link %s %s mtu 9000\n", ends[0], ends[1])
		}
	}
	return ports.String() + links.String()
}

var (
	busID  = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$`)
	domain = regexp.MustCompile(`^pci[0-9a-f]{4}:[0-9a-f]{2}$`)
)

// AddGPUs puts a GB10's GPU into the tree of every node, and what NCCL reads the PCI bus by.
func AddGPUs(f *fabric.Fabric) error { return AddGPUsAt(f, gpu) }

// AddGPUsAt is AddGPUs with the GPU at a path below /sys, whose last part the ranks have as FAKEGPU_BUSID.
func AddGPUsAt(f *fabric.Fabric, gpu string) error {
	for _, node := range f.Nodes {
		sys := filepath.Join(f.Dir, "nodes", node, "sys")
		class := "0x030000"
		for dir := gpu; busID.MatchString(filepath.Base(dir)); dir, class = filepath.Dir(dir), "0x060400" { // it, and the bridges above
			for name, text := range map[string]string{
				"class": class, "vendor": "0x10de", "device": "0x2e12", "numa_node": "-1",
				"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16",
			} {
				if err := write(filepath.Join(sys, dir, name), text); err != nil {
					return err
				}
			}
		}
		if err := errors.Join(os.MkdirAll(filepath.Join(sys, "bus/pci"), 0o755), linkBuses(sys)); err != nil {
			return err
		}
	}
	return nil
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text+"\n"), 0o644)
}

// linkBuses gives every PCI device its subsystem and every bus its entry in the class.
func linkBuses(sys string) error {
	return filepath.WalkDir(filepath.Join(sys, "devices"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !busID.MatchString(d.Name()) {
			return err
		}
		parent := filepath.Dir(path)
		if base := filepath.Base(parent); !busID.MatchString(base) && !domain.MatchString(base) {
			return nil
		}
		bus := d.Name()[:len("0000:00")]
		if err := os.MkdirAll(filepath.Join(parent, "pci_bus", bus), 0o755); err != nil {
			return err
		}
		for from, to := range map[string]string{
			filepath.Join(path, "subsystem"):                filepath.Join(sys, "bus/pci"),
			filepath.Join(sys, "bus/pci/devices", d.Name()): path,
			filepath.Join(sys, "class/pci_bus", bus):        filepath.Join(parent, "pci_bus", bus),
		} {
			if err := link(from, to); err != nil {
				return err
			}
		}
		return nil
	})
}

// link makes a relative link, as the kernel's are.
func link(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(from), to)
	if err != nil {
		return err
	}
	if err := os.Symlink(target, from); err != nil && !os.IsExist(err) {
		return err
	}
	return nil
}
