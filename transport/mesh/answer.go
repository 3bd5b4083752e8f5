package mesh

import (
	"bytes"
	"slices"
	"time"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
)

// Limits of what others may ask. A node of a mesh has as many questions under way as nodes ask at once.
const (
	maxOpen = handshake.MaxMapNodes     // of one session
	maxJobs = 4 * handshake.MaxMapNodes // that are passed on for one cable, besides those that wait for the same answer
	maxCurt = 256                       // that are answered with this node alone, once it knows its neighbours
	maxSeen = 256
)

// share identifies what has one limit of jobs: all sessions of one cable's neighbours, so that those of another cable keep
// theirs, or one session that came over no cable.
type share struct {
	cable   string
	session Session // nil where there is a cable
}

func (m *Mesh) shareOf(s Session) share {
	if cable := m.Cable(s); cable != "" {
		return share{cable: cable}
	}
	return share{session: s}
}

// job is a question of somebody else that is passed on. Others of the same kind, as of several processes of a node, wait
// for the same answer.
type job struct {
	*asking
	key  string
	from share
	to   []awaited // under Mesh.mu: who wants to know
}

// Asked answers a question, later, as neighbours are asked before. One that has come before, and so goes round, is answered
// with nothing but this node; so is one too many of its session or its cable.
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

// kind is the same for questions that are put to the same nodes.
func kind(asked []handshake.NodeID) string {
	sorted := slices.Clone(asked)
	slices.SortFunc(sorted, func(a, b handshake.NodeID) int { return bytes.Compare(a[:], b[:]) })
	var b []byte
	for _, n := range slices.Compact(sorted) {
		b = append(b, n[:]...)
	}
	return string(b)
}

// rememberLocked reports whether a question was seen before.
func (m *Mesh) rememberLocked(query [16]byte) (again bool) {
	if slices.Contains(m.seen[:], query) {
		return true
	}
	m.seen[m.turn%maxSeen] = query
	m.turn++
	return false
}

// do asks the neighbours and answers with what has come in time.
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

// end returns what was answered, and to whom to pass it on.
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

// patience is how long others may take: less for each node that was asked before, so that an answer reaches those who
// asked while they still wait.
func (m *Mesh) patience(asked int) time.Duration {
	left := max(handshake.MaxMapNodes+1-asked, 1)
	return m.scaled(answerWait) * time.Duration(left) / (handshake.MaxMapNodes + 1)
}

func (m *Mesh) answer(to awaited, nodes []handshake.MapNode) {
	if err := to.session.Send(&handshake.Map{Query: to.query, Nodes: nodes}); err != nil {
		m.Log.Debug("no answer to a query for the map", "reason", err)
	}
}
