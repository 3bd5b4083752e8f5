package path

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/transport/bundle"
	"ncclmesh/transport/fault"
)

// Of many ways that were tried the log has one, and their number.
func TestFirstTried(t *testing.T) {
	way := func(to string) bundle.Finding {
		return bundle.Finding{
			From: bundle.End{Node: "a", Port: "r0:1 (p0)", Addr: netip.MustParseAddr("10.0.0.1")},
			To:   bundle.End{Node: "b", Port: to, Addr: netip.MustParseAddr("10.0.0.2")},
			Why:  errors.New("no answer"),
		}
	}
	const first = "tried r0:1 (p0) 10.0.0.1 on a -> r1:1 10.0.0.2 on b: no answer"
	tests := []struct {
		tried []bundle.Finding
		want  string
	}{
		{[]bundle.Finding{way("r1:1")}, first},
		{[]bundle.Finding{way("r1:1"), way("r2:1"), way("r3:1")}, first + "; and 2 more ways, which NCCL_MESH_DEBUG=debug lists"},
	}
	for _, tt := range tests {
		if got := firstTried(tt.tried); got != tt.want {
			t.Errorf("firstTried(%v) = %q, want %q", tt.tried, got, tt.want)
		}
	}
}

// What became of RDMA through other nodes is said beside why there is none directly.
func TestWhyTCP(t *testing.T) {
	none := fmt.Errorf("%w: no way through other nodes: asked b (at p0), and no cable is known that leads there; the node at p1 did not answer", fault.ErrUnreachable)
	const through = "; and through other nodes there is no RDMA: no way through other nodes: asked b (at p0), and no cable is known that leads there; the node at p1 did not answer"
	tests := []struct {
		name   string
		offers bool
		rdma   trials
		want   string
	}{
		{"nothing to try", true, trials{}, "no two RDMA ports of theirs share a cable or a subnet"},
		{"nor a route", true, trials{none: none}, "no two RDMA ports of theirs share a cable or a subnet" + through},
		{"relaying is off", true, trials{none: ErrNoRelay}, "no two RDMA ports of theirs share a cable or a subnet; and through other nodes there is no RDMA: relaying is off (NCCL_MESH_RELAY=0)"},
		{"trials failed", true, trials{err: errors.New("no queue pair"), none: none}, "no queue pair" + through},
		{"the peer has none", false, trials{}, "c offers no RDMA port; its log says why"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, whyTCP("c", tt.offers, tt.rdma)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A reason is a warning of one peer, again and again.
func TestFirstWith(t *testing.T) {
	f := NewFinder(Config{})
	var got []bool
	for _, w := range [][2]string{{"r", "b"}, {"r", "c"}, {"r", "b"}, {"q", "c"}, {"q", "b"}} {
		got = append(got, f.firstWith(w[0], w[1]))
	}
	if diff := cmp.Diff([]bool{true, false, true, true, false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
