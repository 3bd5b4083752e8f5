package topology

// Device is what NCCL is told of the node: one network device, whatever the number of ports.
type Device struct {
	Name    string
	Mbps    int
	PCIPath string // "" when the fastest port is virtual
	GUID    uint64
	// LatencyUs is what a message takes longer than over the RDMA network that NCCL's own cost model has in mind.
	LatencyUs float32
}

// Latency of a message over TCP beyond RDMA's: two passes through a network stack.
const tcpLatencyUs = 30

// Aggregate describes the ports as one device, with the speed that all of its active ports carry together. Functions
// in one PCIe slot share the slot, and functions of one connector share the cable, so the speed is the smaller of the
// two sums: over the slots, each limited by its PCIe link, and over the connectors, each as fast as its link. With no
// active port it is what the ports could carry. The GUID does not depend on which ports are active.
func Aggregate(ports []Port) Device {
	dev := Device{Name: "mesh0"}
	active := filter(ports, func(p *Port) bool { return p.Active })
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
		}
		s.cages[p.Cage()] = max(s.cages[p.Cage()], link)
		s.pci = max(s.pci, p.PCIMbps)
		if p.Mbps() > fastest {
			fastest, dev.PCIPath = p.Mbps(), p.PCIPath
		}
		if p.Device == "" {
			dev.LatencyUs = tcpLatencyUs
		}
	}

	overSlots := 0
	for _, s := range slots {
		mbps := sum(s.cages)
		if s.pci > 0 {
			mbps = min(mbps, s.pci)
		}
		overSlots += mbps
	}
	dev.Mbps = min(overSlots, sum(cages))

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
