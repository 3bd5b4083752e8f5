package path

import (
	"sync"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/lane"
)

// Way is a direct way to a peer over which packets were seen to pass.
type Path struct {
	lane.Spec
	Local, Remote int // ports, by index
}

// Survey tries every direct way of a kind, queue pairs or sockets, to a session's peer, also
// where another kind would be used. failed is what did not work, and why. All nodes may be
// tried at once, and so take longer: what else there is to try waits for that.
func (f *Finder) Survey(s *control.Session, kind lane.Kind) (ways []Way, failed []conn.LaneFailure, err error) {
	ports, peer := f.now(), f.PortsOf(s)
	ends := sync.OnceValue(func() map[string]End { return f.ends(s, false) })
	candidates, some := f.candidates(ports, peer)
	if kind == lane.TCP {
		sorted := f.sockets(s, some, ports, peer, ends)
		if candidates = sorted.cables; len(candidates) == 0 {
			candidates = sorted.shared
		}
	}
	t := f.findAmong(s, ports, peer, candidates, ends, f.Env.ProofWait)
	for _, p := range t.found {
		ways = append(ways, Path{p.Spec, p.pair[0], p.pair[1]})
	}
	return ways, t.tried, t.err
}

// Over are the lanes of a connection over some ways: as many as use their ports up.
func (f *Finder) Over(ways []Path) []lane.Spec {
	var paths []validated
	for _, w := range ways {
		paths = append(paths, validated{w.Spec, [2]int{w.Local, w.Remote}})
	}
	return f.share(paths)
}
