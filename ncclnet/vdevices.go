package ncclnet

import (
	"cmp"
	"fmt"

	"ncclmesh/transport/topology"
)

// A Caller describes the NCCL that opens the network.
type Caller struct {
	Interface int     // version of the plugin interface that it uses
	Version   int     // as ncclGetVersion returns it; 0 if that is not available
	Profiler  uintptr // its callback for profiler events; or 0
}

// A vDevice is the mesh as one of the virtual devices that are reported to NCCL. Each one transfers data over all
// ports: virtual devices only influence NCCL's topology search.
//
// The search makes one channel for a device unless it is faster than 25 GB/s, and doubles that number. Two channels are
// too few as the upper limit for a tuner, because a channel's kernel copies a quarter of the bandwidth of two functions
// of a GB10's adapter. So if this plugin's tuner is used, and only then, NCCL gets a device for each 3 GB/s, which is a
// step of its scale of speeds, up to the eight that make 16 channels. Without a tuner, that many channels make medium
// sizes slower. Two devices with the same GUID and port would count as one.
//
// The path is that of the device that NCCL assumes for a channel. If the ports are in several slots, no path is right,
// and the four PCIe lanes of one slot would be NCCL's limit for all. Without a path NCCL attaches the device to the
// processor, where the slots are attached too.
type vDevice struct {
	name    string
	pciPath string // "": attached to the processor
	mbps    int
}

const (
	vDeviceMbps = 24000 // 3 GB/s
	maxVDevices = 8

	// nearestBonus makes the first virtual device the nearest for NCCL's search, by 1 MB/s.
	nearestBonus = 8

	nccl2_21 = 22100
	nccl2_29 = 22902
)

// singleDevice returns the mesh as one device.
func singleDevice(d topology.Device) []vDevice { return []vDevice{{d.Name, pathOf(d), d.Mbps}} }

// pathOf returns the PCI function at which NCCL is to see a device: the one that is used for GPU memory, because NCCL
// decides by the function where GPU memory can be used, and how it exports that memory.
func pathOf(d topology.Device) string { return cmp.Or(d.DataDirect, d.PCIPath) }

// vDevicesFor returns the virtual devices to report to a caller, on a node with these GPUs. tuned reports that the
// caller uses this plugin's tuner. There is only one device over TCP, because the processor is the limit; with several
// GPUs, because the rank's GPU is not known yet; and if the GPU is on another NUMA node than a port.
func vDevicesFor(d topology.Device, gpus []topology.Slot, tuned bool, c Caller) []vDevice {
	n := min(d.Payload/vDeviceMbps, maxVDevices)
	if !tuned || d.TCP || len(gpus) != 1 || n < 2 {
		return singleDevice(d)
	}
	central := len(d.Slots) > 1
	for _, s := range d.Slots {
		if s.NUMA != gpus[0].NUMA {
			return singleDevice(d)
		}
		central = central && s.OnlyCPU(gpus[0])
	}
	path := pathOf(d)
	if central && d.DataDirect == "" {
		path = ""
	}
	vDevices := make([]vDevice, n)
	for i := range vDevices {
		vDevices[i] = vDevice{fmt.Sprintf("mesh%d", i), path, d.Payload / n}
	}
	if !c.agreesOnChannels() {
		vDevices[0].mbps += nearestBonus
	}
	return vDevices
}

// agreesOnChannels reports whether both ranks of a send and its receive use the same number of channels. They do from
// NCCL 2.29.2 on. Before, each rank uses the number of its own nearest devices, and hangs if its peer has another
// number. If one device is nearer than the rest, that number is the one of a single device.
func (c Caller) agreesOnChannels() bool { return c.Interface >= 12 || c.Version >= nccl2_29 }

// looksForTuner reports whether NCCL looks for a tuner in the network's library: from 2.21 on. Interface version 8 is
// not enough, because 2.19 and 2.20 have it too.
func (c Caller) looksForTuner() bool { return c.Interface >= 9 || c.Version >= nccl2_21 }

// shown is the virtual devices that are reported for a mesh.
type shown struct {
	of       *mesh
	vDevices []vDevice
}

// show returns the virtual devices of a mesh. It determines them once while the mesh is open.
func (n *Net) show(m *mesh, c Caller) []vDevice {
	n.showing.Lock()
	defer n.showing.Unlock()
	if s := n.shown.Load(); s != nil && s.of == m {
		return s.vDevices
	}
	other := n.process.host.Getenv("NCCL_TUNER_PLUGIN")
	tuned := c.looksForTuner() && !m.tuning.Off && (other == "" || other == n.process.host.Getenv("NCCL_NET_PLUGIN"))
	var gpus []topology.Slot
	if tuned && !m.device.TCP { // otherwise the GPUs have no effect
		gpus = m.net.GPUs()
	}
	vDevices := vDevicesFor(m.device, gpus, tuned, c)
	n.shown.Store(&shown{m, vDevices})
	if len(vDevices) > 1 {
		n.log.Info(describeVDevices(vDevices))
	}
	if line := m.bypass(c, n.process.host.Getenv); line != "" {
		n.log.Info(line)
	}
	return vDevices
}

// openVDevices returns the virtual devices of the open mesh, or nil if NCCL has not opened it.
func (n *Net) openVDevices() []vDevice {
	m, s := n.process.mesh.Load(), n.shown.Load()
	if m == nil || s == nil || s.of != m {
		return nil
	}
	return s.vDevices
}

func describeVDevices(vDevices []vDevice) string {
	where := "on " + vDevices[0].pciPath
	if vDevices[0].pciPath == "" {
		where = "at the processor"
	}
	return fmt.Sprintf("NCCL sees the mesh as %d devices of %.1f GB/s %s, which make %d channels to choose from", len(vDevices), float64(vDevices[0].mbps)/8000, where, 2*len(vDevices))
}
