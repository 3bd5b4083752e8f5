package topology

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
)

// nvidia is NVIDIA's PCI vendor ID.
const nvidia = "0x10de"

// GPUs returns the locations of the node's NVIDIA GPUs, or none if sysfs does not show them.
func GPUs(root string) []Slot {
	s, err := openSysfs(cmp.Or(root, "/sys"))
	if err != nil {
		return nil
	}
	var gpus []Slot
	functions, _ := s.list("bus/pci/devices")
	for _, f := range functions {
		dir := filepath.Join("bus/pci/devices", f)
		if s.text(dir, "vendor") != nvidia || !strings.HasPrefix(s.text(dir, "class"), "0x03") {
			continue
		}
		if real, err := filepath.EvalSymlinks(s.path(dir)); err == nil {
			gpus = append(gpus, Slot{real, s.numa(real)})
		}
	}
	return gpus
}

// peerMemory are the files that exist while a kernel module lets network adapters register GPU memory by its address: the
// ones of MLNX_OFED's modules and of the driver's own, nvidia-peermem.
var peerMemory = []string{
	"kernel/mm/memory_peers/nv_mem/version",
	"kernel/mm/memory_peers/nv_mem_nc/version",
	"module/nvidia_peermem/version",
}

// PeerMemory reports whether network adapters of this machine can register GPU memory by its address.
func PeerMemory(root string) bool {
	s, err := openSysfs(cmp.Or(root, "/sys"))
	return err == nil && slices.ContainsFunc(peerMemory, func(file string) bool { return s.exists(file) })
}

// OnlyCPU reports whether the devices in two slots are connected only through the processor.
func (s Slot) OnlyCPU(other Slot) bool {
	a, b := rootPort(s.PCIPath), rootPort(other.PCIPath)
	return a != "" && b != "" && a != b
}

// rootPort returns the highest PCI function above another.
func rootPort(function string) string {
	top := ""
	for dir := function; isPCIAddr(filepath.Base(dir)); dir = filepath.Dir(dir) {
		top = dir
	}
	return top
}
