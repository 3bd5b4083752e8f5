package topology

// Device is the description of the node for NCCL: one network device, regardless of the number of ports.
type Device struct {
	Name    string
	Mbps    int
	PCIPath string // "" if the fastest port is virtual
	GUID    uint64
	Payload int    // data rate in Mb/s, without headers
	Slots   []Slot // slots of the usable ports
	TCP     bool   // at least one port has no RDMA device
	// LatencyUs is the latency to report to NCCL in microseconds: how much longer a message takes than over the RDMA
	// network of NCCL's cost model.
	LatencyUs float32
	// DataDirect is the PCI function by which the fastest port reaches GPU memory that is registered by a DMA-BUF; ""
	// if that is the usual one.
	DataDirect string
}

// A Slot is the location of a device.
type Slot struct {
	PCIPath string // of a function in it; "" if it is virtual
	NUMA    int    // -1 if unknown
}

// Shares of the rate of a PCIe link, and of a cable, that remain for data after headers, in thousandths. In a
// measurement, a function of a GB10's adapter transferred 111.7 of 126 Gb/s, and two functions behind a cable of 200
// Gb/s transferred 196.
const (
	pciPayload   = 886
	cablePayload = 980
)

// Additional latency of a message over TCP, compared with RDMA: 8 bytes take 7.8 µs over TCP and 3.6 over verbs (make
// bench). The 8-byte all-reduce of unmodified NCCL over TCP on three nodes agrees: it takes 49 to 64 µs with LL, and 72
// to 78 with Simple; NCCL's model computes 43 and 96 from this value. With 30 it used LL up to 512 KiB.
const tcpLatencyUs = 4

// Aggregate describes the ports as one device, with the combined speed of all usable ports. Functions in one PCIe slot
// share the slot, and functions of one connector share the cable. Therefore the speed is the smaller of two sums: over
// the slots, each limited by its PCIe link, and over the connectors, each limited by its cable. If no port is usable,
// the result is for all ports. The GUID does not depend on which ports are usable.
func Aggregate(ports []Port) Device {
	dev := Device{Name: "mesh0"}
	active := filter(ports, (*Port).Usable)
	if len(active) == 0 {
		active = ports
	}

	type slot struct {
		cages map[string]int
		pci   int
	}
	slots := make(map[string]*slot)
	cages := make(map[string]int)
	fastest := 0
	for i := range active {
		p := &active[i]
		link := p.LinkMbps
		if link <= 0 {
			link = p.Mbps()
		}
		cages[p.Cage()] = max(cages[p.Cage()], link)
		s := slots[p.Attachment()]
		if s == nil {
			s = &slot{cages: make(map[string]int)}
			slots[p.Attachment()] = s
			dev.Slots = append(dev.Slots, Slot{p.PCIPath, p.NUMA})
		}
		s.cages[p.Cage()] = max(s.cages[p.Cage()], link)
		s.pci = max(s.pci, p.PCIMbps)
		if p.Mbps() > fastest {
			fastest, dev.PCIPath = p.Mbps(), p.PCIPath
		}
		if p.Device == "" {
			dev.TCP, dev.LatencyUs = true, tcpLatencyUs
		}
	}

	overSlots, payload := 0, 0
	for _, s := range slots {
		mbps := sum(s.cages)
		data := mbps * cablePayload / 1000
		if s.pci > 0 {
			mbps, data = min(mbps, s.pci), min(data, s.pci*pciPayload/1000)
		}
		overSlots, payload = overSlots+mbps, payload+data
	}
	dev.Mbps, dev.Payload = min(overSlots, sum(cages)), min(payload, sum(cages)*cablePayload/1000)

	for _, p := range ports {
		guid := p.SysImageGUID
		if guid == 0 {
			guid = p.NodeGUID
		}
		if guid != 0 && (dev.GUID == 0 || guid < dev.GUID) {
			dev.GUID = guid
		}
	}
	return dev
}

func sum(m map[string]int) int {
	total := 0
	for _, v := range m {
		total += v
	}
	return total
}
