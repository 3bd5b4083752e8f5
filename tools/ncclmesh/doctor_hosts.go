package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"ncclmesh/tools/ncclmesh/bench"
	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/doctor/gather"
	"ncclmesh/tools/ncclmesh/fleet"
	"ncclmesh/tools/ncclmesh/topo"
)

// lookAtHosts has all hosts look at themselves and, at the same time, at the cables between
// them.
func lookAtHosts(ctx context.Context, sys *system, f doctorFlags, hosts []string) (*facts.Mesh, error) {
	fl, hosts, err := f.hosts.fleet(sys, hosts)
	if err != nil {
		return nil, err
	}
	return lookWith(ctx, fl, f, hosts)
}

// lookWith is lookAtHosts with what asks them.
func lookWith(ctx context.Context, fl *fleet.Fleet, f doctorFlags, hosts []string) (*facts.Mesh, error) {
	m := &facts.Mesh{Flows: facts.Unknown[[]facts.Flow](notMeasured), Relayed: facts.Unknown[[]facts.Relayed](notMeasured)}
	var proved *topo.Map
	var failed error
	var err error
	var wg sync.WaitGroup
	wg.Go(func() { proved, failed = topo.Survey(ctx, fl, hosts, true) })
	m.Nodes, m.Lost, err = gather.Fleet(ctx, fl, hosts, f.sample)
	wg.Wait()
	switch {
	case err != nil:
		return nil, err
	case len(m.Nodes) == 0:
		return nil, errors.New(m.Lost[0].Name + ": " + m.Lost[0].Error + "; no host could be asked")
	case failed != nil:
		m.Map = facts.Unknown[topo.Map](failed.Error())
	default:
		m.Map = facts.Known(*proved)
	}
	if f.bench {
		m.Flows, m.Relayed = measure(ctx, fl, hosts, m)
	}
	return m, nil
}

// benchTime is how long each measurement lasts: what is a fraction is seen at once.
const benchTime = 300 * time.Millisecond

// measure measures the halves of cables between the hosts that told something, and the paths between hosts without a common one.
func measure(ctx context.Context, f *fleet.Fleet, hosts []string, m *facts.Mesh) (facts.Fact[[]facts.Flow], facts.Fact[[]facts.Relayed]) {
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(h string) bool {
		return slices.ContainsFunc(m.Lost, func(l facts.Lost) bool { return l.Name == h })
	})
	r, err := bench.Links(ctx, f, hosts, bench.LinkOptions{Bytes: 1 << 20, For: benchTime})
	if err != nil {
		return facts.Unknown[[]facts.Flow](err.Error()), facts.Unknown[[]facts.Relayed](err.Error())
	}
	flows, relayed := []facts.Flow{}, []facts.Relayed{}
	for _, l := range r.Links {
		if !strings.Contains(l.Ends[0], ":") {
			relayed = append(relayed, facts.Relayed{Nodes: l.Ends, By: l.Relayed(), Lanes: l.Lanes, Error: l.Error})
		}
		if l.Ports[0] == "" {
			continue // of several halves, or through others
		}
		var ends [2]facts.End
		for i, e := range l.Ends {
			node := e[:max(0, strings.LastIndexByte(e, ':'))] // the cage stands after it
			ends[i] = facts.End{Node: node, Port: l.Ports[i]}
		}
		flows = append(flows, facts.Flow{From: ends[0], To: ends[1], Forth: l.Forth, Back: l.Back, Both: l.Both, Allowed: l.Allowed, RDMA: l.RDMA, Crowded: l.Crowded, Error: l.Error})
	}
	return facts.Known(flows), facts.Known(relayed)
}
