package transport

import "ncclmesh/transport/lane/verbs"

// useDataDirect has all RDMA ports reach GPU memory by the PCIe functions that their adapters have for that, if each has
// one, and otherwise none. NCCL exports a GPU's memory in one way for all ports of the process.
func (t *Transport) useDataDirect() {
	var all []*verbs.Port
	for _, p := range t.ports {
		if v, ok := p.(*verbs.Port); ok {
			if v.DataDirect() == "" {
				return
			}
			all = append(all, v)
		}
	}
	for _, p := range all {
		p.UseDataDirect()
	}
	t.dataDirect = len(all) > 0
}

// dataDirectPath returns the path of the function by which the fastest usable port reaches GPU memory, if ports use such
// functions; otherwise "". If no port is usable, it is the fastest of all.
func (t *Transport) dataDirectPath() (path string) {
	fastest, usable := -1, false
	for _, p := range t.ports {
		v, ok := p.(*verbs.Port)
		if !ok || !t.dataDirect {
			continue
		}
		if now := p.Now(); now.Usable() == usable && now.Mbps() > fastest || now.Usable() && !usable {
			path, fastest, usable = v.DataDirect(), now.Mbps(), now.Usable()
		}
	}
	return path
}
