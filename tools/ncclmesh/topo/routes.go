package topo

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/lane"
	"ncclmesh/transport/routing"
)

// Waits of connections that validate routes. All processes run already when the first of them is dialled, so that a route that
// is not there within routeWait will not come.
const (
	routeWait  = 3 * time.Second
	routesWait = 30 * time.Second // for all connections of a node
	acceptPoll = 5 * time.Millisecond
)

// order is what an agent is told after its sights: to open the process that validates routes, or to dial others; neither ends it.
type order struct {
	Open bool     `json:"open,omitempty"`
	Dial [][]byte `json:"dial,omitempty"` // handles
}

// opened is the process that an agent validates routes with. It has the node's own settings, as a job's has, and relays as those
// say.
type opened struct {
	Handle []byte `json:"handle,omitempty"`
	Off    bool   `json:"off,omitempty"`   // relaying is off: there is none
	Error  string `json:"error,omitempty"` // why there is none
}

// reached is a connection to one process through other nodes.
type reached struct {
	Routes   []routeTo `json:"routes,omitempty"`
	Error    string    `json:"error,omitempty"`
	OtherKey bool      `json:"otherKey,omitempty"` // a neighbour with another NCCL_MESH_KEY, or without one, may be the reason
}

// routeTo is a route that packets have passed over in both directions.
type routeTo struct {
	Via   []string `json:"via"` // ids of the relays' nodes, in order
	Names []string `json:"names"`
	RDMA  bool     `json:"rdma"`
}

// endpoint is a process like a job's, for a survey's routes.
type endpoint struct {
	t        *transport.Transport
	l        *transport.Listener
	stop     context.CancelFunc
	accepted sync.WaitGroup

	mu    sync.Mutex
	close []func() error // connections
}

// openEndpoint starts a process with the settings of the node's environment.
func openEndpoint(ctx context.Context, o transport.Options) (*endpoint, error) {
	if o.Relay == "" || o.Relay == transport.RelayAuto {
		o.Relay = transport.RelayOnly // direct paths have been tried, and another network is no route
	}
	for _, wait := range []*time.Duration{&o.RouteWait, &o.LaneWait} {
		if *wait <= 0 || *wait > routeWait {
			*wait = routeWait
		}
	}
	o.Log = slog.New(slog.DiscardHandler)
	t, err := transport.New(o)
	if err != nil {
		return nil, err
	}
	e := &endpoint{t: t}
	if e.l, err = t.Listen(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	ctx, e.stop = context.WithCancel(ctx)
	e.accepted.Go(func() { e.accept(ctx) })
	return e, nil
}

// accept takes what others connect, and holds it until the end.
func (e *endpoint) accept(ctx context.Context) {
	look := time.NewTicker(acceptPoll)
	defer look.Stop()
	for {
		if r, _ := e.l.Accept(); r != nil { // why a connection fails is told by the side that dials
			e.keep(r.Close)
			continue
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func (e *endpoint) keep(f func() error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.close = append(e.close, f)
}

// end closes the connections, all at once, and the process. A connection's error has been told, or is the end of the other side.
func (e *endpoint) end() error {
	e.stop()
	e.accepted.Wait()
	var wg sync.WaitGroup
	for _, f := range e.close {
		wg.Go(func() { _ = f() })
	}
	wg.Wait()
	return errors.Join(e.l.Close(), e.t.Close())
}

// dial connects to all at once, through other nodes.
func (e *endpoint) dial(ctx context.Context, handles [][]byte) ([]reached, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, routesWait, errors.New("the connection is not set up within 30 s"))
	defer cancel()
	all := make([]reached, len(handles))
	var wg sync.WaitGroup
	for i, raw := range handles {
		h, err := handshake.ReadHandle(raw)
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			s, err := e.connect(ctx, h)
			if err != nil {
				all[i] = notReached(err)
				return
			}
			e.keep(s.Close)
			all[i].Routes = routesOf(&s.Conn)
		})
	}
	wg.Wait()
	return all, nil
}

func (e *endpoint) connect(ctx context.Context, h handshake.Handle) (*conn.Sender, error) {
	d := e.t.Dial(h)
	e.keep(d.Close)
	look := time.NewTicker(acceptPoll)
	defer look.Stop()
	for {
		if s, err := d.Poll(); s != nil || err != nil {
			return s, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// routesOf returns the routes of a connection's lanes, each once.
func routesOf(c *conn.Conn) (all []routeTo) {
	c.Lock()
	defer c.Unlock()
	for _, l := range c.Lanes() {
		if !l.InService() || l.Route == nil {
			continue
		}
		r := routeTo{Names: l.Route.Names, RDMA: l.Port.Kind() != lane.TCP}
		for _, hop := range l.Route.Via {
			r.Via = append(r.Via, hop.Node.String())
		}
		if !slices.ContainsFunc(all, func(o routeTo) bool { return slices.Equal(o.Via, r.Via) && o.RDMA == r.RDMA }) {
			all = append(all, r)
		}
	}
	return all
}

// notReached returns a connection's error. Where no route was found it tells that alone: of direct paths, which the connection tries
// not, the survey says more.
func notReached(err error) reached {
	var none *routing.NoRouteError
	if !errors.As(err, &none) {
		return reached{Error: fault.OneLine(err)}
	}
	r := reached{Error: none.Reason, OtherKey: len(none.Foreign) > 0}
	if r.OtherKey {
		r.Error += ". " + none.OtherKey()
	}
	return r
}

// trial has nodes connect to those with which they share no cable.
type trial struct {
	m     *Map
	views []view
	at    map[string]*view  // by name
	names map[string]string // by id

	mu       sync.Mutex
	otherKey map[*Apart]bool // of those whose error may be a neighbour with another key
}

// proveRoutes has the nodes validate routes, where the map has nodes without a common cable and cables from one to the other, and
// adds the result to the map. Where not all ways of a pair have passed, and nothing explains that, it is tried from the other end too: a
// node that was slow to answer is no fault.
func proveRoutes(views []view, m *Map) {
	if !slices.ContainsFunc(m.Apart, func(a Apart) bool { return len(a.Through) > 0 }) {
		return
	}
	t := &trial{m: m, views: views, at: map[string]*view{}, names: map[string]string{}, otherKey: map[*Apart]bool{}}
	for i := range views {
		v := &views[i]
		t.at[v.name] = v
		if v.ID != "" && v.err == nil {
			t.names[v.ID] = v.name
		}
	}
	each(views, (*view).open)
	t.from(0)
	t.from(1)
	for i := range m.Nodes {
		n := &m.Nodes[i]
		n.NoProcess = cmp.Or(n.NoProcess, t.at[n.Name].job.Error)
	}
}

// open has the node open a process for routes.
func (v *view) open() {
	if v.err != nil {
		return
	}
	var a answer
	err := v.call.Say(order{Open: true})
	if err == nil {
		err = v.call.Next(&a)
	}
	switch {
	case err != nil:
		v.err = err // it says nothing more
		v.job.Error = fault.OneLine(err)
	case a.Opened == nil:
		v.job.Error = "build " + v.build + " there does not validate routes: install the same build on all nodes"
	default:
		v.job = *a.Opened
	}
}

// from has one end of each pair connect to the other, as far as the map lacks routes.
func (t *trial) from(end int) {
	dials := map[*view][]*Apart{}
	for i := range t.m.Apart {
		a := &t.m.Apart[i]
		if len(a.Through) == 0 || a.Tried && (len(t.m.Missing(a)) == 0 || t.explained(a)) {
			continue
		}
		why := ""
		for _, name := range a.Nodes {
			switch v := t.at[name]; {
			case why != "":
			case v.job.Off:
				why = "relaying is off on " + name + " (NCCL_MESH_RELAY=0)"
			case v.job.Error != "":
				why = name + ": " + v.job.Error
			}
		}
		a.Tried = true
		if why != "" {
			a.Error = why
			continue
		}
		from := t.at[a.Nodes[end]]
		dials[from] = append(dials[from], a)
	}
	each(t.views, func(v *view) {
		if all := dials[v]; len(all) > 0 {
			t.dial(v, all, 1-end)
		}
	})
}

// explained reports whether it is known why no way of a pair has passed.
func (t *trial) explained(a *Apart) bool {
	closed := func(name string) bool { return t.at[name].job.Off || t.at[name].job.Error != "" }
	if a.Error == "" {
		return false
	}
	return t.otherKey[a] || closed(a.Nodes[0]) || closed(a.Nodes[1]) ||
		!slices.ContainsFunc(a.Through, func(way []string) bool { return !slices.ContainsFunc(way, closed) })
}

// dial has a node connect to one end of each of some pairs.
func (t *trial) dial(from *view, all []*Apart, to int) {
	var o order
	for _, a := range all {
		o.Dial = append(o.Dial, t.at[a.Nodes[to]].job.Handle)
	}
	var got answer
	err := from.call.Say(o)
	if err == nil {
		err = from.call.Next(&got)
	}
	for i, a := range all {
		switch {
		case err != nil:
			a.Error = fault.OneLine(err)
		case i >= len(got.Reached):
			a.Error = from.name + " has not reported the result"
		default:
			r := got.Reached[i]
			a.take(r, t.names, to == 0)
			t.mu.Lock()
			t.otherKey[a] = t.otherKey[a] || r.OtherKey && a.Error != ""
			t.mu.Unlock()
		}
	}
}

// take adds what came of a connection, which led to the first of the nodes if back is true. Nodes that are none of the hosts go
// by their own names.
func (a *Apart) take(r reached, names map[string]string, back bool) {
	for _, route := range r.Routes {
		through := slices.Clone(route.Names)
		for i := range min(len(through), len(route.Via)) {
			if name := names[route.Via[i]]; name != "" {
				through[i] = name
			}
		}
		if back {
			slices.Reverse(through)
		}
		if !slices.ContainsFunc(a.Routes, func(o Route) bool { return slices.Equal(o.Through, through) && o.RDMA == route.RDMA }) {
			a.Routes = append(a.Routes, Route{Through: through, RDMA: route.RDMA})
		}
	}
	switch {
	case len(a.Routes) > 0:
		a.Error = ""
	case r.Error == "":
		a.Error = "the connection has no lane through another node"
	default:
		a.Error = cmp.Or(a.Error, r.Error)
	}
}

// Missing returns the shortest ways between two nodes that packets should have passed over in a connection, and have not. A
// connection leaves out a way that shares a port with another, or has a cable without RDMA where another way has RDMA.
func (m *Map) Missing(a *Apart) (ways [][]string) {
	used := map[[2]string]bool{}
	pairs := func(way []string, do func(x, y string)) {
		path := slices.Concat(a.Nodes[:1], way, a.Nodes[1:])
		for i := range path[1:] {
			do(path[i], path[i+1])
		}
	}
	rdma := false
	for _, r := range a.Routes {
		rdma = rdma || r.RDMA
		pairs(r.Through, func(x, y string) { used[[2]string{x, y}] = true })
	}
	if len(a.Routes) >= maxWays {
		return nil
	}
	for _, way := range a.Through {
		free := !a.Passes(way)
		pairs(way, func(x, y string) { free = free && !used[[2]string{x, y}] && !(rdma && !m.joins(x, y)) })
		if free {
			ways = append(ways, way)
		}
	}
	return ways
}

// joins reports whether a cable with RDMA joins two nodes.
func (m *Map) joins(x, y string) bool {
	return slices.ContainsFunc(m.Cables, func(c Cable) bool {
		ends := [2]string{c.Ends[0].Node, c.Ends[1].Node}
		return c.count(RDMA) > 0 && (ends == [2]string{x, y} || ends == [2]string{y, x})
	})
}

// Passes reports whether packets have passed over a way through other nodes.
func (a *Apart) Passes(way []string) bool {
	return slices.ContainsFunc(a.Routes, func(r Route) bool { return slices.Equal(r.Through, way) })
}

// Proved says for people which routes packets have passed over.
func (a *Apart) Proved() string {
	var ways []string
	for _, r := range a.Routes {
		if way := strings.Join(r.Through, " and "); !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	slices.Sort(ways)
	return "through " + strings.Join(ways, ", and ")
}
