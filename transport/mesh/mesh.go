package mesh

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
	"ncclmesh/transport/fault"
	"ncclmesh/transport/hail"
)

// Waits, before TimeScale.
const (
	gatherWait = 25 * time.Millisecond  // for the neighbours that answer at once, which are asked together
	settleWait = 150 * time.Millisecond // for those that were hailed once more: who has not answered then is not waited for by others
	enoughWait = 400 * time.Millisecond // for more routes than there are: a connection keeps to those that it begins with
	surveyWait = 2 * time.Second        // for the first
	answerWait = 1500 * time.Millisecond
	lackWait   = time.Second // before it is asked again for a node to which no route was found, doubled each time up to
	lackMost   = 10 * time.Second
)

// Neighbour is a process at the other end of a cable.
type Neighbour = hail.Neighbour

// Hailer knows the neighbours.
type Hailer interface {
	Hail()                   // begins to ask who they are, unless that is known; does not block
	Done() <-chan struct{}   // closed when that is over
	Neighbours() []Neighbour // that have answered so far
}

// Session carries messages to another process. Sessions are compared: there is one value of each.
type Session interface {
	Send(handshake.Message) error // does not block
}

// Port is a port of this node that may have a cable.
type Port struct {
	Index uint8 // Port.Index
	Name  string
	Mbps  uint32
	RDMA  bool
}

// Config is what a Mesh works with. None of its functions is called with a lock held.
type Config struct {
	Own        func() handshake.MapNode // this process and node; the Mesh adds the cables
	Ports      func() []Port
	Hail       Hailer
	Session    func(context.Context, Neighbour) (Session, error) // with a neighbour; may block until the context is done
	Known      func(handshake.ProcessID) bool                    // whether there is a session with the process already; nil: with none
	Cable      func(Session) string                              // the interface of the cable that the session of a neighbour came over, or ""; nil: ""
	Background func(func())                                      // runs a function on a goroutine, at once when the process ends
	Context    context.Context                                   // done when the process ends
	TimeScale  float64                                           // multiplies every wait; 0: 1
	Clock      clock.Clock                                       // makes the timers
	Random     random.Source                                     // of the numbers of queries
	Log        *slog.Logger                                      // nil: nobody is told
}

// Mesh is what this process knows of the mesh. Its methods may be called from any goroutine; but for Routes they do not
// block.
type Mesh struct {
	Config

	mu      sync.Mutex            // a leaf
	news    chan struct{}         // closed, and made anew, when anything below has changed
	hailed  time.Time             // since when neighbours answer; zero when nobody has hailed them
	survey  *asking               // this process's own, nil when the map is not known
	lacks   int                   // times that it was asked for anew
	jobs    map[string]*job       // questions of others, by the nodes that were asked
	curt    *job                  // those of them that are not passed on, nil when there is none
	waiting map[awaited]*question // answers that are to come
	open    map[Session]int       // questions of others to which they wait for an answer
	begun   map[share]int         // and jobs, by those for whom they were begun
	seen    [maxSeen][16]byte     // the last questions
	turn    int                   // of them
	counts  Counts                // what was asked and answered
}

// Counts are figures of a Mesh.
type Counts struct {
	Asked   uint64 // questions of others
	Curt    uint64 // of these, answered with this node alone: asked twice, or too many at once
	Unasked uint64 // answers that nobody had asked for, and false ones
}

// New makes a Mesh that knows nothing yet.
func New(c Config) *Mesh {
	if c.TimeScale == 0 {
		c.TimeScale = 1
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Known == nil {
		c.Known = func(handshake.ProcessID) bool { return false }
	}
	if c.Cable == nil {
		c.Cable = func(Session) string { return "" }
	}
	return &Mesh{
		Config: c, news: make(chan struct{}), jobs: map[string]*job{},
		waiting: map[awaited]*question{}, open: map[Session]int{}, begun: map[share]int{},
	}
}

func (m *Mesh) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * m.TimeScale)
}

// Counts returns what was counted so far.
func (m *Mesh) Counts() Counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// Changed forgets the map: a port of this node has changed. The Hailer was told before.
func (m *Mesh) Changed() {
	m.mu.Lock()
	m.hailed, m.lacks = time.Time{}, 0
	m.dropSurveyLocked()
	m.wakeLocked()
	m.mu.Unlock()
}

// Heard says that a neighbour has answered that was not known before.
func (m *Mesh) Heard() {
	m.mu.Lock()
	if m.survey != nil && !m.survey.over.IsZero() {
		m.survey.stale, m.lacks = true, 0
	}
	m.wakeLocked()
	m.mu.Unlock()
}

// Gone says that a session has ended: nothing more is answered over it.
func (m *Mesh) Gone(s Session) {
	m.mu.Lock()
	for k, q := range m.waiting {
		if k.session == s {
			q.err = errors.New("the session with it has ended")
			delete(m.waiting, k)
		}
	}
	m.wakeLocked()
	m.mu.Unlock()
}

func (m *Mesh) wakeLocked() {
	close(m.news)
	m.news = make(chan struct{})
}

// events returns a channel that is closed when anything has changed after the call.
func (m *Mesh) events() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news
}

// Routes returns the ways to a node through others, the one to prefer first, and asks for the map if it is not known.
// rdma asks for queue pairs all the way. The error says who lacks.
//
// It returns when all neighbours have answered, or some time after the first way was found; when none is found, once
// everybody has answered who is likely to. Who asks meanwhile waits for the same answers.
func (m *Mesh) Routes(ctx context.Context, target handshake.NodeID, rdma bool) ([]Route, error) {
	enough := ctx // until there are routes
	var asked *asking
	for first := true; ; first = false {
		a, state := m.current()
		if a != asked {
			asked, enough = a, ctx
		}
		own := m.own()
		routes := newGraph(&own, state.told).routes(target, rdma)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: given up while looking for a route", fault.ErrUsage)
		case m.Context.Err() != nil:
			return nil, fmt.Errorf("%w: closed while looking for a route", fault.ErrUsage)
		case len(routes) > 0 && (state.over || state.complete || enough.Err() != nil):
			return routes, nil
		case len(routes) == 0 && state.over && first && state.stale:
			m.renew(a)
			continue
		case len(routes) == 0 && state.over:
			return nil, m.noRoute(a, target, rdma)
		case len(routes) > 0 && enough == ctx:
			patience, cancel := m.Clock.WithTimeout(ctx, m.scaled(enoughWait))
			defer cancel()
			enough = patience
		}
		select {
		case <-state.news:
		case <-enough.Done():
		case <-m.Context.Done():
		}
	}
}

// state is what a survey has come to.
type state struct {
	told     []handshake.MapNode
	complete bool // everybody asked has answered, and hardly anybody is left to ask
	over     bool // nobody is waited for any more
	stale    bool // it is worth while to ask again
	news     <-chan struct{}
}

// current returns the survey, which it begins if there is none.
func (m *Mesh) current() (*asking, state) {
	own := m.Own()
	m.mu.Lock()
	a, begin := m.survey, false
	if begin = a == nil; begin {
		a = newAsking(m, newQuery(m.Random), own.Node, nil)
		m.survey = a
		m.rememberLocked(a.query)
	}
	st := state{
		told: a.toldLocked(), complete: a.settled && a.answeredLocked(), over: !a.over.IsZero(), news: m.news,
		stale: a.stale || time.Since(a.over) >= m.scaled(min(lackWait<<min(m.lacks, 4), lackMost)),
	}
	m.mu.Unlock()
	if begin {
		m.Background(func() { a.survey() })
	}
	return a, st
}

// renew forgets a survey, unless somebody else has.
func (m *Mesh) renew(a *asking) {
	m.mu.Lock()
	if m.survey == a {
		m.lacks++
		m.dropSurveyLocked()
		m.wakeLocked()
	}
	m.mu.Unlock()
}

func (m *Mesh) dropSurveyLocked() {
	if m.survey != nil {
		m.survey.forgetLocked()
		m.survey = nil
	}
}

// hail makes the neighbours known, and returns since when they answer.
func (m *Mesh) hail() time.Time {
	m.Hail.Hail()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hailed.IsZero() {
		m.hailed = time.Now()
	}
	return m.hailed
}

// own is what this node tells of itself.
func (m *Mesh) own() handshake.MapNode {
	n := m.Own()
	n.Links = links(n.Node, m.Ports(), m.Hail.Neighbours())
	return n
}

// links are the cables to neighbours, of each port one to each port that it meets. When there are too many, those count
// whose port meets few: it has a cable, and no switch.
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

// meet is a node at the other end of a cable or more, with its processes there, the one to ask first.
type meet struct {
	node      handshake.NodeID
	processes []Neighbour // one of them for each port
}

// met sorts neighbours by node, and in it those first that live longest, then those to whom there is a session.
func (m *Mesh) met(own handshake.NodeID) []meet {
	var all []meet
	for _, n := range m.Hail.Neighbours() {
		if n.Node == own {
			continue
		}
		i, ok := slices.BinarySearchFunc(all, n.Node, func(x meet, id handshake.NodeID) int { return bytes.Compare(x.node[:], id[:]) })
		if !ok {
			all = slices.Insert(all, i, meet{node: n.Node})
		}
		all[i].processes = append(all[i].processes, n)
	}
	known := map[handshake.ProcessID]bool{}
	for _, x := range all {
		for _, n := range x.processes {
			if _, ok := known[n.Process]; !ok {
				known[n.Process] = m.Known(n.Process)
			}
		}
		slices.SortStableFunc(x.processes, func(a, b Neighbour) int {
			return cmp.Or(before(a.Dedicated, b.Dedicated), before(known[a.Process], known[b.Process]), bytes.Compare(a.Process[:], b.Process[:]), cmp.Compare(a.Port, b.Port))
		})
	}
	return all
}

// before compares so that true comes before false.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
