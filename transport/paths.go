package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/control"
	"ncclmesh/transport/topology"
)

// path is a way between a local and a remote port over which packets have been
// seen to pass in both directions.
type path struct {
	plannedLane
	pair [2]int // indices of the ports at both ends
}

// pathSet is what is known of the ways to one peer process. A trial finds them
// before the first connection; later ones use them at no cost.
type pathSet struct {
	done  chan struct{} // closed when the trial is over
	paths []path
	err   error
}

// paths returns the lanes that a connection to the session's peer should have.
// The first caller starts the trial, the others wait for it. A failed trial is
// made again by the next caller.
func (t *Transport) paths(ctx context.Context, s *control.Session) ([]plannedLane, error) {
	key := s.Peer().Process
	t.mu.Lock()
	set := t.known[key]
	if set == nil {
		set = &pathSet{done: make(chan struct{})}
		t.known[key] = set
		t.mu.Unlock()
		t.background(func() {
			set.err = t.guarded("look for paths", func() (err error) {
				set.paths, err = t.find(s)
				return err
			})
			if set.err != nil {
				t.forgetPaths(s)
			}
			close(set.done)
		})
	} else {
		t.mu.Unlock()
	}
	select {
	case <-set.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: given up while looking for a path to %s", ErrUsage, s.Name())
	}
	if set.err != nil {
		return nil, set.err
	}
	return t.share(set.paths), nil
}

// forgetPaths makes the next connection to the session's peer look anew.
func (t *Transport) forgetPaths(s *control.Session) {
	t.mu.Lock()
	delete(t.known, s.Peer().Process)
	t.mu.Unlock()
}

// share chooses among proved paths the lanes of a connection: as many as it takes
// to use both nodes' ports up, none twice as long as there are others. Two halves
// of a cable in one subnet give four paths and two lanes.
func (t *Transport) share(paths []path) []plannedLane {
	local, remote := map[int]float64{}, map[int]float64{}
	for _, p := range paths {
		local[p.pair[0]] = float64(p.port.Mbps())
		remote[p.pair[1]] = float64(max(1, p.peer.SpeedMbps))
	}
	var lanes []plannedLane
	for _, p := range paths {
		a, b := local[p.pair[0]], remote[p.pair[1]]
		full := min(float64(p.port.Mbps()), float64(max(1, p.peer.SpeedMbps)))
		w := min(a, b)
		if w < full/8 {
			continue // what is left is not worth a lane
		}
		local[p.pair[0]], remote[p.pair[1]] = a-w, b-w
		l := p.plannedLane
		n := t.streams(p)
		l.weight = w / float64(n)
		for range n {
			if len(lanes) < maxParts {
				lanes = append(lanes, l)
			}
		}
	}
	return lanes
}

// find proves the ways to a peer, of the first group of candidates in which there
// are any.
func (t *Transport) find(s *control.Session) (found []path, err error) {
	ports, peer := t.topologyPorts(), t.portsOf(s)
	var tried []string
	var slow string
	var errs []error
	for g, candidates := range t.candidates(ports, peer) {
		if len(candidates) == 0 {
			continue
		}
		among := t.findAmong(s, ports, peer, candidates)
		if found = among.found; len(found) > 0 && g > 0 {
			t.sayWhyTCP(s, errors.Join(errs...), tried)
		}
		tried = append(tried, among.tried...)
		if len(found) > 0 {
			break
		}
		slow = among.slow
		errs = append(errs, among.err)
	}
	for _, r := range tried {
		t.log.Debug("no path", "way", r)
	}
	if len(found) > 0 {
		return found, nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return nil, t.noPath(s, tried, slow)
}

// findAmong proves ways. Pairs of ports in one subnet come first. Other
// reasons to try a pair, link-local addresses and RoCE v1, count for ports that
// have no address of their own, and for all when nothing else works: they are
// tried as well when the first have not been proved after patience.
func (t *Transport) findAmong(s *control.Session, ports []topology.Port, peer []handshake.Port, candidates []topology.Candidate) trials {
	var subnet, other []topology.Candidate
	for _, c := range candidates {
		if c.Tier == topology.TierSubnet {
			subnet = append(subnet, c)
		} else {
			other = append(other, c)
		}
	}
	first := make(chan trials, 1)
	t.background(func() {
		var r trials
		if err := t.guarded("try paths", func() error { r = t.tryAll(s, ports, peer, subnet); return nil }); err != nil {
			r.err = err
		}
		first <- r
	})
	var done trials
	patience := time.NewTimer(t.opts.scaled(t.opts.ProofWait / 4))
	defer patience.Stop()
	waited := false
	select {
	case done = <-first:
	case <-patience.C:
		waited = true
	}
	if len(done.found) > 0 {
		other = slices.DeleteFunc(other, func(c topology.Candidate) bool {
			return done.has(c) || hasOwnAddress(ports[c.Local]) && hasAddress(peer[c.Remote])
		})
	}
	rest := t.tryAll(s, ports, peer, other)
	if waited {
		done = <-first
	}
	if len(done.found) > 0 {
		// What a common subnet has proved needs no second reason.
		rest.found = slices.DeleteFunc(rest.found, func(p path) bool {
			return slices.ContainsFunc(done.found, func(q path) bool { return p.pair == q.pair })
		})
	}
	return trials{
		found: append(done.found, rest.found...),
		tried: append(done.tried, rest.tried...),
		slow:  cmp.Or(done.slow, rest.slow),
		err:   errors.Join(done.err, rest.err),
	}
}

// trials is the outcome of one or more of them.
type trials struct {
	found []path
	tried []string // what failed, and why
	slow  string   // why that may be no evidence; see slowness
	err   error
}

func (r *trials) has(c topology.Candidate) bool {
	return slices.ContainsFunc(r.found, func(p path) bool { return p.pair == [2]int{c.Local, c.Remote} })
}

// tryAll tries candidates, as many at once as a connection can have.
func (t *Transport) tryAll(s *control.Session, ports []topology.Port, peer []handshake.Port, rest []topology.Candidate) (all trials) {
	for len(rest) > 0 && all.err == nil {
		n := batch(rest)
		var plan []plannedLane
		for _, c := range rest[:n] {
			from, to := ports[c.Local].GIDs[c.LocalGID], peer[c.Remote].Addrs[c.RemoteGID].GID
			plan = append(plan, plannedLane{port: t.ports[c.Local], gid: from, peer: peer[c.Remote], to: to})
		}
		r := t.trial(s, plan)
		for i, c := range rest[:n] {
			if r.mask&(1<<i) != 0 {
				all.found = append(all.found, path{plan[i], [2]int{c.Local, c.Remote}})
			}
		}
		all.tried, all.slow, all.err = append(all.tried, r.tried...), cmp.Or(all.slow, r.slow), r.err
		rest = slices.DeleteFunc(rest[n:], all.has)
	}
	return all
}

// batch is how many of the candidates one trial takes: as many as a connection
// may have lanes and devices.
func batch(candidates []topology.Candidate) int {
	local, remote := map[int]bool{}, map[int]bool{}
	for i, c := range candidates {
		local[c.Local], remote[c.Remote] = true, true
		if i == maxParts || len(local) > maxDevices || len(remote) > maxDevices {
			return i
		}
	}
	return len(candidates)
}

// hasOwnAddress reports whether the port has an address that a person or a server
// gave it, and so belongs to a subnet.
func hasOwnAddress(p topology.Port) bool {
	return slices.ContainsFunc(p.GIDs, func(g topology.GID) bool { return g.PrefixLen > 0 && !g.Addr.Unmap().IsLinkLocalUnicast() })
}

func hasAddress(p handshake.Port) bool {
	return slices.ContainsFunc(p.Addrs, func(a handshake.PortAddr) bool {
		return a.PrefixLen > 0 && !addrOf(a.GID).IsLinkLocalUnicast()
	})
}

// noPath is the error of two nodes between which nothing passed.
func (t *Transport) noPath(s *control.Session, tried []string, slow string) error {
	rdma, tcp, differ := t.differ(s)
	switch {
	case differ:
		return fmt.Errorf("%w: no path between %s and %s: %s offers RDMA only, as with NCCL_MESH_TRANSPORT=rdma, and %s TCP only, as with NCCL_MESH_TRANSPORT=tcp or without a working RDMA device. "+
			"Set NCCL_MESH_TRANSPORT=auto on %s, or make RDMA work on %s", ErrUnreachable, s.LocalName(), s.Name(), rdma, tcp, rdma, tcp)
	case len(tried) == 0:
		return fmt.Errorf("%w: no path between %s and %s: no two of their ports share a subnet: %s. Cable the two nodes, or give both ends of a cable addresses in one subnet",
			ErrUnreachable, s.LocalName(), s.Name(), topology.Explain(t.topologyPorts(), t.portsOf(s), t.opts.GIDs))
	}
	if slow != "" {
		return fmt.Errorf("%w: no path between %s and %s was proved in time; %s; tried %s", ErrUnreachable, s.LocalName(), s.Name(), slow, strings.Join(tried, "; "))
	}
	return fmt.Errorf("%w: no path between %s and %s; tried %s. Check the cables between the two nodes, and that both ends of each have addresses in one subnet",
		ErrUnreachable, s.LocalName(), s.Name(), strings.Join(tried, "; "))
}

// differ reports whether this node and a peer have no kind of lane in common, and
// which of them has queue pairs only, and which sockets only.
func (t *Transport) differ(s *control.Session) (rdma, tcp string, ok bool) {
	ours, theirs := *t.told.Load(), t.portsOf(s)
	switch {
	case !offer(ours, handshake.LaneTCP) && !offer(theirs, handshake.LaneVerbs):
		return s.LocalName(), s.Name(), true
	case !offer(ours, handshake.LaneVerbs) && !offer(theirs, handshake.LaneTCP):
		return s.Name(), s.LocalName(), true
	}
	return "", "", false
}
