package mesh

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
type asking struct {
	mesh  *Mesh
	query [16]byte
	own   handshake.NodeID
	quiet bool // queries no neighbour; only waits until this node knows its neighbours

	// Under Mesh.mu.
	asked     []handshake.NodeID // nodes that are not to be queried: the list of the query, this node, and those queried since
	questions []*question        // ordered by node
	settled   bool               // it is unlikely that further neighbours are discovered
	over      time.Time          // when the process stopped waiting for replies; zero while it waits
	stale     bool               // a new neighbour was discovered after the query was over
	forgotten bool               // no caller needs the replies any more
}

// neighbourQuery is the part of a query that goes to one neighbour node.
type question struct {
	of     *asking
	peer   Neighbour           // the process that was queried last on that node
	answer []handshake.MapNode // nil until the reply has arrived
	err    error               // reason why no reply will arrive
}

// replyKey identifies an expected reply.
type awaited struct {
	session Session
	query   [16]byte
}

func newQuery(r random.Source) (q [16]byte) {
	r.Fill(q[:], "query for the map")
	return q
}

func newAsking(m *Mesh, query [16]byte, own handshake.NodeID, asked []handshake.NodeID) *asking {
	a := &asking{mesh: m, query: query, own: own, asked: slices.Clone(asked)}
	if !slices.Contains(asked, own) {
		a.asked = append(a.asked, own)
	}
	return a
}

// answeredLocked reports whether each queried node has replied or failed. It needs Mesh.mu.
func (a *asking) answeredLocked() bool {
	return !slices.ContainsFunc(a.questions, func(q *question) bool { return q.answer == nil && q.err == nil })
}

// nodesLocked returns the reported nodes: first each queried node's report about itself, then reports about nodes that
// have not replied themselves. It needs Mesh.mu.
func (a *asking) toldLocked() []handshake.MapNode {
	var told, others []handshake.MapNode
	asked := map[handshake.NodeID]bool{a.own: true}
	for _, q := range a.questions {
		if q.answer != nil {
			asked[q.peer.Node] = true
			told = append(told, q.answer[0])
			others = append(others, q.answer[1:]...)
		}
	}
	return append(told, slices.DeleteFunc(others, func(n handshake.MapNode) bool { return asked[n.Node] })...)
}

// cancelLocked stops waiting for replies. It needs Mesh.mu.
func (a *asking) forgetLocked() {
	a.forgotten = true
	maps.DeleteFunc(a.mesh.waiting, func(_ awaited, q *question) bool { return q.of == a })
}

// survey runs this process's own query for the map. Replies that arrive after it has ended are still used.
func (a *asking) survey() {
	m := a.mesh
	ctx, cancel := m.Clock.WithTimeout(m.Context, m.scaled(surveyWait))
	defer cancel()
	_ = fault.Guarded(m.Log, "query the map", func() error { a.run(ctx, true); return nil })
	m.mu.Lock()
	a.settled, a.over = true, time.Now()
	m.wakeLocked()
	m.mu.Unlock()
}

// run queries the neighbours, including those discovered meanwhile. It returns when all have replied and neighbour
// discovery has ended. If thorough is false, it does not wait for the end of discovery longer than settleWait.
func (a *asking) run(ctx context.Context, thorough bool) {
	m := a.mesh
	began := m.hail()
	m.pause(ctx, m.Hail.Done(), began.Add(m.scaled(gatherWait)))
	settle, cancel := m.Clock.WithDeadline(ctx, began.Add(m.scaled(settleWait)))
	defer cancel()
	for ctx.Err() == nil {
		m.hail() // solicits again if a port has changed
		news := m.events()
		done, late := m.Hail.Done(), settle.Done()
		heardAll, settled := closed(done), closed(late) // read before queryNew looks at the neighbours
		if heardAll {
			done = nil
		}
		if settled {
			late = nil
		}
		a.more(ctx)
		if a.check(heardAll || settled, heardAll || settled && !thorough) {
			return
		}
		select {
		case <-news:
		case <-done:
		case <-late:
		case <-ctx.Done():
		}
	}
}

// check sets settled, and reports whether the query is over: it was cancelled, or all is true and each queried node has
// replied or failed.
func (a *asking) check(settled, all bool) (end bool) {
	m := a.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	if settled && !a.settled {
		a.settled = true
		m.wakeLocked()
	}
	return a.forgotten || all && a.answeredLocked()
}

// pause waits until a time, or until the channel is closed or the context is done. It uses a context as its timer, as
// this package does everywhere: when a channel timer is due, several goroutines may receive from it at once, and the
// race detector reports that in a synctest bubble.
func (m *Mesh) pause(ctx context.Context, c <-chan struct{}, until time.Time) {
	ctx, cancel := m.Clock.WithDeadline(ctx, until)
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
func (a *asking) more(ctx context.Context) {
	m := a.mesh
	if a.quiet {
		return
	}
	met := m.met(a.own)
	var questions []*question
	m.mu.Lock()
	met = slices.DeleteFunc(met, func(x meet) bool { return slices.Contains(a.asked, x.node) })
	met = met[:min(len(met), max(handshake.MaxMapNodes-len(a.asked), 0))]
	for _, x := range met {
		q := &question{of: a, peer: x.processes[0]}
		questions = append(questions, q)
		a.asked = append(a.asked, x.node)
	}
	a.questions = append(a.questions, questions...)
	slices.SortStableFunc(a.questions, func(x, y *question) int { return bytes.Compare(x.peer.Node[:], y.peer.Node[:]) })
	ask := &handshake.AskMap{Query: a.query, Asked: slices.Clone(a.asked)}
	m.mu.Unlock()
	for i, q := range questions {
		m.Background(func() { q.put(ctx, met[i].processes, ask) })
	}
}

// send queries the first process of a node that can be reached.
func (q *question) put(ctx context.Context, processes []Neighbour, ask *handshake.AskMap) {
	m := q.of.mesh
	var errs []error
	for _, n := range processes {
		err := fault.Guarded(m.Log, "query a neighbour", func() error { return q.try(ctx, n, ask) })
		if err == nil {
			return
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	m.mu.Lock()
	q.err = errors.Join(errs...)
	m.wakeLocked()
	m.mu.Unlock()
}

// sendTo queries one process.
func (q *question) try(ctx context.Context, n Neighbour, ask *handshake.AskMap) error {
	m := q.of.mesh
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s, err := m.Session(ctx, n)
	if err != nil {
		return err
	}
	key := awaited{s, ask.Query}
	m.mu.Lock()
	wanted := m.waiting[key] == nil && !q.of.forgotten // a session leads to one node, so that one reply is expected from it
	if wanted {
		q.peer = n
		m.waiting[key] = q
	}
	m.mu.Unlock()
	if !wanted {
		return errors.New("no query waits for its answer")
	}
	if err := s.Send(ask); err != nil {
		m.mu.Lock()
		delete(m.waiting, key)
		m.mu.Unlock()
		return err
	}
	return nil
}

// HandleReply stores a reply to a query. It ignores a reply that this process does not expect from that session, and a
// second one.
func (m *Mesh) Told(s Session, a *handshake.Map) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := awaited{s, a.Query}
	q := m.waiting[key]
	if q == nil {
		m.counts.Unasked++
		return
	}
	delete(m.waiting, key)
	if len(a.Nodes) == 0 || a.Nodes[0].Node != q.peer.Node || a.Nodes[0].Process != q.peer.Process {
		m.counts.Unasked++
		q.err = errors.New("it answered for another node")
	} else {
		q.answer = a.Nodes
	}
	m.wakeLocked()
}
