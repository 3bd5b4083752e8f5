package routing

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/clock"
	"ncclmesh/transport/discovery"
	"ncclmesh/transport/fault"
)

// Waits, before scaling.
const (
	gatherWait     = 25 * time.Millisecond  // for replies of neighbour discovery, so that the nodes that answer at once are queried together
	settleWait     = 150 * time.Millisecond // for neighbours in a repeated round of discovery; forwarded queries do not wait longer
	moreRoutesWait = 400 * time.Millisecond // for further routes after the first, because a connection keeps the routes it starts with
	surveyWait     = 2 * time.Second        // for the first route
	forwardWait    = 1500 * time.Millisecond
	retryWait      = time.Second // before the map is queried again for a node without a route; doubled each time, up to maxRetryWait
	maxRetryWait   = 10 * time.Second
)

// Neighbour is a process at the other end of a cable.
type Neighbour = discovery.Neighbour

// Discovery discovers the neighbours of this process.
type Discovery interface {
	Solicit()                // starts a round of discovery, unless all neighbours are known; does not block
	Done() <-chan struct{}   // returns a channel that is closed when the round is over
	Neighbours() []Neighbour // returns the neighbours that have answered so far
}

// Session sends messages to another process. Sessions are compared with ==: each session has one value.
type Session interface {
	Send(handshake.Message) error // does not block
	Cable() string                // returns the interface of the cable that a neighbour's session came over; "": none
}

// Sessions gives sessions with neighbours.
type Sessions interface {
	Known(handshake.ProcessID) bool                   // reports whether a session with the process exists
	Dial(context.Context, Neighbour) (Session, error) // returns a session with a neighbour; may block until the context is done
}

// Port is a port of this node that may have a cable.
type Port struct {
	Index uint8 // discovery.Port.Index
	Name  string
	Mbps  uint32
	RDMA  bool
}

// Config configures a Router. The Router calls none of its functions with a lock held.
type Config struct {
	Own        handshake.MapNode // this process and node, without cables; the Router adds these
	Ports      func() []Port
	Discovery  Discovery
	Sessions   Sessions
	Background func(func())    // runs a function on a goroutine that ends when the process does
	Context    context.Context // done when the process ends
	Clock      clock.Clock     // makes the timers, and scales the waits
	Random     random.Source   // source of query IDs
	Log        *slog.Logger    // nil: log lines are discarded
}

// Router finds routes through relays, and answers the queries of other nodes. Its methods may be called from any
// goroutine. Only Routes blocks.
type Router struct {
	Config

	mu            sync.Mutex                   // a leaf lock
	changed       chan struct{}                // closed and replaced when a field below changes
	solicited     time.Time                    // when discovery of the current neighbours began; zero: it has not begun
	survey        *query                       // this process's own query; nil: the map is not known
	retries       int                          // repeated queries since a port or a neighbour changed
	forwards      map[string]*forward          // forwarded queries, by the nodes that they list
	localOnly     *forward                     // query that is answered with this node alone; nil: none
	expected      map[replyKey]*neighbourQuery // expected replies
	openBySession map[Session]int              // unanswered queries of each session
	forwardsBy    map[limitKey]int             // forwarded queries in progress
	seen          [maxSeen][16]byte            // IDs of the last queries
	seenCount     int                          // number of IDs that were stored in seen
	counts        Counts
}

// Counts are statistics of a Router.
type Counts struct {
	Asked     uint64 // queries of other nodes
	LocalOnly uint64 // those that were answered with this node alone: received twice, or too many at once
	Unasked   uint64 // unexpected and false replies
}

// New makes a Router without a map.
func New(c Config) *Router {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Router{
		Config: c, changed: make(chan struct{}), forwards: map[string]*forward{},
		expected: map[replyKey]*neighbourQuery{}, openBySession: map[Session]int{}, forwardsBy: map[limitKey]int{},
	}
}

// Counts returns a copy of the statistics.
func (r *Router) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

// Changed tells the Router that a port of this node has changed, and drops the map. The caller must have called the
// Discovery's Changed before.
func (r *Router) Changed() {
	r.mu.Lock()
	r.solicited, r.retries = time.Time{}, 0
	r.dropSurveyLocked()
	r.wakeLocked()
	r.mu.Unlock()
}

// NeighbourFound tells the Router that a new neighbour was discovered. If the map has no route, the next Routes then
// queries it again.
func (r *Router) NeighbourFound() {
	r.mu.Lock()
	if r.survey != nil && !r.survey.over.IsZero() {
		r.survey.stale, r.retries = true, 0
	}
	r.wakeLocked()
	r.mu.Unlock()
}

// SessionEnded tells the Router that a session has ended. Expected replies from that session fail.
func (r *Router) SessionEnded(s Session) {
	r.mu.Lock()
	for k, q := range r.expected {
		if k.session == s {
			q.err = errors.New("the session with it has ended")
			delete(r.expected, k)
		}
	}
	r.wakeLocked()
	r.mu.Unlock()
}

func (r *Router) wakeLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// events returns a channel that is closed when the state of the Router changes after the call.
func (r *Router) events() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// Routes returns the routes to a node through relays, in order of preference, and queries the map if it is not known.
// With rdma, it returns only routes with RDMA on every cable. If there is no route, the error names the nodes and ports
// that did not answer.
//
// It returns a route when all neighbours have replied, or some time after the first route was found. Without a route it
// returns an error as soon as all likely neighbours have replied. Concurrent calls share one query.
func (r *Router) Routes(ctx context.Context, target handshake.NodeID, rdma bool) ([]Route, error) {
	enough := ctx // set to a deadline once there is a route
	var asked *query
	for first := true; ; first = false {
		a, state := r.current()
		if a != asked {
			asked, enough = a, ctx
		}
		own := r.own()
		routes := newGraph(&own, state.nodes).routes(target, rdma)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: given up while looking for a route", fault.ErrUsage)
		case r.Context.Err() != nil:
			return nil, fmt.Errorf("%w: closed while looking for a route", fault.ErrUsage)
		case len(routes) > 0 && (state.over || state.complete || enough.Err() != nil):
			return routes, nil
		case len(routes) == 0 && state.over && first && state.stale:
			r.renew(a)
			continue
		case len(routes) == 0 && state.over:
			return nil, r.noRoute(a, target, rdma)
		case len(routes) > 0 && enough == ctx:
			patience, cancel := r.Clock.WithTimeout(ctx, r.Clock.Scaled(moreRoutesWait))
			defer cancel()
			enough = patience
		}
		select {
		case <-state.changed:
		case <-enough.Done():
		case <-r.Context.Done():
		}
	}
}

// state is the result of a survey so far.
type state struct {
	nodes    []handshake.MapNode
	complete bool // each queried node has replied or failed, and further neighbours are unlikely
	over     bool // the survey does not wait for replies any more
	stale    bool // another survey may find more
	changed  <-chan struct{}
}

// current returns the current survey and its state. It starts a survey if there is none.
func (r *Router) current() (*query, state) {
	own := r.Own
	r.mu.Lock()
	a, begin := r.survey, false
	if begin = a == nil; begin {
		a = newQuery(r, newQueryID(r.Random), own.Node, nil)
		r.survey = a
		r.rememberLocked(a.id)
	}
	status := state{
		nodes: a.nodesLocked(), complete: a.settled && a.answeredLocked(), over: !a.over.IsZero(), changed: r.changed,
		stale: a.stale || time.Since(a.over) >= r.Clock.Scaled(min(retryWait<<min(r.retries, 4), maxRetryWait)),
	}
	r.mu.Unlock()
	if begin {
		r.Background(func() { a.survey() })
	}
	return a, status
}

// renew drops a survey, unless another caller has done so.
func (r *Router) renew(a *query) {
	r.mu.Lock()
	if r.survey == a {
		r.retries++
		r.dropSurveyLocked()
		r.wakeLocked()
	}
	r.mu.Unlock()
}

func (r *Router) dropSurveyLocked() {
	if r.survey != nil {
		r.survey.cancelLocked()
		r.survey = nil
	}
}

// solicit starts neighbour discovery if needed, and returns when it began.
func (r *Router) solicit() time.Time {
	r.Discovery.Solicit()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.solicited.IsZero() {
		r.solicited = time.Now()
	}
	return r.solicited
}

// own returns this node's report about itself, with its cables.
func (r *Router) own() handshake.MapNode {
	n := r.Own
	n.Links = links(n.Node, r.Ports(), r.Discovery.Neighbours())
	return n
}

// links returns the cables to neighbours, one for each pair of ports. If there are more than a map may hold, it keeps
// those whose port has few neighbours, because such a port has a cable and does not lead to a switch.
func links(own handshake.NodeID, ports []Port, neighbours []Neighbour) []handshake.MapLink {
	var all []handshake.MapLink
	for _, n := range neighbours {
		i := slices.IndexFunc(ports, func(p Port) bool { return p.Index == n.Port && p.Name == n.Name })
		if i < 0 || n.Node == own {
			continue
		}
		p := ports[i]
		all = append(all, handshake.MapLink{Port: p.Index, Name: p.Name, Mbps: p.Mbps, RDMA: p.RDMA, Peer: n.Node, PeerName: n.PeerName})
	}
	all = sortLinks(all)
	if len(all) > handshake.MaxMapLinks {
		met := map[string]int{}
		for _, l := range all {
			met[l.Name]++
		}
		slices.SortStableFunc(all, func(a, b handshake.MapLink) int { return cmp.Compare(met[a.Name], met[b.Name]) })
		all = all[:handshake.MaxMapLinks]
	}
	return all
}

// neighbourNode is a neighbour node with its processes, in the order in which to query them.
type neighbourNode struct {
	node      handshake.NodeID
	processes []Neighbour // one for each pair of process and port
}

// neighbourNodes groups the neighbours by node. On each node, processes that only relay come first, because they live
// longest, then those with an existing session.
func (r *Router) neighbourNodes(own handshake.NodeID) []neighbourNode {
	var all []neighbourNode
	for _, n := range r.Discovery.Neighbours() {
		if n.Node == own {
			continue
		}
		i, ok := slices.BinarySearchFunc(all, n.Node, func(x neighbourNode, id handshake.NodeID) int { return bytes.Compare(x.node[:], id[:]) })
		if !ok {
			all = slices.Insert(all, i, neighbourNode{node: n.Node})
		}
		all[i].processes = append(all[i].processes, n)
	}
	known := map[handshake.ProcessID]bool{}
	for _, x := range all {
		for _, n := range x.processes {
			if _, ok := known[n.Process]; !ok {
				known[n.Process] = r.Sessions.Known(n.Process)
			}
		}
		slices.SortStableFunc(x.processes, func(a, b Neighbour) int {
			return cmp.Or(trueFirst(a.Dedicated, b.Dedicated), trueFirst(known[a.Process], known[b.Process]), bytes.Compare(a.Process[:], b.Process[:]), cmp.Compare(a.Port, b.Port))
		})
	}
	return all
}

// trueFirst compares so that true comes before false.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
