package main

import (
	"context"
	"errors"
	"sync"

	"ncclmesh/tools/ncclmesh/doctor/facts"
	"ncclmesh/tools/ncclmesh/doctor/gather"
	"ncclmesh/tools/ncclmesh/topo"
)

// lookAtHosts has all hosts look at themselves and, at the same time, at the cables between
// them.
func lookAtHosts(ctx context.Context, sys *system, f doctorFlags, hosts []string) (*facts.Mesh, error) {
	fleet, hosts, err := f.hosts.fleet(sys, hosts)
	if err != nil {
		return nil, err
	}
	m := &facts.Mesh{Flows: facts.Unknown[[]facts.Flow](notMeasured)}
	var proved *topo.Map
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() { proved, failed = topo.Survey(ctx, fleet, hosts) })
	m.Nodes, m.Lost, err = gather.Fleet(ctx, fleet, hosts, f.sample)
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
	return m, nil
}
