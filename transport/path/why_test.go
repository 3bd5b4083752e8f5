package path

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/transport/conn"
	"ncclmesh/transport/fault"
	"ncclmesh/transport/overlay"
)

// The log names one of many failed candidates, and the number of the others.
func TestFirstTried(t *testing.T) {
	way := func(to string) conn.LaneFailure {
		return conn.LaneFailure{
			From: conn.End{Node: "a", Port: "r0:1 (p0)", Addr: netip.MustParseAddr("10.0.0.1")},
			To:   conn.End{Node: "b", Port: to, Addr: netip.MustParseAddr("10.0.0.2")},
			Why:  errors.New("no answer"),
		}
	}
	const first = "tried r0:1 (p0) 10.0.0.1 on a -> r1:1 10.0.0.2 on b: no answer"
	tests := []struct {
		tried []conn.LaneFailure
		want  string
	}{
		{[]conn.LaneFailure{way("r1:1")}, first},
		{[]conn.LaneFailure{way("r1:1"), way("r2:1"), way("r3:1")}, first + "; and 2 more paths, which NCCL_MESH_DEBUG=debug lists"},
	}
	for _, tt := range tests {
		if got := firstTried(tt.tried); got != tt.want {
			t.Errorf("firstTried(%v) = %q, want %q", tt.tried, got, tt.want)
		}
	}
}

// The message says why there is no relayed RDMA, beside the reason that there is no direct RDMA.
func TestWhyTCP(t *testing.T) {
	none := fmt.Errorf("%w: no way through other nodes: asked b (at p0), and no cable is known that leads there; the node at p1 did not answer", fault.ErrUnreachable)
	const through = "; and through other nodes there is no RDMA: no way through other nodes: asked b (at p0), and no cable is known that leads there; the node at p1 did not answer"
	tests := []struct {
		name   string
		offers bool
		rdma   outcome
		want   string
	}{
		{"nothing to try", true, outcome{}, "no two of their RDMA ports share a cable or a subnet"},
		{"nor a route", true, outcome{none: none}, "no two of their RDMA ports share a cable or a subnet" + through},
		{"relaying is off", true, outcome{none: overlay.ErrOff}, "no two of their RDMA ports share a cable or a subnet; and through other nodes there is no RDMA: relaying is off (NCCL_MESH_RELAY=0)"},
		{"trials failed", true, outcome{err: errors.New("no queue pair"), none: none}, "no queue pair" + through},
		{"the peer has none", false, outcome{}, "c offers no RDMA port; its log says why"},
		{"the peer has none, and relaying is off", false, outcome{none: overlay.ErrOff}, "c offers no RDMA port; its log says why"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, whyTCP("c", tt.offers, tt.rdma)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The advice for two nodes without a path is correct: a port that is down is not called excluded by a setting,
// and nodes with relays between them need no common subnet.
func TestWhyNoPath(t *testing.T) {
	port := func(device string, addrs ...string) handshake.Port {
		p := handshake.Port{Device: device, Netdev: "p0"}
		if device != "" {
			p.Num = 1
		}
		for _, a := range addrs {
			p.Addrs = append(p.Addrs, handshake.PortAddr{Addr: netip.MustParseAddr(a), PrefixLen: 24})
		}
		return p
	}
	tried := []conn.LaneFailure{{
		From: conn.End{Node: "a", Port: "r0:1 (p0)", Addr: netip.MustParseAddr("10.0.0.1")},
		To:   conn.End{Node: "b", Port: "r0:1", Addr: netip.MustParseAddr("10.0.0.2")}, Why: errors.New("no answer"),
	}}
	const first = "tried r0:1 (p0) 10.0.0.1 on a -> r0:1 10.0.0.2 on b: no answer"
	ports := func(all ...handshake.Port) []handshake.Port { return all }
	tests := []struct {
		name         string
		ours, theirs []handshake.Port
		relays       bool
		tried        []conn.LaneFailure
		slow         string
		want         string
	}{
		{"RDMA only, and TCP only", ports(port("r0", "10.0.0.1")), ports(port("", "10.0.0.2")), false, nil, "",
			": a offers RDMA only, as with NCCL_MESH_TRANSPORT=rdma, and b TCP only, as with NCCL_MESH_TRANSPORT=tcp or without an RDMA device. Set NCCL_MESH_TRANSPORT=auto on a, or make RDMA work on b"},
		{"TCP only, and RDMA only that is down", ports(port("", "10.0.0.1")), ports(port("r0")), true, nil, "",
			": b offers RDMA only, as with NCCL_MESH_TRANSPORT=rdma, and a TCP only, as with NCCL_MESH_TRANSPORT=tcp or without an RDMA device. Set NCCL_MESH_TRANSPORT=auto on b, or make RDMA work on a"},
		{"TCP, and down here", ports(port("")), ports(port("", "10.0.0.2")), false, nil, "", ": these ports are down, or have no address: p0 on a. Check their cables"},
		{"TCP, and down at both", ports(port("")), ports(port("")), false, nil, "", ": these ports are down, or have no address: p0 on a, p0 on b. Check their cables"},
		{"RDMA, and down there", ports(port("r0", "10.0.0.1"), port("")), ports(port("r0"), port("")), true, nil, "", ": these ports are down, or have no address: r0:1 (p0) on b. Check their cables"},
		{"one of two is down", ports(port("r0", "10.0.0.1"), port("r1")), ports(port("r0", "10.0.0.2")), false, tried, "", ": these ports are down, or have no address: r1:1 (p0) on a. Check their cables; " + first},
		{"both have both, and RDMA is down here", ports(port("r0"), port("", "10.0.0.1")), ports(port("", "10.0.0.2")), false, tried, "",
			"; " + first + ". Check the cables between the two nodes, and that both ends of each have addresses in one subnet"},
		{"other nodes between", ports(port("r0", "10.0.0.1")), ports(port("r0", "10.0.1.2")), true, nil, "", ": no cable joins them: no two of their ports share a subnet"},
		{"other nodes, and a path was tried", ports(port("r0", "10.0.0.1")), ports(port("r0", "10.0.0.2")), true, tried, "",
			"; " + first + ". If a cable joins the two nodes, check it, and that both ends of it have addresses in one subnet"},
		{"no subnet", ports(port("r0", "10.0.0.1")), ports(port("r0", "10.0.1.2")), false, nil, "",
			": no two of their ports share a subnet: the addresses. Cable the two nodes, or give both ends of a cable addresses in one subnet"},
		{"nothing passes", ports(port("r0", "10.0.0.1")), ports(port("r0", "10.0.0.2")), false, tried, "",
			"; " + first + ". Check the cables between the two nodes, and that both ends of each have addresses in one subnet"},
		{"slow", ports(port("r0", "10.0.0.1")), ports(port("r0", "10.0.0.2")), false, tried, "b is slow", " was validated in time; b is slow; " + first},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := nodePair{"a", "b", tt.ours, tt.theirs, tt.relays}
			joint, text := n.why(tt.tried, tt.slow, func() string { return "the addresses" })
			if diff := cmp.Diff(tt.want, joint+text); diff != "" {
				t.Errorf("what is said (-want +got):\n%s", diff)
			}
		})
	}
}

// A reason is a warning for the first peer only, however often it occurs.
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
