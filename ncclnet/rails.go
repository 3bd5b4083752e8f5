package ncclnet

import (
	"fmt"

	"ncclmesh/transport/topology"
)

// A Caller is what is known of the NCCL that opens the network.
type Caller struct {
	Interface int     // version of the interface that it speaks
	Version   int     // as ncclGetVersion has it, 0 when it cannot be asked
	Profiler  uintptr // where it takes its profiler's events; or 0
}

// A rail is the mesh as one of the devices that NCCL is shown. All carry whatever
// they are given over all ports: they are a way of speaking to NCCL's topology
// search.
//
// The search makes one channel of a device unless it is faster than 25 GB/s, and
// doubles that. Two channels are no upper limit for a tuner to choose below, since
// a channel's kernel copies a quarter of what two functions of a GB10's adapter
// carry. So where a tuner of ours chooses, and only there, NCCL sees a device for
// each 3 GB/s, which is a step of its scale of speeds, up to the eight that make 16
// channels: without a tuner as many slow middle sizes down. Two devices of the same
// GUID and port would count as one.
//
// The path is of the device that a channel is taken to pass. Where the ports are in
// several slots none is true, and the one slot's four lanes would be NCCL's limit for
// all; without a path the device is at the processor, as the slots are.
type rail struct {
	name    string
	pciPath string // "" when it is at the processor
	mbps    int
}

const (
	railMbps = 24000 // 3 GB/s
	maxRails = 8

	// nearer makes the first rail the nearest in NCCL's eyes, by 1 MB/s.
	nearer = 8

	nccl2_21 = 22100
	nccl2_29 = 22902
)

// single is the mesh as one device.
func single(d topology.Device) []rail { return []rail{{d.Name, d.PCIPath, d.Mbps}} }

// railsFor says how the mesh is shown to a caller that has our tuner, when it has,
// on a node with these GPUs. Over TCP the processor is the limit, and a device is
// enough; which of several GPUs the rank will have nobody knows yet; and one that is
// on another NUMA node than a port is not beside it.
func railsFor(d topology.Device, gpus []topology.Slot, tuned bool, c Caller) []rail {
	n := min(d.Payload/railMbps, maxRails)
	if !tuned || d.TCP || len(gpus) != 1 || n < 2 {
		return single(d)
	}
	central := len(d.Slots) > 1
	for _, s := range d.Slots {
		if s.NUMA != gpus[0].NUMA {
			return single(d)
		}
		central = central && s.OnlyCPU(gpus[0])
	}
	path := d.PCIPath
	if central {
		path = ""
	}
	rails := make([]rail, n)
	for i := range rails {
		rails[i] = rail{fmt.Sprintf("mesh%d", i), path, d.Payload / n}
	}
	if !c.agrees() {
		rails[0].mbps += nearer
	}
	return rails
}

// agrees reports whether the ranks agree on how many channels a send and its receive
// have. They do from 2.29.2 on; before, each rank goes by its own devices, as many as
// are the nearest, and hangs if its peer has others. One device that is nearer than
// the rest leaves that number at what it is with a single one.
func (c Caller) agrees() bool { return c.Interface >= 12 || c.Version >= nccl2_29 }

// looksForTuner reports whether NCCL looks for a tuner in the network's library:
// from 2.21 on, which has version 8 of the interface, as 2.19 and 2.20 do.
func (c Caller) looksForTuner() bool { return c.Interface >= 9 || c.Version >= nccl2_21 }

// shown is what NCCL sees of a mesh.
type shown struct {
	of    *mesh
	rails []rail
}

// show settles how a mesh is shown, once for as long as it is open.
func (n *Net) show(m *mesh, c Caller) []rail {
	n.showing.Lock()
	defer n.showing.Unlock()
	if s := n.shown.Load(); s != nil && s.of == m {
		return s.rails
	}
	other := n.process.host.Getenv("NCCL_TUNER_PLUGIN")
	tuned := c.looksForTuner() && !m.tuning.Off && (other == "" || other == n.process.host.Getenv("NCCL_NET_PLUGIN"))
	var gpus []topology.Slot
	if tuned && !m.device.TCP { // else they decide nothing
		gpus = m.net.GPUs()
	}
	rails := railsFor(m.device, gpus, tuned, c)
	n.shown.Store(&shown{m, rails})
	if len(rails) > 1 {
		n.log.Info(describeRails(rails))
	}
	return rails
}

// railsShown are those of the mesh that is open, nil when NCCL has not opened it.
func (n *Net) railsShown() []rail {
	m, s := n.process.mesh.Load(), n.shown.Load()
	if m == nil || s == nil || s.of != m {
		return nil
	}
	return s.rails
}

func describeRails(rails []rail) string {
	where := "on " + rails[0].pciPath
	if rails[0].pciPath == "" {
		where = "at the processor"
	}
	return fmt.Sprintf("NCCL sees the mesh as %d devices of %.1f GB/s %s, which make %d channels to choose from", len(rails), float64(rails[0].mbps)/8000, where, 2*len(rails))
}
