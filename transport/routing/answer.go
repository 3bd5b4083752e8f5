package routing

import (
	"bytes"
	"slices"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
)

// Limits of the queries of other nodes. A node may have as many forwarded queries in progress as there are nodes with a
// query in progress.
const (
	maxPerSession = handshake.MaxMapNodes     // unanswered queries of one session
	maxForwards   = 4 * handshake.MaxMapNodes // forwarded queries of one limitKey; queries that wait for the reply to another one do not count
	maxLocalOnly  = 256                       // queries that wait to be answered with this node alone, until this node knows its neighbours
	maxSeen       = 256                       // query IDs that are remembered
)

// limitKey identifies the holder of one limit of forwarded queries: all sessions that came over one cable share a
// limit, so that they cannot use up the limit of another cable. A session that came over no cable has its own.
type limitKey struct {
	cable   string
	session Session // nil if cable is set
}

func limitKeyOf(s Session) limitKey {
	if cable := s.Cable(); cable != "" {
		return limitKey{cable: cable}
	}
	return limitKey{session: s}
}

// forward is a query of another node that this node forwards. Further queries that list the same nodes, for example
// from several processes of one node, wait for the same reply.
type forward struct {
	*query
	key  string
	from limitKey
	to   []replyKey // under Router.mu: the sessions and queries to reply to
}

// HandleQuery answers a query, after it has forwarded the query to the neighbours. It answers with this node alone if
// the query was received before, because then it has run in a circle, or if its session or its cable has too many
// queries open. It does not block.
func (r *Router) HandleQuery(s Session, q *handshake.MapQuery) {
	own, to, from, key := r.Own, replyKey{s, q.Query}, limitKeyOf(s), queryKey(q.Asked)
	r.mu.Lock()
	r.counts.Asked++
	j := r.forwards[key]
	localOnly := r.rememberLocked(q.Query) || r.openBySession[s] >= maxPerSession || j == nil && r.forwardsBy[from] >= maxForwards
	if localOnly {
		r.counts.LocalOnly++
		j = r.localOnly
		if j != nil && len(j.to) >= maxLocalOnly {
			r.mu.Unlock()
			r.answer(to, []handshake.MapNode{r.own()})
			return
		}
	}
	begin := j == nil
	if begin {
		j = &forward{query: newQuery(r, q.Query, own.Node, q.Asked), key: key, from: from}
		j.localOnly = localOnly
	}
	j.to = append(j.to, to)
	if localOnly {
		r.localOnly = j
	} else {
		if begin {
			r.forwards[key] = j
			r.forwardsBy[from]++
		}
		r.openBySession[s]++
	}
	r.mu.Unlock()
	if begin {
		r.Background(func() { j.serve(len(q.Asked)) })
	}
}

// queryKey returns a key that is equal for queries that list the same nodes.
func queryKey(asked []handshake.NodeID) string {
	sorted := slices.Clone(asked)
	slices.SortFunc(sorted, func(a, b handshake.NodeID) int { return bytes.Compare(a[:], b[:]) })
	var b []byte
	for _, n := range slices.Compact(sorted) {
		b = append(b, n[:]...)
	}
	return string(b)
}

// rememberLocked stores the ID of a query, and reports whether it was stored before. It needs Router.mu.
func (r *Router) rememberLocked(query [16]byte) (again bool) {
	if slices.Contains(r.seen[:], query) {
		return true
	}
	r.seen[r.seenCount%maxSeen] = query
	r.seenCount++
	return false
}

// serve queries the neighbours, and replies with the nodes that were reported in time.
func (j *forward) serve(asked int) {
	r := j.router
	ctx, cancel := r.Clock.WithTimeout(r.Context, r.forwardTimeout(asked))
	defer cancel()
	_ = fault.Guarded(r.Log, "forward a query for the map", func() error { j.run(ctx, false); return nil })
	reported, to := j.finish()
	nodes := nearest(r.own(), reported)
	for _, w := range to {
		r.answer(w, nodes)
	}
}

// finish removes the query from the tables, and returns the reported nodes and the sessions to reply to.
func (j *forward) finish() (reported []handshake.MapNode, to []replyKey) {
	r := j.router
	r.mu.Lock()
	defer r.mu.Unlock()
	j.cancelLocked()
	if j.localOnly {
		r.localOnly = nil
		return nil, j.to
	}
	delete(r.forwards, j.key)
	if r.forwardsBy[j.from]--; r.forwardsBy[j.from] == 0 {
		delete(r.forwardsBy, j.from)
	}
	for _, w := range j.to {
		if r.openBySession[w.session]--; r.openBySession[w.session] == 0 {
			delete(r.openBySession, w.session)
		}
	}
	return j.nodesLocked(), j.to
}

// forwardTimeout returns the time for a forwarded query. It is shorter for each node that the query lists, so that the
// reply arrives while the nodes before this one still wait.
func (r *Router) forwardTimeout(asked int) time.Duration {
	left := max(handshake.MaxMapNodes+1-asked, 1)
	return r.Clock.Scaled(forwardWait) * time.Duration(left) / (handshake.MaxMapNodes + 1)
}

func (r *Router) answer(to replyKey, nodes []handshake.MapNode) {
	if err := to.session.Send(&handshake.Map{Query: to.query, Nodes: nodes}); err != nil {
		r.Log.Debug("no answer to a query for the map", "reason", err)
	}
}
