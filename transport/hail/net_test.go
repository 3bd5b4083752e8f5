package hail

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/fabric"
)

var (
	prev = Port{Index: 1, Netdev: "prev", RDMA: true}
	next = Port{Index: 2, Netdev: "next", RDMA: true}
	both = []Port{prev, next}
)

// who is a neighbour without the address, which is that of the family that was heard first.
func who(t *testing.T, s state) (all []string) {
	t.Helper()
	for _, n := range s.Neighbours {
		a := n.Control.Addr()
		if a.Is6() && (!a.IsLinkLocalUnicast() || a.Zone() != n.Name) || a.Is4() && !strings.HasPrefix(a.String(), "192.168.") {
			t.Errorf("%+v: its address is not one of the cable", n)
		}
		text := fmt.Sprintf("port %d (%s): process %d node %d port %d (%s) control %d", n.Port, n.Name, n.Process[0], n.Node[0], n.PeerPort, n.PeerName, n.Control.Port())
		if n.Dedicated {
			text += " dedicated"
		}
		all = append(all, text)
	}
	return all
}

func check(t *testing.T, s state, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, who(t, s)); diff != "" {
		t.Errorf("neighbours (-want +got):\n%s\n%s", diff, s.Log)
	}
}

// TestRing: each of three nodes finds who is at the other end of its two cables, whoever asks first.
func TestRing(t *testing.T) {
	f := raise(t, fabric.Triangle())
	nodes := map[string]*node{}
	for i, name := range f.Nodes {
		nodes[name] = start(t, f, name, spec{Process: byte(10 + i), Node: byte(1 + i), Control: uint16(1000 + i), Dedicated: i == 2, Ports: both})
	}
	check(t, nodes["node-a"].do(order{Until: 2}),
		"port 1 (prev): process 12 node 3 port 2 (next) control 1002 dedicated", "port 2 (next): process 11 node 2 port 1 (prev) control 1001")
	s := nodes["node-b"].do(order{})
	if s.Stats.Answered == 0 || s.Stats.Asked != 0 || len(s.Neighbours) != 0 {
		t.Errorf("who was asked: %+v", s)
	}
	check(t, nodes["node-b"].do(order{Until: 2}),
		"port 1 (prev): process 10 node 1 port 2 (next) control 1000", "port 2 (next): process 12 node 3 port 1 (prev) control 1002 dedicated")
	check(t, nodes["node-c"].do(order{Until: 2}),
		"port 1 (prev): process 11 node 2 port 2 (next) control 1001", "port 2 (next): process 10 node 1 port 1 (prev) control 1000")
	for name, n := range nodes {
		s := n.do(order{Close: true})
		if !s.After.within(s.Before) {
			t.Errorf("%s holds %+v at last, %+v at first", name, s.After, s.Before)
		}
		if len(s.Stats.Refused) != 0 || s.Stats.Own != 0 || strings.Contains(s.Log, "level=WARN") {
			t.Errorf("%s: %+v\n%s", name, s.Stats, s.Log)
		}
	}
}

// line is two nodes and a cable, next at a and prev at b.
func line() fabric.Mesh {
	m := fabric.Ring("a", "b")
	m.Cables = m.Cables[:1]
	return m
}

// TestTwoProcesses: both of one node are heard, by each of the other node.
func TestTwoProcesses(t *testing.T) {
	f := raise(t, line())
	a := start(t, f, "a", spec{Process: 10, Node: 1, Control: 1000, Key: []byte("k"), Ports: both})
	again := start(t, f, "a", spec{Process: 11, Node: 1, Control: 1001, Key: []byte("k"), Ports: both})
	b := start(t, f, "b", spec{Process: 12, Node: 2, Control: 1002, Key: []byte("k"), Ports: both})
	want := "port 2 (next): process 12 node 2 port 1 (prev) control 1002"
	check(t, a.do(order{Until: 1}), want)
	check(t, again.do(order{Until: 1}), want)
	check(t, b.do(order{Until: 2}),
		"port 1 (prev): process 10 node 1 port 2 (next) control 1000", "port 1 (prev): process 11 node 1 port 2 (next) control 1001")
}

// TestLaterProcess: one that comes when every port has somebody is asked for only when it is known to lack.
func TestLaterProcess(t *testing.T) {
	f := raise(t, line())
	a := start(t, f, "a", spec{Process: 10, Node: 1, Control: 1000, Ports: []Port{next}})
	start(t, f, "b", spec{Process: 12, Node: 2, Control: 1002, Ports: both})
	first := "port 2 (next): process 12 node 2 port 1 (prev) control 1002"
	s := a.do(order{Until: 1, Hail: true})
	check(t, s, first)
	start(t, f, "b", spec{Process: 13, Node: 2, Control: 1003, Ports: both})
	if again := a.do(order{Hail: true}); again.Stats.Asked != s.Stats.Asked {
		t.Errorf("%d questions more, as every port has somebody", again.Stats.Asked-s.Stats.Asked)
	}
	check(t, a.do(order{Until: 2, Lacks: true}), first, "port 2 (next): process 13 node 2 port 1 (prev) control 1003")
}

// TestOwnNode: a cable from one port of a node to another is none.
func TestOwnNode(t *testing.T) {
	f := raise(t, line())
	a := start(t, f, "a", spec{Process: 10, Node: 1, Control: 1000, Ports: both})
	b := start(t, f, "b", spec{Process: 12, Node: 1, Control: 1002, Ports: both})
	if s := a.do(order{Hail: true}); len(s.Neighbours) != 0 || len(s.Stats.Refused) != 0 {
		t.Errorf("%+v", s)
	}
	if s := b.do(order{Own: true}); s.Stats.Answered != 0 || len(s.Stats.Refused) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestStrays: what does not count is counted, and the next question is answered.
func TestStrays(t *testing.T) {
	f := raise(t, line())
	hail := func(key string) []byte {
		return must(handshake.SealHail(handshake.HailSecret([]byte(key)), &handshake.Hail{Nonce: handshake.HailNonce{7}, Process: handshake.ProcessID{9}, Node: handshake.NodeID{9}, Name: "next"}))
	}
	a := start(t, f, "a", spec{Process: 10, Node: 1, Control: 1000, Key: []byte("k"), Ports: both})
	b := start(t, f, "b", spec{Process: 12, Node: 2, Control: 1002, Key: []byte("k"), Ports: both})
	other := start(t, f, "b", spec{Process: 13, Node: 3, Control: 1003, Key: []byte("K"), Ports: both})
	tests := []struct {
		name   string
		stray  stray
		reason string
	}{
		{"garbled", stray{Bytes: []byte("hello, is anybody there?")}, reasonMalformed},
		{"cut off", stray{Bytes: hail("k")[:40]}, reasonMalformed},
		{"longer than any", stray{Bytes: make([]byte, 1200)}, reasonMalformed},
		{"another key", stray{Bytes: hail("other")}, reasonMAC},
		{"no key", stray{Bytes: hail("")}, reasonMAC},
		{"hop limit 254", stray{Bytes: hail("k"), TTL: 254}, reasonHops},
		{"hop limit 1", stray{Bytes: hail("k"), TTL: 1}, reasonHops},
	}
	want := map[string]uint64{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.stray
			s.At = next
			a.do(order{Stray: &s})
		})
		want[tt.reason]++
	}
	a.do(order{Stray: &stray{At: next, Bytes: hail("k"), TTL: 255, Count: 1}}) // a replay is answered as well, to no harm
	s := b.do(order{Refusals: uint64(len(tests))})
	if diff := cmp.Diff(want, s.Stats.Refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	for reason := range want {
		if got := strings.Count(s.Log, fmt.Sprintf("reason=%q", reason)); got != 1 {
			t.Errorf("%d lines for %q", got, reason)
		}
	}
	check(t, a.do(order{Until: 1}), "port 2 (next): process 12 node 2 port 1 (prev) control 1002")
	if s := other.do(order{Refused: reasonMAC}); s.Stats.Answered != 0 {
		t.Errorf("one with another key has answered: %+v", s.Stats)
	}
}

// TestFlood: questions without end get a bounded number of answers, and keep nobody away for ever.
func TestFlood(t *testing.T) {
	f := raise(t, line())
	hail := must(handshake.SealHail(handshake.HailSecret(nil), &handshake.Hail{Nonce: handshake.HailNonce{7}, Process: handshake.ProcessID{9}, Node: handshake.NodeID{9}}))
	a := start(t, f, "a", spec{Process: 10, Node: 1, Control: 1000, Ports: both})
	b := start(t, f, "b", spec{Process: 12, Node: 2, Control: 1002, Ports: both})
	begin := time.Now()
	a.do(order{Stray: &stray{At: next, Bytes: hail, Count: 5000}})
	s := b.do(order{Refused: reasonFlood})
	seconds := uint64(time.Since(begin)/time.Second) + 2 // windows that it may have touched
	if s.Stats.Answered > seconds*maxOfSocket {
		t.Errorf("%d answers in %d windows of a second", s.Stats.Answered, seconds)
	}
	t.Logf("%+v", s.Stats)
	check(t, a.do(order{Until: 1}), "port 2 (next): process 12 node 2 port 1 (prev) control 1002")
	if s := b.do(order{Close: true}); !s.After.within(s.Before) {
		t.Errorf("holds %+v at last, %+v at first", s.After, s.Before)
	}
}

// TestInterfaceComesAndGoes: what is known ends with a change of the ports, and what is there then takes part.
func TestInterfaceComesAndGoes(t *testing.T) {
	f := raise(t, line())
	a := start(t, f, "a", spec{Process: 10, Node: 1, Control: 1000, Ports: both})
	late := Port{Index: 5, Netdev: "late"}
	b := start(t, f, "b", spec{Process: 12, Node: 2, Control: 1002, Ports: []Port{late}})
	if s := a.do(order{Hail: true}); len(s.Neighbours) != 0 {
		t.Errorf("%+v", s)
	}
	on(t, f, "b", "ip", "link", "set", "prev", "down")
	on(t, f, "b", "ip", "link", "set", "prev", "name", "late", "up")
	b.do(order{Changed: true})
	want := "port 2 (next): process 12 node 2 port 5 (late) control 1002"
	check(t, a.do(order{Until: 1}), want)
	check(t, b.do(order{Until: 1}), "port 5 (late): process 10 node 1 port 2 (next) control 1000")
	on(t, f, "b", "ip", "link", "del", "late")
	if s := b.do(order{Changed: true, Hail: true}); len(s.Neighbours) != 0 || strings.Contains(s.Log, "level=WARN") {
		t.Errorf("without the interface: %+v", s)
	}
	if s := b.do(order{Close: true}); !s.After.within(s.Before) {
		t.Errorf("holds %+v at last, %+v at first", s.After, s.Before)
	}
}
