package path

import (
	"ncclmesh/transport/lane"
)

// share chooses among proved paths the lanes of a connection: as many as it takes
// to use both nodes' ports up, none twice as long as there are others. Two halves
// of a cable in one subnet give four paths and two lanes. The weight of a lane, what it
// may take of both ports, is decided here.
func (f *Finder) share(paths []validated) []lane.Spec {
	local, remote := map[int]float64{}, map[int]float64{}
	for _, p := range paths {
		local[p.pair[0]] = float64(p.Port.Now().Mbps())
		remote[p.pair[1]] = float64(max(1, p.Peer.SpeedMbps))
	}
	from, to := map[int]bool{}, map[int]bool{} // ports in use
	var lanes []lane.Spec
	for _, p := range paths {
		a, b := local[p.pair[0]], remote[p.pair[1]]
		full := min(float64(p.Port.Now().Mbps()), float64(max(1, p.Peer.SpeedMbps)))
		if p.Route != nil {
			full = min(full, p.Weight)
		}
		w := min(a, b, full)
		if w < full/8 {
			continue // what is left is not worth a lane
		}
		local[p.pair[0]], remote[p.pair[1]] = a-w, b-w
		from[p.pair[0]], to[p.pair[1]] = true, true
		if len(from) > lane.MaxDomains || len(to) > lane.MaxDomains {
			break
		}
		l := p.Spec
		n := f.streams(p)
		l.Weight = w / float64(n)
		for range n {
			if len(lanes) < lane.MaxParts {
				lanes = append(lanes, l)
			}
		}
	}
	return lanes
}

// streams is how many lanes a connection has on a path: one processor moves about
// 10 Gb/s through a socket without effort, and more streams use more of them.
func (f *Finder) streams(p validated) int {
	switch p.Port.Kind() {
	case lane.Verbs:
		return f.QPsPerPath
	case lane.Circuit:
		return 1
	}
	if f.TCPStreams > 0 {
		return f.TCPStreams
	}
	switch mbps := min(p.Port.Now().Mbps(), int(p.Peer.SpeedMbps)); {
	case mbps <= 10000:
		return 1
	case mbps <= 25000:
		return 2
	}
	return 4
}
