package routing

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/random"
	"ncclmesh/transport/fault"
)

// query is one query for the map that is sent to the neighbours: this process's own, or a forwarded one.
type query struct {
	router    *Router
	id        [16]byte
	own       handshake.NodeID
	localOnly bool // queries no neighbour; only waits until this node knows its neighbours

	// Under Router.mu.
	asked      []handshake.NodeID // nodes that are not to be queried: the list of the query, this node, and those queried since
	neighbours []*neighbourQuery  // ordered by node
	settled    bool               // it is unlikely that further neighbours are discovered
	over       time.Time          // when the process stopped waiting for replies; zero while it waits
	stale      bool               // a new neighbour was discovered after the query was over
	cancelled  bool               // no caller needs the replies any more
}

// neighbourQuery is the part of a query that goes to one neighbour node.
type neighbourQuery struct {
	of     *query
	peer   Neighbour           // the process that was queried last on that node
	answer []handshake.MapNode // nil until the reply has arrived
	err    error               // reason why no reply will arrive
}

// replyKey identifies an expected reply.
type replyKey struct {
	session Session
	query   [16]byte
}

func newQueryID(r random.Source) (q [16]byte) {
	r.Fill(q[:], "query for the map")
	return q
}

func newQuery(r *Router, id [16]byte, own handshake.NodeID, asked []handshake.NodeID) *query {
	a := &query{router: r, id: id, own: own, asked: slices.Clone(asked)}
	if !slices.Contains(asked, own) {
		a.asked = append(a.asked, own)
	}
	return a
}

// answeredLocked reports whether each queried node has replied or failed. It needs Router.mu.
func (a *query) answeredLocked() bool {
	return !slices.ContainsFunc(a.neighbours, func(q *neighbourQuery) bool { return q.answer == nil && q.err == nil })
}

// nodesLocked returns the reported nodes: first each queried node's report about itself, then reports about nodes that
// have not replied themselves. It needs Router.mu.
func (a *query) nodesLocked() []handshake.MapNode {
	var reported, others []handshake.MapNode
	asked := map[handshake.NodeID]bool{a.own: true}
	for _, q := range a.neighbours {
		if q.answer != nil {
			asked[q.peer.Node] = true
			reported = append(reported, q.answer[0])
			others = append(others, q.answer[1:]...)
		}
	}
	return append(reported, slices.DeleteFunc(others, func(n handshake.MapNode) bool { return asked[n.Node] })...)
}

// cancelLocked stops waiting for replies. It needs Router.mu.
func (a *query) cancelLocked() {
	a.cancelled = true
	maps.DeleteFunc(a.router.expected, func(_ replyKey, q *neighbourQuery) bool { return q.of == a })
}

// survey runs this process's own query for the map. Replies that arrive after it has ended are still used.
func (a *query) survey() {
	r := a.router
	ctx, cancel := r.Clock.WithTimeout(r.Context, r.Clock.Scaled(surveyWait))
	defer cancel()
	_ = fault.Guarded(r.Log, "query the map", func() error { a.run(ctx, true); return nil })
	r.mu.Lock()
	a.settled, a.over = true, time.Now()
	r.wakeLocked()
	r.mu.Unlock()
}

// run queries the neighbours, including those discovered meanwhile. It returns when all have replied and neighbour
// discovery has ended. If thorough is false, it does not wait for the end of discovery longer than settleWait.
func (a *query) run(ctx context.Context, thorough bool) {
	r := a.router
	began := r.solicit()
	r.pause(ctx, r.Discovery.Done(), began.Add(r.Clock.Scaled(gatherWait)))
	settle, cancel := r.Clock.WithDeadline(ctx, began.Add(r.Clock.Scaled(settleWait)))
	defer cancel()
	for ctx.Err() == nil {
		r.solicit() // solicits again if a port has changed
		changed := r.events()
		done, late := r.Discovery.Done(), settle.Done()
		heardAll, settled := closed(done), closed(late) // read before queryNew looks at the neighbours
		if heardAll {
			done = nil
		}
		if settled {
			late = nil
		}
		a.queryNew(ctx)
		if a.check(heardAll || settled, heardAll || settled && !thorough) {
			return
		}
		select {
		case <-changed:
		case <-done:
		case <-late:
		case <-ctx.Done():
		}
	}
}

// check sets settled, and reports whether the query is over: it was cancelled, or all is true and each queried node has
// replied or failed.
func (a *query) check(settled, all bool) (end bool) {
	r := a.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if settled && !a.settled {
		a.settled = true
		r.wakeLocked()
	}
	return a.cancelled || all && a.answeredLocked()
}

// pause waits until a time, or until the channel is closed or the context is done. It uses a context as its timer, as
// this package does everywhere: when a channel timer is due, several goroutines may receive from it at once, and the
// race detector reports that in a synctest bubble.
func (r *Router) pause(ctx context.Context, c <-chan struct{}, until time.Time) {
	ctx, cancel := r.Clock.WithDeadline(ctx, until)
	defer cancel()
	select {
	case <-c:
	case <-ctx.Done():
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// queryNew queries the neighbours that are not in the list yet, one process of each node.
func (a *query) queryNew(ctx context.Context) {
	r := a.router
	if a.localOnly {
		return
	}
	met := r.neighbourNodes(a.own)
	var questions []*neighbourQuery
	r.mu.Lock()
	met = slices.DeleteFunc(met, func(x neighbourNode) bool { return slices.Contains(a.asked, x.node) })
	met = met[:min(len(met), max(handshake.MaxMapNodes-len(a.asked), 0))]
	for _, x := range met {
		q := &neighbourQuery{of: a, peer: x.processes[0]}
		questions = append(questions, q)
		a.asked = append(a.asked, x.node)
	}
	a.neighbours = append(a.neighbours, questions...)
	slices.SortStableFunc(a.neighbours, func(x, y *neighbourQuery) int { return bytes.Compare(x.peer.Node[:], y.peer.Node[:]) })
	ask := &handshake.MapQuery{Query: a.id, Asked: slices.Clone(a.asked)}
	r.mu.Unlock()
	for i, q := range questions {
		r.Background(func() { q.send(ctx, met[i].processes, ask) })
	}
}

// send queries the first process of a node that can be reached.
func (q *neighbourQuery) send(ctx context.Context, processes []Neighbour, ask *handshake.MapQuery) {
	r := q.of.router
	var errs []error
	for _, n := range processes {
		err := fault.Guarded(r.Log, "query a neighbour", func() error { return q.sendTo(ctx, n, ask) })
		if err == nil {
			return
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	r.mu.Lock()
	q.err = errors.Join(errs...)
	r.wakeLocked()
	r.mu.Unlock()
}

// sendTo queries one process.
func (q *neighbourQuery) sendTo(ctx context.Context, n Neighbour, ask *handshake.MapQuery) error {
	r := q.of.router
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s, err := r.Sessions.Dial(ctx, n)
	if err != nil {
		return err
	}
	key := replyKey{s, ask.Query}
	r.mu.Lock()
	wanted := r.expected[key] == nil && !q.of.cancelled // a session leads to one node, so that one reply is expected from it
	if wanted {
		q.peer = n
		r.expected[key] = q
	}
	r.mu.Unlock()
	if !wanted {
		return errors.New("no query waits for its answer")
	}
	if err := s.Send(ask); err != nil {
		r.mu.Lock()
		delete(r.expected, key)
		r.mu.Unlock()
		return err
	}
	return nil
}

// HandleReply stores a reply to a query. It ignores a reply that this process does not expect from that session, and a
// second one.
func (r *Router) HandleReply(s Session, a *handshake.Map) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := replyKey{s, a.Query}
	q := r.expected[key]
	if q == nil {
		r.counts.Unasked++
		return
	}
	delete(r.expected, key)
	if len(a.Nodes) == 0 || a.Nodes[0].Node != q.peer.Node || a.Nodes[0].Process != q.peer.Process {
		r.counts.Unasked++
		q.err = errors.New("it answered for another node")
	} else {
		q.answer = a.Nodes
	}
	r.wakeLocked()
}
