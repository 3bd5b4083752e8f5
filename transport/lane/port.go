package lane

import "slices"

// PortAt is the index, among a node's ports, of the one for lanes of a kind on the cable of
// another, or -1: an interface that is an RDMA port's may be a port of its own, too.
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
