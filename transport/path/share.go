package path

import (
	"ncclmesh/transport/lane"
)

// share chooses the lanes of a connection among validated paths, until they use the full speed of both nodes'
// ports. It uses no port twice as long as there are unused ones: a cable with two ports in one subnet gives
// four paths and two lanes. The weight of a lane is the speed that is left of both of its ports.
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
			continue // the remaining speed is too low for a lane
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

// streams returns how many lanes a connection has on a path. One processor moves about 10 Gb/s through a
// socket, so a faster path has several sockets.
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
