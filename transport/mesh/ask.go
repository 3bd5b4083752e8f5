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

// asking is one question for the map, put to neighbours: this process's own, or one that it passes on.
type asking struct {
	mesh  *Mesh
	query [16]byte
	own   handshake.NodeID
	quiet bool // asks nobody: waits until this node knows its neighbours

	// Under Mesh.mu.
	asked     []handshake.NodeID // who is not to be asked, or was
	questions []*question        // by node
	settled   bool               // who can be a neighbour most likely is one
	over      time.Time          // since when nobody is waited for; zero while somebody is
	stale     bool               // neighbours have come since
	forgotten bool               // nobody wants to know any more
}

// question is what one neighbour is asked.
type question struct {
	of     *asking
	peer   Neighbour           // the last that was asked of the node
	answer []handshake.MapNode // nil until it has come
	err    error               // why none will
}

// awaited names an answer that is to come.
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

// answeredLocked reports whether all who were asked have answered, or never will.
func (a *asking) answeredLocked() bool {
	return !slices.ContainsFunc(a.questions, func(q *question) bool { return q.answer == nil && q.err == nil })
}

// toldLocked is what was answered: what a node says of itself, then what others say of nodes that have not.
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

// forgetLocked ends the waiting for answers.
func (a *asking) forgetLocked() {
	a.forgotten = true
	maps.DeleteFunc(a.mesh.waiting, func(_ awaited, q *question) bool { return q.of == a })
}

// survey asks on this process's own behalf. Answers that come when it is over are still of use.
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

// run asks the neighbours, also those that are heard meanwhile, until all have answered and either hailing is over or,
// if thorough is false, those that are there have had their time.
func (a *asking) run(ctx context.Context, thorough bool) {
	m := a.mesh
	began := m.hail()
	m.pause(ctx, m.Hail.Done(), began.Add(m.scaled(gatherWait)))
	settle, cancel := m.Clock.WithDeadline(ctx, began.Add(m.scaled(settleWait)))
	defer cancel()
	for ctx.Err() == nil {
		m.hail() // anew, if a port has changed
		news := m.events()
		done, late := m.Hail.Done(), settle.Done()
		heardAll, settled := closed(done), closed(late) // before it is looked who was heard
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

// check takes note of whether more neighbours are likely, and reports whether those that were asked were all and have
// answered.
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

// pause waits, unless the channel is closed before. A context serves as its timer, as everywhere here: of a channel's timer
// that is due several goroutines may take note at once, which the race detector in a bubble of synctest does not survive.
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

// more asks the neighbours that nobody has asked yet, one process of each node.
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

// put asks the first process of a node that can be reached.
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

// try asks one process.
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
	wanted := m.waiting[key] == nil && !q.of.forgotten // one session leads to one node
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

// Told takes an answer. It counts once, and from whom was asked.
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
