package topology

// Device is what NCCL is told of the node: one network device, whatever the number of ports.
type Device struct {
	Name    string
	Mbps    int
	PCIPath string // "" when the fastest port is virtual
	GUID    uint64
	Payload int    // of Mbps, what is left for data
	Slots   []Slot // that the usable ports are in
	TCP     bool   // a port has no RDMA device
	// LatencyUs is what a message takes longer than over the RDMA network that NCCL's own cost model has in mind.
	LatencyUs float32
}

// A Slot is where a device is attached.
type Slot struct {
	PCIPath string // of a function in it, "" when it is virtual
	NUMA    int    // -1 when unknown
}

// What headers leave of a PCIe link's rate and of a cable's, in thousandths. A function of a GB10's adapter was
// measured to carry 111.7 of 126 Gb/s, two behind a cable of 200 Gb/s 196.
const (
	pciPayload   = 886
	cablePayload = 980
)

// Latency of a message over TCP beyond RDMA's: 8 bytes take 7.8 µs where they take 3.6 over verbs (make bench). Unmodified
// NCCL's 8-byte all-reduce over TCP on three nodes agrees: 49 to 64 µs with LL, 72 to 78 with Simple; its model makes 43
// and 96 of it. With 30 it stayed with LL up to 512 KiB.
const tcpLatencyUs = 4

// Aggregate describes the ports as one device, with the speed that all of its usable ports carry together. Functions
// in one PCIe slot share the slot, and functions of one connector share the cable, so the speed is the smaller of the
// two sums: over the slots, each limited by its PCIe link, and over the connectors, each as fast as its link. With no
// usable port it is what the ports could carry. The GUID does not depend on which ports are.
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
