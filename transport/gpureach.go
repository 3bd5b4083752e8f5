package transport

// A GPUReach says what of this process can reach GPU memory.
type GPUReach struct {
	PeerMemory bool     // adapters of the machine can register GPU memory by its address
	NoDMABufs  []string // RDMA devices in use that cannot register a DMA-BUF
	TCP        bool     // a connection may get lanes of sockets, whose bytes the processor moves
}

// GPUReach returns what of this process can reach GPU memory. Unless only RDMA is allowed, lanes of sockets count as possible even
// where no interface can carry them now: that depends on one setting, and not on interfaces that happen to be up. The answer does not change while the transport is open.
func (t *Transport) GPUReach() GPUReach {
	r := GPUReach{PeerMemory: t.opts.Machine.Source.PeerMemory(), TCP: t.opts.Transport != TransportRDMA}
	for _, p := range t.verbsPorts() {
		if !p.TakesDMABufs() {
			r.NoDMABufs = append(r.NoDMABufs, p.Now().Device)
		}
	}
	for _, p := range t.ports {
		r.TCP = r.TCP || p.Traits().HostOnly
	}
	return r
}
