package mesh

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
	maxOpen = handshake.MaxMapNodes     // unanswered queries of one session
	maxJobs = 4 * handshake.MaxMapNodes // forwarded queries of one limitKey; queries that wait for the reply to another one do not count
	maxCurt = 256                       // queries that wait to be answered with this node alone, until this node knows its neighbours
	maxSeen = 256                       // query IDs that are remembered
)

// limitKey identifies the holder of one limit of forwarded queries: all sessions that came over one cable share a
// limit, so that they cannot use up the limit of another cable. A session that came over no cable has its own.
type share struct {
	cable   string
	session Session // nil if cable is set
}

func (m *Mesh) shareOf(s Session) share {
	if cable := m.Cable(s); cable != "" {
		return share{cable: cable}
	}
	return share{session: s}
}

// forward is a query of another node that this node forwards. Further queries that list the same nodes, for example
// from several processes of one node, wait for the same reply.
type job struct {
	*asking
	key  string
	from share
	to   []awaited // under Mesh.mu: the sessions and queries to reply to
}

// HandleQuery answers a query, after it has forwarded the query to the neighbours. It answers with this node alone if
// the query was received before, because then it has run in a circle, or if its session or its cable has too many
// queries open. It does not block.
func (m *Mesh) Asked(s Session, q *handshake.AskMap) {
	own, to, from, key := m.Own(), awaited{s, q.Query}, m.shareOf(s), kind(q.Asked)
	m.mu.Lock()
	m.counts.Asked++
	j := m.jobs[key]
	curt := m.rememberLocked(q.Query) || m.open[s] >= maxOpen || j == nil && m.begun[from] >= maxJobs
	if curt {
		m.counts.Curt++
		j = m.curt
		if j != nil && len(j.to) >= maxCurt {
			m.mu.Unlock()
			m.answer(to, []handshake.MapNode{m.own()})
			return
		}
	}
	begin := j == nil
	if begin {
		j = &job{asking: newAsking(m, q.Query, own.Node, q.Asked), key: key, from: from}
		j.quiet = curt
	}
	j.to = append(j.to, to)
	if curt {
		m.curt = j
	} else {
		if begin {
			m.jobs[key] = j
			m.begun[from]++
		}
		m.open[s]++
	}
	m.mu.Unlock()
	if begin {
		m.Background(func() { j.do(len(q.Asked)) })
	}
}

// queryKey returns a key that is equal for queries that list the same nodes.
func kind(asked []handshake.NodeID) string {
	sorted := slices.Clone(asked)
	slices.SortFunc(sorted, func(a, b handshake.NodeID) int { return bytes.Compare(a[:], b[:]) })
	var b []byte
	for _, n := range slices.Compact(sorted) {
		b = append(b, n[:]...)
	}
	return string(b)
}

// rememberLocked stores the ID of a query, and reports whether it was stored before. It needs Mesh.mu.
func (m *Mesh) rememberLocked(query [16]byte) (again bool) {
	if slices.Contains(m.seen[:], query) {
		return true
	}
	m.seen[m.turn%maxSeen] = query
	m.turn++
	return false
}

// serve queries the neighbours, and replies with the nodes that were reported in time.
func (j *job) do(asked int) {
	m := j.mesh
	ctx, cancel := m.Clock.WithTimeout(m.Context, m.patience(asked))
	defer cancel()
	_ = fault.Guarded(m.Log, "forward a query for the map", func() error { j.run(ctx, false); return nil })
	told, to := j.end()
	nodes := nearest(m.own(), told)
	for _, w := range to {
		m.answer(w, nodes)
	}
}

// finish removes the query from the tables, and returns the reported nodes and the sessions to reply to.
func (j *job) end() (told []handshake.MapNode, to []awaited) {
	m := j.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	j.forgetLocked()
	if j.quiet {
		m.curt = nil
		return nil, j.to
	}
	delete(m.jobs, j.key)
	if m.begun[j.from]--; m.begun[j.from] == 0 {
		delete(m.begun, j.from)
	}
	for _, w := range j.to {
		if m.open[w.session]--; m.open[w.session] == 0 {
			delete(m.open, w.session)
		}
	}
	return j.toldLocked(), j.to
}

// forwardTimeout returns the time for a forwarded query. It is shorter for each node that the query lists, so that the
// reply arrives while the nodes before this one still wait.
func (m *Mesh) patience(asked int) time.Duration {
	left := max(handshake.MaxMapNodes+1-asked, 1)
	return m.scaled(answerWait) * time.Duration(left) / (handshake.MaxMapNodes + 1)
}

func (m *Mesh) answer(to awaited, nodes []handshake.MapNode) {
	if err := to.session.Send(&handshake.Map{Query: to.query, Nodes: nodes}); err != nil {
		m.Log.Debug("no answer to a query for the map", "reason", err)
	}
}
