package topo

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"

	"ncclmesh/tools/ncclmesh/fleet"
)

// Survey has all hosts look at their cables, and returns the map. A host that cannot be asked
// is in the map too, with its error. With routes, nodes that share no cable connect to each other through those between them,
// as a job's processes do, all at once.
func Survey(ctx context.Context, f *fleet.Fleet, hosts []string, routes bool) (*Map, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	views := make([]view, len(hosts))
	for i, host := range hosts {
		views[i].name = host
		if host == fleet.Here {
			var err error
			if views[i].name, err = os.Hostname(); err != nil {
				return nil, err
			}
		}
		views[i].call = f.Start(ctx, host, fleet.Request{Do: Do, With: struct{}{}, Silence: silence})
	}
	defer each(views, func(v *view) { v.call.Close() })
	each(views, (*view).greet)
	same(views)
	after := handles(views)
	each(views, func(v *view) { v.look(after[v]) })
	m := newMap(views)
	if routes {
		proveRoutes(views, m)
	}
	each(views, func(v *view) {
		if v.err == nil {
			_ = v.call.Say(order{}) // it ends anyhow when it is not told
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

// each does something with all nodes at once.
func each(views []view, do func(*view)) {
	var wg sync.WaitGroup
	for i := range views {
		wg.Go(func() { do(&views[i]) })
	}
	wg.Wait()
}

// view is what one host has told.
type view struct {
	name  string
	call  *fleet.Call
	build string
	node
	seen sights
	job  opened // for routes
	err  error
}

// greet takes what the node says first.
func (v *view) greet() {
	var a answer
	switch err := v.call.Next(&a); {
	case err != nil:
		v.err = err
	case a.Node == nil:
		v.err = &fleet.HostError{Host: v.name, Err: fleet.ErrGarbled}
	default:
		v.node = *a.Node
	}
	hello := v.call.Hello()
	v.build = hello.Build
	if err := hello.Check(); v.err == nil && err != nil {
		v.err = &fleet.HostError{Host: v.name, Err: err}
	}
}

// same finds names that lead to one node.
func same(views []view) {
	for i := range views {
		for k := range views[:i] {
			v, w := &views[i], &views[k]
			if v.err == nil && w.err == nil && v.ID != "" && v.ID == w.ID {
				v.err = &fleet.HostError{Host: v.name, Err: fmt.Errorf("it is the same node as %s", w.name)}
			}
		}
	}
}

// handles are those that each node is to try: of the nodes after it, as a trial proves both
// directions.
func handles(views []view) map[*view]peers {
	after := map[*view]peers{}
	var all [][]byte
	for i := range slices.Backward(views) {
		v := &views[i]
		after[v] = peers{slices.Clone(all)}
		if v.err == nil && v.Handle != nil {
			all = append(all, v.Handle)
		}
	}
	return after
}

// look has the node look at its cables.
func (v *view) look(others peers) {
	if v.err != nil {
		return
	}
	var a answer
	if v.err = v.call.Say(others); v.err == nil {
		v.err = v.call.Next(&a)
	}
	switch {
	case v.err != nil:
	case a.Sights == nil:
		v.err = &fleet.HostError{Host: v.name, Err: fleet.ErrGarbled}
	default:
		v.seen = *a.Sights
	}
}
