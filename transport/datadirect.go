package transport

import "ncclmesh/transport/lane/verbs"

// useDataDirect has all RDMA ports reach GPU memory by the PCIe functions that their adapters have for that, if each has
// one, and otherwise none. NCCL exports a GPU's memory in one way for all ports of the process.
func (t *Transport) useDataDirect() {
	ports := t.verbsPorts()
	for _, p := range ports {
		if p.DataDirect() == "" {
			return
		}
	}
	for _, p := range ports {
		p.UseDataDirect()
	}
	t.dataDirect = len(ports) > 0
}

// dataDirectPath returns the path of the function by which the fastest usable port reaches GPU memory, if ports use such
// functions; otherwise "". If no port is usable, it is the fastest of all.
func (t *Transport) dataDirectPath() string {
	if !t.dataDirect {
		return ""
	}
	var best *verbs.Port
	for _, p := range t.verbsPorts() {
		if best == nil {
			best = p
		} else if a, b := p.Now(), best.Now(); a.Usable() && !b.Usable() || a.Usable() == b.Usable() && a.Mbps() > b.Mbps() {
			best = p
		}
	}
	return best.DataDirect()
}
