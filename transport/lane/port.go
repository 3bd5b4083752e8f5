package lane

import "slices"

// PortAt returns the index of the port for lanes of kind k that uses the same network interface as port index,
// or -1 if there is none. It may be another port, because an RDMA port's interface can also be a TCP port.
func PortAt(ports []Port, index uint8, k Kind) int {
	if int(index) >= len(ports) {
		return -1
	}
	p := ports[index]
	switch {
	case p.Kind() == k:
		return int(index)
	case p.Now().Netdev == "":
		return -1
	}
	return slices.IndexFunc(ports, func(o Port) bool { return o.Kind() == k && o.Now().Netdev == p.Now().Netdev })
}
