package ncclnet

import (
	"fmt"

	"ncclmesh/transport/lane"
)

// What NCCL is told of the one device, beside what the node's ports say.
const (
	NCCL_PTR_HOST = 1

	MaxRecvs = 8 // receives that one irecv may group

	maxComms            = 65536
	maxP2pBytes         = 1 << 30 // NCCL never asks for more in one isend or irecv
	maxCollBytes        = 1 << 30
	maxMultiRequestSize = 1
	unspecified         = -1 // rail and plane
)

// What NCCL is promised is what connections can do.
const (
	_ = uint(lane.MaxSubs-MaxRecvs) + uint(MaxRecvs-lane.MaxSubs)
	_ = uint(lane.MaxChunk-maxP2pBytes) + uint(maxP2pBytes-lane.MaxChunk)
	_ = uint(maxRequests - lane.Window)
)

// Properties describes a device in the terms of NCCL's ncclNetProperties.
type Properties struct {
	Name                string
	PCIPath             string // "" when there is none
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

// Devices returns how many devices there are. Each is the whole mesh: NCCL chooses
// devices without regard to the peer; here the peer decides the ports.
func (n *Net) Devices() (int, Result) {
	rails := n.railsShown()
	if rails == nil {
		return 0, n.result("devices", errNotOpen)
	}
	return len(rails), ncclSuccess
}

// Properties describes device dev.
func (n *Net) Properties(dev int) (Properties, Result) {
	m, rails := n.process.mesh.Load(), n.railsShown()
	if m == nil || rails == nil {
		return Properties{}, n.result("getProperties", errNotOpen)
	}
	if err := checkDevice(dev, len(rails)); err != nil {
		return Properties{}, n.result("getProperties", err)
	}
	return Properties{
		Name:    rails[dev].name,
		PCIPath: rails[dev].pciPath,
		GUID:    m.device.GUID,
		// Host memory only. On GB10 the GPU's memory is not coherent with the
		// network adapter, and elsewhere GPUDirect is yet to be proved.
		PtrSupport: NCCL_PTR_HOST,
		Speed:      rails[dev].mbps,
		Port:       dev + 1, // devices with the same share one speed
		// What NCCL adds to its own model of a step between nodes: 5 µs with LL and 14
		// with Simple, fitted to InfiniBand. It decides where no tuner does. Over RDMA on
		// a cable a step takes less, 3.1 and 5.4 by published figures (tuner.Spark): 0,
		// since less cannot be said, and more would draw NCCL further to trees and to LL,
		// which it holds on to for too long as it is (docs/tuner.md, the second table). TCP
		// adds to it. NCCL 2.26.6 and later cut it to whole µs; it counts twice for Simple.
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
