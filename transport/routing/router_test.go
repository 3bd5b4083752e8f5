package routing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/fault"
)

// meshTest runs with nodes and cables, in virtual time. A goroutine that is left running fails the test.
func meshTest(t *testing.T, cabling string, f func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, cabling)
		f(t, n)
		n.close()
		time.Sleep(time.Minute) // for timers of discovery
		synctest.Wait()
		for name, h := range n.nodes {
			h.Router.mu.Lock()
			if len(h.forwards)+len(h.openBySession)+len(h.forwardsBy) > 0 || h.localOnly != nil {
				t.Errorf("%s still works at %d questions of %d sessions", name, len(h.forwards), len(h.openBySession))
			}
			h.Router.mu.Unlock()
		}
	})
}

func (n *network) routes(from, to string) ([]string, error) {
	r, err := n.nodes[from].Routes(n.t.Context(), nodeID(to), true)
	return words(r), err
}

// want checks the routes between two nodes and the time to find them.
func (n *network) want(from, to string, within time.Duration, want ...string) {
	n.t.Helper()
	began := time.Now()
	got, err := n.routes(from, to)
	if err != nil && want != nil {
		n.t.Errorf("%s to %s: %v", from, to, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Errorf("%s to %s (-want +got):\n%s", from, to, diff)
	}
	if took := time.Since(began); took > within {
		n.t.Errorf("%s to %s: %v, more than %v", from, to, took, within)
	}
}

// All pairs of nodes find the best routes of the whole mesh, concurrently and one by one.
func TestAllPairs(t *testing.T) {
	tests := []struct{ name, cabling string }{
		{"ring of 3", "A-B B-C C-A"}, {"ring of 4", ring4}, {"ring of 5", ring5}, {"ring of 6", ring6},
		{"line of 4", "A-B B-C C-D"}, {"star of 4", "A-S B-S C-S"}, {"two triangles", triangles},
		{"ring of 16", "A-B B-C C-D D-E E-F F-G G-H H-I I-J J-K K-L L-M M-N N-O O-P P-A"},
		{"all with all", "A-B A-C A-D A-E B-C B-D B-E C-D C-E D-E"},
	}
	for _, tt := range tests {
		for _, together := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, together %v", tt.name, together), func(t *testing.T) {
				meshTest(t, tt.cabling, func(t *testing.T, n *network) {
					var wg sync.WaitGroup
					for from := range n.nodes {
						for to := range n.nodes {
							own, reported := without(cabling(tt.cabling), from)
							want := words(newGraph(&own, reported).routes(nodeID(to), true))
							if want == nil {
								continue
							}
							if together {
								wg.Go(func() { n.want(from, to, time.Second, want...) })
							} else {
								n.want(from, to, time.Second, want...)
							}
						}
					}
					wg.Wait()
				})
			})
		}
	}
}

// One map serves all callers and all targets.
func TestOneMap(t *testing.T) {
	meshTest(t, ring4, func(t *testing.T, n *network) {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { n.want("A", "C", time.Second, "p0 B", "p1 D") })
		}
		wg.Wait()
		if got := n.count("MapQuery"); got != 4 { // A asks B and D, each of which asks C
			t.Errorf("%d questions, want 4", got)
		}
		n.want("A", "B", 0, "p1 D C")
		n.want("A", "C", 0, "p0 B", "p1 D")
		time.Sleep(time.Hour)
		n.want("A", "C", 0, "p0 B", "p1 D")
		if got := n.count("MapQuery"); got != 0 {
			t.Errorf("%d questions more", got)
		}
	})
}

// A cable that is unplugged is in no map; one that is plugged in again is.
func TestChanged(t *testing.T) {
	meshTest(t, "A-B B-C C-A", func(t *testing.T, n *network) {
		n.want("A", "B", time.Second, "p1 C")
		n.plug(false, "A", "p1") // to C
		n.want("A", "C", time.Second, "p0 B")
		n.want("A", "B", 3*time.Second)
		n.plug(true, "A", "p1")
		n.want("A", "B", time.Second, "p1 C")
	})
}

// A change while routes are searched starts a new search.
func TestChangedMeanwhile(t *testing.T) {
	meshTest(t, ring4, func(t *testing.T, n *network) {
		n.nodes["D"].setAsked(func(*remote, *handshake.MapQuery) {})
		time.AfterFunc(60*time.Millisecond, func() {
			n.nodes["D"].setAsked(n.nodes["D"].answerNow)
			n.plug(false, "A", "p0")
		})
		n.want("A", "C", time.Second, "p1 D")
	})
}

// The error names the nodes that were queried, those that were silent, and the ports without a neighbour.
func TestNoRoute(t *testing.T) {
	tests := []struct {
		name    string
		cabling string
		prepare func(n *network)
		want    string
	}{
		{"nobody knows", "A-B B-C", nil, "queried B (at p0), and no known cable leads there. "},
		{"silent", "A-B A-C B-D", func(n *network) { n.nodes["C"].asked = func(*remote, *handshake.MapQuery) {} },
			"queried B (at p0), and no known cable leads there; the node at p1 did not answer. "},
		{"out of reach", "A-B", func(n *network) { n.nodes["A"].refuse["B"] = errors.New("connection refused") },
			"the node at p0 could not be queried: connection refused. "},
		{"nobody there", "A-B", func(n *network) { n.down["A p0"] = true }, "no neighbour answered on p0. "},
		{"not RDMA", "A-B B-X:t", nil, "queried B (at p0), but every route has a cable that is not RDMA at both ends. "},
		{"only beside it", "A-X", nil, "queried X (at p0), but only a cable of this node leads there. "},
		{"gone", "A-B", func(n *network) {
			b := n.nodes["B"]
			b.asked = func(s *remote, _ *handshake.MapQuery) { n.nodes["A"].SessionEnded(n.nodes["A"].ends[b]) }
		}, "the node at p0 could not be queried: the session with it has ended. "},
		{"for another", "A-B", func(n *network) {
			n.nodes["B"].asked = func(s *remote, q *handshake.MapQuery) {
				_ = s.Send(&handshake.Map{Query: q.Query, Nodes: cabling(ring4)[2:]})
			}
		}, "the node at p0 could not be queried: it answered for another node. "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			meshTest(t, tt.cabling, func(t *testing.T, n *network) {
				if tt.prepare != nil {
					tt.prepare(n)
				}
				began := time.Now()
				_, err := n.routes("A", "X")
				if !errors.Is(err, fault.ErrUnreachable) || !errors.Is(err, fault.ErrPeer) {
					t.Fatalf("error %v", err)
				}
				if !strings.Contains(err.Error(), "through other nodes: "+tt.want+"Check") {
					t.Errorf("error %q, want %q in it", err, tt.want)
				}
				if took := time.Since(began); took != 2*time.Second {
					t.Errorf("the error came after %v", took)
				}
				if _, again := n.routes("A", "X"); again == nil || again.Error() != err.Error() || time.Since(began) != 2*time.Second {
					t.Errorf("once more: %v, after %v", again, time.Since(began))
				}
			})
		})
	}
}

// A missing route is searched again: after a while, or when a new neighbour was discovered.
func TestAskAgain(t *testing.T) {
	for _, heard := range []bool{false, true} {
		t.Run(fmt.Sprintf("heard %v", heard), func(t *testing.T) {
			meshTest(t, "A-B B-C", func(t *testing.T, n *network) {
				n.plug(false, "B", "p1")
				n.want("A", "C", 3*time.Second)
				n.plug(true, "B", "p1") // which A does not see
				n.want("A", "C", 0)
				if heard {
					n.nodes["A"].NeighbourFound()
				} else {
					time.Sleep(retryWait)
				}
				n.want("A", "C", time.Second, "p0 B")
			})
		})
	}
}

// A node that does not reply delays the others a little, and a late reply is still used.
func TestSilent(t *testing.T) {
	for _, late := range []time.Duration{0, 500 * time.Millisecond, 5 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			meshTest(t, ring4, func(t *testing.T, n *network) {
				d := n.nodes["D"]
				d.asked = func(s *remote, q *handshake.MapQuery) {
					if late > 0 {
						time.AfterFunc(late, func() { d.HandleQuery(s, q) })
					}
				}
				n.want("A", "C", time.Second, "p0 B")
				time.Sleep(10 * time.Second)
				want := []string{"p0 B"}
				if late > 0 {
					want = append(want, "p1 D")
				}
				n.want("A", "C", 0, want...)
			})
		})
	}
}

// A node behind a silent one is found, because each node on the path waits longer than the next one.
func TestSilentFarAway(t *testing.T) {
	meshTest(t, "A-B B-C C-D D-E", func(t *testing.T, n *network) {
		n.nodes["E"].asked = func(*remote, *handshake.MapQuery) {}
		n.want("A", "D", surveyWait, "p0 B C")
		n.want("A", "C", 0, "p0 B")
	})
}

// A caller whose context ends does not wait.
func TestGivenUp(t *testing.T) {
	meshTest(t, "A-B", func(t *testing.T, n *network) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := n.nodes["A"].Routes(ctx, nodeID("X"), true); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("error %v, want one of use", err)
		}
		time.AfterFunc(time.Millisecond, n.close)
		if _, err := n.nodes["A"].Routes(t.Context(), nodeID("X"), true); !errors.Is(err, fault.ErrUsage) {
			t.Errorf("after the end: error %v, want one of use", err)
		}
	})
}

// Of a node's processes the dedicated one is queried, or else one with a session, or else the first; another one if
// that fails.
func TestWhichProcess(t *testing.T) {
	tests := []struct {
		name      string
		dedicated string
		known     string
		refused   []string
		want      []string
	}{
		{"the first", "", "", nil, []string{"B1"}},
		{"a known one", "", "B2", nil, []string{"B2"}},
		{"a dedicated one", "B3", "B2", nil, []string{"B3"}},
		{"who can be reached", "B3", "", []string{"B3", "B1"}, []string{"B3", "B1", "B2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			meshTest(t, "A-B B-C", func(t *testing.T, n *network) {
				a, b := n.nodes["A"], n.nodes["B"].entry
				delete(n.nodes, "B")
				for _, name := range []string{"B3", "B2", "B1"} {
					b.Process = handshake.ProcessID(nodeID(name))
					b.Dedicated = name == tt.dedicated
					n.add(b, name)
				}
				a.known = handshake.ProcessID(nodeID(tt.known))
				for _, name := range tt.refused {
					a.refuse[name] = errors.New("refused")
				}
				n.want("A", "C", time.Second, "p0 B")
				a.mu.Lock()
				defer a.mu.Unlock()
				if diff := cmp.Diff(tt.want, a.dialed); diff != "" {
					t.Errorf("sessions (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Unexpected replies are dropped, and false reports about this node are ignored.
func TestUnasked(t *testing.T) {
	meshTest(t, ring4, func(t *testing.T, n *network) {
		a, b := n.nodes["A"], n.nodes["B"]
		b.asked = func(s *remote, q *handshake.MapQuery) {
			lies := cabling("A-B A-X A-C")
			lies[0], lies[1] = lies[1], lies[0]
			_ = s.Send(&handshake.Map{Query: newQueryID(nil), Nodes: lies})
			_ = s.Send(&handshake.Map{Query: q.Query, Nodes: lies})
			_ = s.Send(&handshake.Map{Query: q.Query, Nodes: lies})
		}
		n.want("A", "C", time.Second, "p1 D")
		if got := a.Counts().Unasked; got != 2 {
			t.Errorf("%d answers nobody asked for, want 2", got)
		}
		n.want("A", "X", 3*time.Second)
	})
}

// A node that queries all the time gets replies, and causes little load.
func TestFlood(t *testing.T) {
	meshTest(t, "A-B B-C", func(t *testing.T, n *network) {
		a, b := n.nodes["A"], n.nodes["B"]
		before, unasked := b.Counts(), a.Counts().Unasked
		n.count("MapQuery")
		a.mu.Lock()
		s := a.endLocked(b)
		a.mu.Unlock()
		for i := range 1000 {
			asked := nodeID(fmt.Sprint(i % 100))
			if err := s.Send(&handshake.MapQuery{Query: newQueryID(nil), Asked: []handshake.NodeID{asked}}); err != nil {
				t.Fatal(err)
			}
		}
		n.want("C", "A", time.Second, "p0 B")
		time.Sleep(2 * time.Second)
		got := b.Counts()
		got.Asked, got.LocalOnly = got.Asked-before.Asked, got.LocalOnly-before.LocalOnly
		if diff := cmp.Diff(Counts{Asked: 1001, LocalOnly: 1000 - maxPerSession}, got); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if got := a.Counts().Unasked - unasked; got != 1000 {
			t.Errorf("%d answers, want 1000", got)
		}
		if got := n.count("MapQuery"); got > 1000+2*maxPerSession+2 {
			t.Errorf("%d questions", got)
		}
	})
}

// Neighbours of one cable that query all the time, over any number of sessions, do not use up the limit of another
// cable.
func TestFloodOverOneCable(t *testing.T) {
	meshTest(t, "A-B B-C", func(t *testing.T, n *network) {
		b := n.nodes["B"]
		n.nodes["A"].setAsked(func(*remote, *handshake.MapQuery) {}) // so that what is passed on to it takes long
		before := b.Counts()
		ask := func(s Session, i int) {
			b.HandleQuery(s, &handshake.MapQuery{Query: newQueryID(nil), Asked: []handshake.NodeID{nodeID(fmt.Sprint(i))}})
		}
		for i := range 2 * maxForwards / maxPerSession {
			s := &recorder{func(handshake.Message) {}, "p0"}
			for k := range maxPerSession {
				ask(s, i*maxPerSession+k)
			}
		}
		other := &recorder{func(handshake.Message) {}, "p1"}
		for i := range maxPerSession {
			ask(other, -1-i)
		}
		if got := b.Counts().LocalOnly - before.LocalOnly; got != maxForwards {
			t.Errorf("%d questions are not passed on, want %d: those over one cable that are too many", got, maxForwards)
		}
		time.Sleep(2 * forwardWait)
	})
}

// A query that arrives twice is answered with this node alone.
func TestAskedTwice(t *testing.T) {
	meshTest(t, "A-B B-C", func(t *testing.T, n *network) {
		b, first := n.nodes["B"], newQueryID(nil)
		var mu sync.Mutex
		var got []int
		s := &recorder{func(m handshake.Message) {
			mu.Lock()
			got = append(got, len(m.(*handshake.Map).Nodes))
			mu.Unlock()
		}, ""}
		for range 2 {
			b.HandleQuery(s, &handshake.MapQuery{Query: first, Asked: []handshake.NodeID{nodeID("X")}})
			time.Sleep(time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]int{3, 1}, got); diff != "" {
			t.Errorf("nodes in the answers (-want +got):\n%s", diff)
		}
	})
}

// recorder is a session over a cable that passes what is sent to a function.
type recorder struct {
	took  func(handshake.Message)
	cable string
}

func (r *recorder) Send(m handshake.Message) error { r.took(m); return nil }
func (r *recorder) Cable() string                  { return r.cable }

// All processes of a mesh with eight on each node query at once.
func TestCrowd(t *testing.T) {
	const text = "A-B B-C C-D D-E E-F F-G G-H H-A"
	meshTest(t, text, func(t *testing.T, n *network) {
		var all []*host
		for _, e := range cabling(text) {
			delete(n.nodes, e.Hostname)
			for i := range 8 {
				e.Process[15] = byte(i)
				all = append(all, n.add(e, fmt.Sprintf("%s%d", e.Hostname, i)))
			}
		}
		var wg sync.WaitGroup
		for _, h := range all {
			own, reported := without(cabling(text), h.entry.Hostname)
			for _, e := range reported {
				want := words(newGraph(&own, reported).routes(e.Node, true))
				wg.Go(func() {
					got, err := h.Routes(t.Context(), e.Node, true)
					if diff := cmp.Diff(want, words(got)); diff != "" {
						t.Errorf("%s to %s: error %v (-want +got):\n%s", own.Hostname, e.Hostname, err, diff)
					}
				})
			}
		}
		wg.Wait()
		var curt uint64
		for _, h := range all {
			curt += h.Counts().LocalOnly
		}
		t.Logf("%d questions, %d answered curtly", n.count("MapQuery"), curt)
	})
}

// A node's report about its cables is sorted and fits a message.
func TestLinks(t *testing.T) {
	ports := []Port{{0, "p0", 100, true}, {1, "p1", 200, false}}
	neighbour := func(port uint8, node string, process byte) Neighbour {
		return Neighbour{Port: port, Name: portName(port), Process: handshake.ProcessID{process}, Node: nodeID(node), PeerName: "x"}
	}
	link := func(p Port, node string) handshake.MapLink {
		return handshake.MapLink{Port: p.Index, Name: p.Name, Mbps: p.Mbps, RDMA: p.RDMA, Peer: nodeID(node), PeerName: "x"}
	}
	var crowd []Neighbour
	var most []handshake.MapLink
	for i := range 30 {
		crowd = append(crowd, neighbour(0, fmt.Sprintf("%02d", i), 1))
		most = append(most, link(ports[0], fmt.Sprintf("%02d", i)))
	}
	tests := []struct {
		name  string
		heard []Neighbour
		want  []handshake.MapLink
	}{
		{"nobody", nil, nil},
		{"two processes of a node", []Neighbour{neighbour(1, "B", 2), neighbour(1, "B", 1), neighbour(0, "C", 3)}, []handshake.MapLink{link(ports[0], "C"), link(ports[1], "B")}},
		{"itself, and at no port", []Neighbour{neighbour(0, "A", 2), neighbour(7, "B", 1)}, nil},
		{"a switch and a cable", append(crowd, neighbour(1, "B", 1)), append([]handshake.MapLink{link(ports[1], "B")}, most[:handshake.MaxMapLinks-1]...)},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, links(nodeID("A"), ports, tt.heard)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
