package ncclnet

import (
	"fmt"

	"ncclmesh/transport/lane"
)

// Fixed properties of the devices that are reported to NCCL.
const (
	NCCL_PTR_HOST   = 1
	NCCL_PTR_CUDA   = 2 // GPU memory
	NCCL_PTR_DMABUF = 4 // GPU memory by a DMA-BUF

	MaxRecvs = 8 // maximum number of receives that one irecv may group

	maxComms            = 65536
	maxP2pBytes         = 1 << 30 // NCCL never requests more in one isend or irecv
	maxCollBytes        = 1 << 30
	maxMultiRequestSize = 1
	unspecified         = -1 // rail and plane
)

// Compile-time check: connections support what the properties promise.
const (
	_ = uint(lane.MaxSubs-MaxRecvs) + uint(MaxRecvs-lane.MaxSubs)
	_ = uint(lane.MaxChunk-maxP2pBytes) + uint(maxP2pBytes-lane.MaxChunk)
	_ = uint(maxRequests - lane.Window)
)

// Properties describes a device with the fields of NCCL's ncclNetProperties.
type Properties struct {
	Name                string
	PCIPath             string // "" if there is none
	GUID                uint64
	PtrSupport          int
	RegIsGlobal         bool
	ForceFlush          bool
	Speed               int // Mb/s
	Port                int
	Latency             float32 // µs
	MaxComms            int
	MaxRecvs            int
	NetDeviceType       int
	NetDeviceVersion    int
	MaxP2pBytes         uint64
	MaxCollBytes        uint64
	MaxMultiRequestSize int
	RailID, PlaneID     int16
}

// Devices returns the number of devices. Each device is the whole mesh: NCCL chooses a device without regard to the
// peer, while in a mesh the peer determines the ports.
func (n *Net) Devices() (int, Result) {
	vDevices := n.openVDevices()
	if vDevices == nil {
		return 0, n.result("devices", errNotOpen)
	}
	return len(vDevices), ncclSuccess
}

// Properties returns the properties of device dev.
func (n *Net) Properties(dev int) (Properties, Result) {
	m, vDevices := n.process.mesh.Load(), n.openVDevices()
	if m == nil || vDevices == nil {
		return Properties{}, n.result("getProperties", errNotOpen)
	}
	if err := checkDevice(dev, len(vDevices)); err != nil {
		return Properties{}, n.result("getProperties", err)
	}
	return Properties{
		Name:       vDevices[dev].name,
		PCIPath:    vDevices[dev].pciPath,
		GUID:       m.device.GUID,
		PtrSupport: m.ptrSupport(),
		// A GPU that sees a receive completed over one way does not thereby see the data that came over another.
		ForceFlush: m.device.DataDirect != "",
		Speed:      vDevices[dev].mbps,
		Port:       dev + 1, // devices with the same port number would share one speed
		// NCCL adds this value to its own model of a step between nodes, which is 5 µs with LL and 14 with Simple,
		// fitted to InfiniBand. It matters where no tuner is used. Over RDMA on a cable a step takes less, 3.1 and 5.4
		// by published figures (tuner.Spark). The value is 0 because it cannot be negative, and a higher one would make
		// NCCL prefer trees and LL, which it already uses for too large messages (docs/tuner.md, the second table). For
		// TCP a value is added. NCCL 2.26.6 and later truncate it to whole µs, and count it twice for Simple.
		Latency:             m.device.LatencyUs,
		MaxComms:            maxComms,
		MaxRecvs:            MaxRecvs,
		MaxP2pBytes:         maxP2pBytes,
		MaxCollBytes:        maxCollBytes,
		MaxMultiRequestSize: maxMultiRequestSize,
		RailID:              unspecified,
		PlaneID:             unspecified,
	}, ncclSuccess
}

var errNotOpen = fmt.Errorf("%w: called without a successful init", errUsage)

func checkDevice(dev, devices int) error {
	if dev < 0 || dev >= devices {
		return fmt.Errorf("%w: device %d; there are %d, counted from 0", errArgument, dev, devices)
	}
	return nil
}
