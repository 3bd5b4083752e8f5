package discovery

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
)

var (
	prev = Port{Index: 1, Netdev: "prev", RDMA: true}
	next = Port{Index: 2, Netdev: "next", RDMA: true}
	both = []Port{prev, next}
)

// who describes the neighbours without the address, which depends on the family that was received first.
func who(n *node) (all []string) {
	n.t.Helper()
	for _, n2 := range n.Neighbours() {
		a := n2.Control.Addr()
		if a.Is6() && (!a.IsLinkLocalUnicast() || a.Zone() != n2.Name) || a.Is4() && !strings.HasPrefix(a.String(), "192.168.") {
			n.t.Errorf("%+v: its address is not one of the cable", n2)
		}
		text := fmt.Sprintf("port %d (%s): process %d node %d port %d (%s) control %d", n2.Port, n2.Name, n2.Process[0], n2.Node[0], n2.PeerPort, n2.PeerName, n2.Control.Port())
		if n2.Dedicated {
			text += " dedicated"
		}
		all = append(all, text)
	}
	return all
}

func check(n *node, want ...string) {
	n.t.Helper()
	if diff := cmp.Diff(want, who(n)); diff != "" {
		n.t.Errorf("neighbours (-want +got):\n%s\n%s", diff, n.book)
	}
}

// TestRing: each of three nodes discovers the nodes at the other ends of its two cables, in any order of queries.
func TestRing(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		names := []string{"a", "b", "c"}
		for i, name := range names {
			join(t, byte(1+i), name, names[(i+1)%3])
		}
		var nodes []*node
		for i, name := range names {
			nodes = append(nodes, start(t, name, spec{Process: byte(10 + i), Node: byte(1 + i), Control: uint16(1000 + i), Dedicated: i == 2, Ports: both}))
		}
		a, b, c := nodes[0], nodes[1], nodes[2]
		a.finds(2)
		check(a, "port 1 (prev): process 12 node 3 port 2 (next) control 1002 dedicated", "port 2 (next): process 11 node 2 port 1 (prev) control 1001")
		if s := b.Stats(); s.Answered == 0 || s.Asked != 0 || len(b.Neighbours()) != 0 {
			t.Errorf("who was asked: %+v", s)
		}
		b.finds(2)
		check(b, "port 1 (prev): process 10 node 1 port 2 (next) control 1000", "port 2 (next): process 12 node 3 port 1 (prev) control 1002 dedicated")
		c.finds(2)
		check(c, "port 1 (prev): process 11 node 2 port 2 (next) control 1001", "port 2 (next): process 10 node 1 port 1 (prev) control 1000")
		for i, n := range nodes {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
			if s := n.Stats(); len(s.Refused) != 0 || s.Own != 0 || n.book.count("level=WARN") != 0 {
				t.Errorf("%s: %+v\n%s", names[i], s, n.book)
			}
		}
	})
}

// TestTwoProcesses: each process of one node discovers both of the other node.
func TestTwoProcesses(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		a := start(t, "a", spec{Process: 10, Node: 1, Control: 1000, Key: []byte("k"), Ports: both})
		again := start(t, "a", spec{Process: 11, Node: 1, Control: 1001, Key: []byte("k"), Ports: both})
		b := start(t, "b", spec{Process: 12, Node: 2, Control: 1002, Key: []byte("k"), Ports: both})
		const want = "port 2 (next): process 12 node 2 port 1 (prev) control 1002"
		a.finds(1)
		check(a, want)
		again.finds(1)
		check(again, want)
		b.finds(2)
		check(b, "port 1 (prev): process 10 node 1 port 2 (next) control 1000", "port 1 (prev): process 11 node 1 port 2 (next) control 1001")
	})
}

// TestLaterProcess: a process that starts when every port has a neighbour is queried for only after ExpectMore.
func TestLaterProcess(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		a := start(t, "a", spec{Process: 10, Node: 1, Control: 1000, Ports: []Port{next}})
		start(t, "b", spec{Process: 12, Node: 2, Control: 1002, Ports: both})
		const first = "port 2 (next): process 12 node 2 port 1 (prev) control 1002"
		a.finds(1)
		check(a, first)
		asked := a.Stats().Asked
		start(t, "b", spec{Process: 13, Node: 2, Control: 1003, Ports: both})
		t.Sleep(2 * roundInterval)
		a.asks()
		if again := a.Stats().Asked; again != asked {
			t.Errorf("%d questions more, as every port has somebody", again-asked)
		}
		a.ExpectMore()
		a.asks()
		check(a, first, "port 2 (next): process 13 node 2 port 1 (prev) control 1003")
	})
}

// TestCarrierReturns: an interface without a carrier when a neighbour has answered on every other one is queried once it has one, although
// nobody tells of a change, as after an outage too short to be noticed. Until then no query is sent.
func TestCarrierReturns(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		join(t, 1, "a", "b")
		cable := join(t, 2, "c", "a")
		a := start(t, "a", spec{Process: 10, Node: 1, Control: 1000, Ports: both})
		start(t, "b", spec{Process: 11, Node: 2, Control: 1001, Ports: both})
		start(t, "c", spec{Process: 12, Node: 3, Control: 1002, Ports: both})
		cable.Cut(true)
		a.finds(1)
		asked := a.Stats().Asked
		for range 5 {
			t.Sleep(2 * roundInterval)
			a.asks()
		}
		if again := a.Stats().Asked; again != asked {
			t.Errorf("%d queries more, although a neighbour has answered on every interface with a carrier", again-asked)
		}
		cable.Cut(false)
		t.Sleep(2 * roundInterval)
		a.finds(2)
		check(a, "port 1 (prev): process 12 node 3 port 2 (next) control 1002", "port 2 (next): process 11 node 2 port 1 (prev) control 1001")
	})
}

// TestOwnNode: a cable between two ports of one node yields no neighbour.
func TestOwnNode(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		a := start(t, "a", spec{Process: 10, Node: 1, Control: 1000, Ports: both})
		b := start(t, "b", spec{Process: 12, Node: 1, Control: 1002, Ports: both})
		a.asks()
		if s := a.Stats(); len(a.Neighbours()) != 0 || len(s.Refused) != 0 {
			t.Errorf("%v, %+v", a.Neighbours(), s)
		}
		if s := b.Stats(); s.Own == 0 || s.Answered != 0 || len(s.Refused) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestStrays: refused datagrams are counted, and the next query is answered.
func TestStrays(t *testing.T) {
	query := func(key string) []byte {
		return must(handshake.SealNeighbourQuery(handshake.NeighbourSecret([]byte(key)), &handshake.NeighbourQuery{Nonce: handshake.NeighbourNonce{7}, Process: handshake.ProcessID{9}, Node: handshake.NodeID{9}, Name: "next"}))
	}
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		a := start(t, "a", spec{Process: 10, Node: 1, Control: 1000, Key: []byte("k"), Ports: both})
		b := start(t, "b", spec{Process: 12, Node: 2, Control: 1002, Key: []byte("k"), Ports: both})
		other := start(t, "b", spec{Process: 13, Node: 3, Control: 1003, Key: []byte("K"), Ports: both})
		from := newStray(t, "next")
		want := map[string]uint64{}
		for _, tt := range []struct {
			name   string
			bytes  []byte
			hops   int
			reason string
		}{
			{"garbled", []byte("hello, is anybody there?"), 255, reasonMalformed},
			{"cut off", query("k")[:40], 255, reasonMalformed},
			{"longer than any", make([]byte, 1200), 255, reasonMalformed},
			{"another key", query("other"), 255, reasonMAC},
			{"no key", query(""), 255, reasonMAC},
			{"hop limit 254", query("k"), 254, reasonHops},
			{"hop limit 1", query("k"), 1, reasonHops},
		} {
			from.says(tt.bytes, tt.hops)
			want[tt.reason]++
			if diff := cmp.Diff(want, b.Stats().Refused); diff != "" {
				t.Errorf("%s: refused (-want +got):\n%s", tt.name, diff)
			}
		}
		if s := b.Stats(); s.Answered != 0 {
			t.Errorf("strays were answered: %+v", s)
		}
		from.says(query("k"), 255) // a replay is answered as well, to no harm
		t.Sleep(maxReplyDelay)
		if s := b.Stats(); s.Answered != 1 {
			t.Errorf("a replay: %+v", s)
		}
		for reason := range want {
			if got := b.book.count(fmt.Sprintf("reason=%q", reason)); got != 1 {
				t.Errorf("%d lines for %q", got, reason)
			}
		}
		a.finds(1)
		check(a, "port 2 (next): process 12 node 2 port 1 (prev) control 1002")
		if s := other.Stats(); s.Answered != 0 || s.Refused[reasonMAC] == 0 {
			t.Errorf("one with another key: %+v", s)
		}
	})
}

// TestFlood: endless queries get a limited number of replies, and do not exclude others for ever.
func TestFlood(t *testing.T) {
	query := must(handshake.SealNeighbourQuery(handshake.NeighbourSecret(nil), &handshake.NeighbourQuery{Nonce: handshake.NeighbourNonce{7}, Process: handshake.ProcessID{9}, Node: handshake.NodeID{9}}))
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		a := start(t, "a", spec{Process: 10, Node: 1, Control: 1000, Ports: both})
		b := start(t, "b", spec{Process: 12, Node: 2, Control: 1002, Ports: both})
		from := newStray(t, "next")
		const seconds = 3
		for range seconds * 1000 {
			from.says(query, 255) // takes a millisecond
		}
		if s := b.Stats(); s.Refused[reasonFlood] == 0 || s.Answered == 0 || s.Answered > (seconds+1)*maxToSocket {
			t.Errorf("in %d s: %+v", seconds, s)
		}
		a.finds(1)
		check(a, "port 2 (next): process 12 node 2 port 1 (prev) control 1002")
	})
}

// TestInterfaceComesAndGoes: neighbours are forgotten when the ports change, and the new ports are used.
func TestInterfaceComesAndGoes(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		line(t)
		a := start(t, "a", spec{Process: 10, Node: 1, Control: 1000, Ports: both})
		late := Port{Index: 5, Netdev: "late"}
		b := start(t, "b", spec{Process: 12, Node: 2, Control: 1002, Ports: []Port{late}})
		a.asks()
		if n := a.Neighbours(); len(n) != 0 {
			t.Errorf("%v", n)
		}
		i := t.Host("b").Interface("prev")
		i.Rename("late")
		b.Changed()
		a.finds(1)
		check(a, "port 2 (next): process 12 node 2 port 5 (late) control 1002")
		b.finds(1)
		check(b, "port 5 (late): process 10 node 1 port 2 (next) control 1000")
		i.Remove()
		b.Changed()
		b.asks()
		if n := b.Neighbours(); len(n) != 0 || b.book.count("level=WARN") != 0 {
			t.Errorf("without the interface: %v\n%s", n, b.book)
		}
	})
}
