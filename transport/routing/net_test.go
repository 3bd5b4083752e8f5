package routing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ncclmesh/handshake"
)

// network is nodes and cables in memory, for tests in virtual time.
type network struct {
	t     *testing.T
	ctx   context.Context
	close context.CancelFunc
	nodes map[string]*host

	mu   sync.Mutex
	down map[string]bool // cables that are pulled, as "A p0"
	sent map[string]int  // messages by kind and sender
}

// host is a node of the network with one process.
type host struct {
	*Router
	net    *network
	entry  handshake.MapNode // as it is when all cables are plugged in
	asked  func(*remote, *handshake.MapQuery)
	mu     sync.Mutex
	done   chan struct{} // of the round of queries; nil before
	heard  bool          // of neighbours, by neighbour discovery
	ends   map[*host]*remote
	dialed []string // with whom sessions were wanted
	refuse map[string]error
	known  handshake.ProcessID // a session with it exists
}

// remote is one end of a session.
type remote struct{ from, to *host }

func newNetwork(t *testing.T, text string) *network {
	n := &network{t: t, nodes: map[string]*host{}, down: map[string]bool{}, sent: map[string]int{}}
	n.ctx, n.close = context.WithCancel(context.Background())
	for _, entry := range cabling(text) {
		n.add(entry, entry.Hostname)
	}
	return n
}

// add adds a process.
func (n *network) add(entry handshake.MapNode, name string) *host {
	h := &host{net: n, entry: entry, ends: map[*host]*remote{}, refuse: map[string]error{}}
	own := entry
	own.Links = nil
	h.Router = New(Config{
		Own: own,
		Ports: func() (ports []Port) {
			for _, l := range h.entry.Links {
				ports = append(ports, Port{Index: l.Port, Name: l.Name, Mbps: l.Mbps, RDMA: l.RDMA})
			}
			return ports
		},
		Discovery: h, Sessions: h, Background: func(f func()) { go f() }, Context: n.ctx,
	})
	h.asked = h.answerNow
	n.nodes[name] = h
	return h
}

func (h *host) answerNow(s *remote, q *handshake.MapQuery) { h.HandleQuery(s, q) }

// setAsked replaces the function that handles queries on a node.
func (h *host) setAsked(f func(*remote, *handshake.MapQuery)) {
	h.mu.Lock()
	h.asked = f
	h.mu.Unlock()
}

// Solicit discovers all neighbours after 15 ms, and ends after 2 s.
func (h *host) Solicit() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done != nil {
		return
	}
	done := make(chan struct{})
	h.done = done
	time.AfterFunc(15*time.Millisecond, func() {
		h.mu.Lock()
		current := h.done == done
		h.heard = h.heard || current
		h.mu.Unlock()
		if current {
			h.NeighbourFound()
		}
	})
	time.AfterFunc(2*time.Second, func() { close(done) })
}

func (h *host) Done() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.done
}

func (h *host) Neighbours() (all []Neighbour) {
	h.mu.Lock()
	heard := h.heard
	h.mu.Unlock()
	if !heard {
		return nil
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for _, l := range h.entry.Links {
		for _, p := range h.net.nodes {
			if p.entry.Node == l.Peer && !h.net.down[h.entry.Hostname+" "+l.Name] && !h.net.down[p.entry.Hostname+" "+l.PeerName] {
				i := slices.IndexFunc(p.entry.Links, func(x handshake.MapLink) bool { return x.Name == l.PeerName })
				all = append(all, Neighbour{Port: l.Port, Name: l.Name, Process: p.entry.Process, Node: l.Peer, Dedicated: p.entry.Dedicated, PeerPort: p.entry.Links[i].Port, PeerName: l.PeerName})
			}
		}
	}
	return all
}

// changed handles a change of the ports.
func (h *host) changed() {
	h.mu.Lock()
	h.done, h.heard = nil, false
	h.mu.Unlock()
	h.Changed()
}

// plug unplugs a cable, or plugs it in again.
func (n *network) plug(in bool, name, port string) {
	h := n.nodes[name]
	i := slices.IndexFunc(h.entry.Links, func(l handshake.MapLink) bool { return l.Name == port })
	n.mu.Lock()
	n.down[name+" "+port] = !in
	n.mu.Unlock()
	for _, p := range n.nodes {
		if p == h || p.entry.Node == h.entry.Links[i].Peer {
			p.changed()
		}
	}
}

// Known reports whether a session with a process exists.
func (h *host) Known(p handshake.ProcessID) bool { return p == h.known }

// Dial returns a session with a neighbour.
func (h *host) Dial(ctx context.Context, to Neighbour) (Session, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, p := range h.net.nodes {
		if p.entry.Process == to.Process {
			h.dialed = append(h.dialed, name)
			if err := h.refuse[name]; err != nil {
				return nil, err
			}
			return h.endLocked(p), nil
		}
	}
	return nil, errors.New("no such process")
}

func (h *host) endLocked(p *host) *remote {
	if h.ends[p] == nil {
		h.ends[p] = &remote{h, p}
	}
	return h.ends[p]
}

// Cable returns no interface: each session has a limit of its own.
func (e *remote) Cable() string { return "" }

// Send delivers a message after a millisecond.
func (e *remote) Send(m handshake.Message) error {
	b, err := handshake.AppendMessage(nil, m)
	if err != nil {
		return err
	}
	m, err = handshake.DecodeMessage(m.Type(), b)
	if err != nil {
		return err
	}
	n := e.from.net
	n.mu.Lock()
	n.sent[m.Type().String()+" "+e.from.entry.Hostname]++
	n.mu.Unlock()
	time.AfterFunc(time.Millisecond, func() {
		if n.ctx.Err() != nil {
			return
		}
		e.to.mu.Lock()
		back, asked := e.to.endLocked(e.from), e.to.asked
		e.to.mu.Unlock()
		switch m := m.(type) {
		case *handshake.MapQuery:
			asked(back, m)
		case *handshake.Map:
			e.to.HandleReply(back, m)
		}
	})
	return nil
}

// count returns how many messages of a kind all nodes have sent since the last call.
func (n *network) count(kind string) (all int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k, c := range n.sent {
		if strings.HasPrefix(k, kind+" ") {
			all += c
			delete(n.sent, k)
		}
	}
	return all
}
