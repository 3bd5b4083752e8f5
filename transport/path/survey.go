package path

import (
	"sync"

	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/lane"
)

// Path is a direct path to a peer over which packets have passed in both directions.
type Path struct {
	lane.Spec
	Local, Remote int // indices of the ports
}

// Survey tests every direct path of a kind, queue pairs or sockets, to a session's peer, even if connections
// use another kind. failed lists the candidates that did not work. It waits as long for the preferred
// candidates as a probe may take, because many nodes may be surveyed at the same time.
func (f *Finder) Survey(s *control.Session, kind lane.Kind) (paths []Path, failed []conn.LaneFailure, err error) {
	ports, peer := f.now(), f.PortsOf(s)
	ends := sync.OnceValue(func() map[string]discovery.End { return f.ends(s, false) })
	candidates, some := f.candidates(ports, peer)
	if kind == lane.TCP {
		sorted := f.sockets(s, some, ports, peer, ends)
		if candidates = sorted.cables; len(candidates) == 0 {
			candidates = sorted.shared
		}
	}
	t := f.findAmong(s, ports, peer, candidates, ends, f.Env.ProofWait)
	for _, p := range t.found {
		paths = append(paths, Path{p.Spec, p.pair[0], p.pair[1]})
	}
	return paths, t.tried, t.err
}

// Over returns the lanes of a connection over some paths: as many as use the full speed of their ports.
func (f *Finder) Over(chosen []Path) []lane.Spec {
	var paths []validated
	for _, p := range chosen {
		paths = append(paths, validated{p.Spec, [2]int{p.Local, p.Remote}})
	}
	return f.share(paths)
}
