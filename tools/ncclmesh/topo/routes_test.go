package topo

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/routing"
)

// Of routes that packets have passed the map says so. A way is missing unless a connection leaves it out: for a port that another
// route uses, or a cable without RDMA.
func TestRoutes(t *testing.T) {
	tests := []struct {
		name   string
		cables string
		tcp    string // those of them without RDMA
		passed string // routes from a to c, of which - is the end of one over TCP
		err    string
		want   string
	}{
		{"both ways round", "ab bc cd da", "", "b d", "", "a ↔ c share no cable: through b, and d"},
		{"one way round", "ab bc cd da", "", "d", "", "a ↔ c share no cable: through d; nothing passes through b"},
		{"a longer way", "ab bc cd de ea", "", "ed", "", "a ↔ c share no cable: through e and d; nothing passes through b"},
		{"a way that shares a cable", "ab ad be de ec", "", "be", "", "a ↔ c share no cable: through b and e"},
		{"a way without RDMA beside one with it", "ab bc cd da", "da", "b", "", "a ↔ c share no cable: through b"},
		{"a way with RDMA beside one without", "ab bc cd da", "da", "d-", "", "a ↔ c share no cable: through d; nothing passes through b"},
		{"none", "ab bc cd da", "", "", "no neighbour answered on e1", "a ↔ c share no cable, and nothing passes through b, nor through d: no neighbour answered on e1"},
	}
	for _, tt := range tests {
		m := joined(tt.cables)
		for i := range m.Cables {
			if c := &m.Cables[i]; strings.Contains(tt.tcp, c.Ends[0].Node+c.Ends[1].Node) && tt.tcp != "" {
				c.Halves[0].State = TCP
			}
		}
		for _, a := range m.graph().apart() {
			if a.Nodes != [2]string{"a", "c"} {
				continue
			}
			a.Tried = true
			got := reached{Error: tt.err}
			for _, route := range strings.Fields(tt.passed) {
				names := strings.TrimSuffix(route, "-")
				r := routeTo{RDMA: names == route}
				for _, n := range names {
					r.Via, r.Names = append(r.Via, strings.ToUpper(string(n))), append(r.Names, "a host name")
				}
				got.Routes = append(got.Routes, r)
			}
			a.take(got, map[string]string{"B": "b", "D": "d", "E": "e"}, false)
			m.Apart = append(m.Apart, a)
		}
		if diff := cmp.Diff([]string{tt.want}, m.apartLines()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A route that was found from the other end is the same one, and a later success counts.
func TestRoutesFromTheOtherEnd(t *testing.T) {
	a := Apart{Nodes: [2]string{"a", "d"}}
	a.take(reached{Error: "it was slow"}, nil, false)
	a.take(reached{Routes: []routeTo{{Names: []string{"c", "b"}}}}, nil, true)
	a.take(reached{Routes: []routeTo{{Names: []string{"b", "c"}}}}, nil, false)
	if diff := cmp.Diff(Apart{Nodes: a.Nodes, Routes: []Route{{Through: []string{"b", "c"}}}}, a); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Of a connection's error only what is about routes is told, wherever in the error it is.
func TestNotReached(t *testing.T) {
	none := &routing.NoRouteError{Reason: "no neighbour answered on e1"}
	foreign := &routing.NoRouteError{Reason: "no neighbour answered on e1", Foreign: []string{"e1"}}
	tests := []struct {
		name string
		err  error
		want reached
	}{
		{"another error", errors.New("the session\nhas ended"), reached{Error: "the session; has ended"}},
		{"no route", fmt.Errorf("conn 1: %w", none), reached{Error: "no neighbour answered on e1"}},
		{"beside others", errors.Join(errors.New("conn 1"), none), reached{Error: "no neighbour answered on e1"}},
		{"another key", foreign, reached{Error: "no neighbour answered on e1. A node at e1 has another NCCL_MESH_KEY, or none: all nodes must have the same", OtherKey: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, notReached(tt.err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
