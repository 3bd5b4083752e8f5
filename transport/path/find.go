package path

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/control"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/routing"
	"ncclmesh/transport/topology"
)

// find validates the paths to a peer, in the first tier that has any. say is nil or warns the user why it is
// not the best tier.
func (f *Finder) find(s *control.Session) (found []validated, say func(), err error) {
	ports := f.now()
	var all, rdma outcome // rdma: of the RDMA tiers, which explains why TCP is used
	for i, tier := range f.tiers(s, ports) {
		through := i%2 == 1
		if !through && f.OnlyRelay && s.Peer().Node != f.Node {
			continue
		}
		t := tier()
		for k := range t.found {
			t.found[k].Tier = i
		}
		if len(t.found) > 0 {
			say = func() { f.sayWhy(s, i > 1, through, t.found, rdma) }
			all.tried = append(all.tried, t.tried...)
			found = t.found
			break
		}
		all.tried, all.slow = append(all.tried, t.tried...), cmp.Or(all.slow, t.slow)
		all.err, all.none = join(s, all.err, t.err), distinct(all.none, t.none)
		if i <= 1 {
			rdma = all
		}
		if all.err != nil && !s.Alive() {
			break
		}
	}
	for _, r := range all.tried {
		f.Env.Log.Debug("no path", "path", r.String())
	}
	switch {
	case len(found) > 0:
		return found, say, nil
	case all.err != nil:
		return nil, nil, all.err
	}
	err = f.NoPath(s, all.tried, all.slow)
	for _, p := range ports {
		if what, remedy := p.Absent(); what != "" {
			err = fmt.Errorf("%w. The %s: %s", err, what, remedy)
		}
	}
	if all.none != nil {
		err = &noPathError{err, all.none}
	}
	return nil, nil, err
}

// tiers returns functions that validate the paths of one tier each, the best tier first: RDMA, direct and then
// relayed; TCP over cables, direct and then relayed; TCP over networks that other nodes share; TCP relayed over
// such networks; TCP over the network that the user has named for the control plane. Tiers with an odd index
// are relayed.
func (f *Finder) tiers(s *control.Session, ports []topology.Port) []func() outcome {
	peer := f.PortsOf(s)
	queuePairs, some := f.candidates(ports, peer)
	ends := sync.OnceValue(func() map[string]discovery.End { return f.ends(s, false) })
	sorted := sync.OnceValue(func() sockets { return f.sockets(s, some, ports, peer, ends) })
	direct := func(candidates []topology.Candidate) outcome {
		return f.findAmong(s, ports, peer, candidates, ends, f.Env.ProofWait/4)
	}
	// Relayed paths over cables only are better than a direct path over a shared network.
	cablesFirst := func() bool { return len(sorted().shared) > 0 && anyCable(ends()) }
	return []func() outcome{
		func() outcome { return direct(queuePairs) },
		func() outcome { return f.relayed(s, true, func(routing.Route) bool { return true }) },
		func() outcome { return direct(sorted().cables) },
		func() (t outcome) {
			if cablesFirst() {
				t = f.relayed(s, false, func(r routing.Route) bool { return r.Cables })
				t.none = nil // relayed paths over other networks have not been tried yet
			}
			return t
		},
		func() outcome { return direct(sorted().shared) },
		func() outcome {
			return f.relayed(s, false, func(r routing.Route) bool { return !r.Cables || !cablesFirst() })
		},
		func() outcome { return direct(sorted().setup) },
	}
}

// findAmong validates candidates. Pairs of ports in a common subnet are tried first. The other candidates, with
// link-local addresses or RoCE v1, are tried as well if the first have not finished after patience, or when
// they have finished. If one of the first is a path by then, a candidate is skipped whose ports both have an address in a
// subnet. A candidate is also skipped if another node than the peer answers on its port's cable.
func (f *Finder) findAmong(s *control.Session, ports []topology.Port, peer []handshake.Port, candidates []topology.Candidate, ends func() map[string]discovery.End, patience time.Duration) outcome {
	if len(candidates) == 0 {
		return outcome{}
	}
	var subnet, other []topology.Candidate
	for _, c := range candidates {
		if c.Tier == topology.TierSubnet {
			subnet = append(subnet, c)
		} else {
			other = append(other, c)
		}
	}
	first := make(chan outcome, 1)
	f.Env.Background(func() {
		var r outcome
		if err := f.guarded("try paths", func() error { r = f.tryAll(s, ports, peer, subnet); return nil }); err != nil {
			r.err = err
		}
		first <- r
	})
	var done outcome
	timer := f.Env.Clock.NewTimer(f.Env.Clock.Scaled(patience))
	defer timer.Stop()
	waited := false
	select {
	case done = <-first:
	case <-timer.C:
		waited = true
	}
	if len(done.found) > 0 {
		other = slices.DeleteFunc(other, func(c topology.Candidate) bool {
			return done.has(c) || hasOwnAddress(ports[c.Local]) && hasAddress(peer[c.Remote])
		})
	}
	rest := f.tryAll(s, ports, peer, f.maybeCabled(other, ends))
	if waited {
		done = <-first
	}
	if len(done.found) > 0 {
		// Skip pairs that were also validated by addresses in a common subnet.
		rest.found = slices.DeleteFunc(rest.found, func(p validated) bool {
			return slices.ContainsFunc(done.found, func(q validated) bool { return p.pair == q.pair })
		})
	}
	return outcome{
		found: append(done.found, rest.found...),
		tried: append(done.tried, rest.tried...),
		slow:  cmp.Or(done.slow, rest.slow),
		err:   join(s, done.err, rest.err),
	}
}

// maybeCabled removes the candidates whose local port is known to lead to another node than the peer. Asking
// the neighbours takes a moment, while a probe over a path that leads nowhere takes seconds.
func (f *Finder) maybeCabled(all []topology.Candidate, ends func() map[string]discovery.End) []topology.Candidate {
	if len(all) == 0 {
		return all
	}
	at := ends()
	return slices.DeleteFunc(all, func(c topology.Candidate) bool { return at[f.Ports[c.Local].Now().Netdev] == discovery.EndOther })
}

// outcome is the result of one or more probes.
type outcome struct {
	found []validated
	tried []conn.LaneFailure // candidates that failed, and why
	slow  string             // why the failures may not be the network's fault; see conn.Slowness
	none  error              // why there is no relayed path
	err   error
}

func (r *outcome) has(c topology.Candidate) bool {
	return slices.ContainsFunc(r.found, func(p validated) bool { return p.pair == [2]int{c.Local, c.Remote} })
}

// tryAll validates candidates, as many at once as a connection can have lanes.
func (f *Finder) tryAll(s *control.Session, ports []topology.Port, peer []handshake.Port, rest []topology.Candidate) (all outcome) {
	for len(rest) > 0 && all.err == nil {
		n := batch(rest)
		var plan []lane.Spec
		for _, c := range rest[:n] {
			from, to := ports[c.Local].GIDs[c.LocalGID], peer[c.Remote].Addrs[c.RemoteGID].Addr
			plan = append(plan, lane.Spec{Port: f.Ports[c.Local], From: from, Peer: peer[c.Remote], To: to})
		}
		r := f.probe(s, plan)
		for i, c := range rest[:n] {
			if r.mask&(1<<i) != 0 {
				all.found = append(all.found, validated{plan[i], [2]int{c.Local, c.Remote}})
			}
		}
		all.tried, all.slow, all.err = append(all.tried, r.tried...), cmp.Or(all.slow, r.slow), r.err
		rest = slices.DeleteFunc(rest[n:], all.has)
	}
	return all
}

// batch returns how many of the candidates one probe takes, limited by the lanes and domains of a connection.
func batch(candidates []topology.Candidate) int {
	local, remote := map[int]bool{}, map[int]bool{}
	for i, c := range candidates {
		local[c.Local], remote[c.Remote] = true, true
		if i == lane.MaxParts || len(local) > lane.MaxDomains || len(remote) > lane.MaxDomains {
			return i
		}
	}
	return len(candidates)
}

// hasOwnAddress reports whether the port has an address that was configured, statically or by DHCP, and so
// belongs to a subnet.
func hasOwnAddress(p topology.Port) bool { return slices.ContainsFunc(p.GIDs, ownAddress) }

func hasAddress(p handshake.Port) bool { return slices.ContainsFunc(p.Addrs, peersAddress) }

// ownAddress and peersAddress report whether an address was configured: it has a prefix length and is not
// link-local.
func ownAddress(a topology.Address) bool {
	return a.PrefixLen > 0 && !a.Addr.Unmap().IsLinkLocalUnicast()
}

func peersAddress(a handshake.PortAddr) bool {
	return a.PrefixLen > 0 && !a.Addr.Unmap().IsLinkLocalUnicast()
}
