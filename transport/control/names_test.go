package control

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
)

// TestInventedNames: the host names that neighbours may invent are remembered only up to a limit.
func TestInventedNames(t *testing.T) {
	var n names
	n.add("a", handshake.NodeID{1})
	for i := range 2 * maxNames {
		n.add(fmt.Sprint("invented ", i), handshake.NodeID{2})
	}
	if n.add("a", handshake.NodeID{3}); !n.ambiguous("a") || len(n.nodes) != maxNames {
		t.Errorf("%d names are kept, want %d", len(n.nodes), maxNames)
	}
}

// TestNames: if two nodes have the same host name, log lines contain an address too.
func TestNames(t *testing.T) {
	type node = struct {
		host string
		id   byte
	}
	tests := []struct {
		name          string
		own           node
		others        []node // the first is the session's peer
		local, remote string
	}{
		{"names differ", node{"a", 1}, []node{{"b", 2}, {"c", 3}}, "a", "b"},
		{"processes of one node", node{"a", 1}, []node{{"a", 1}}, "a", "a"},
		{"two nodes", node{"a", 1}, []node{{"a", 2}}, "a (127.0.0.1)", "a (127.0.0.1)"},
		{"two peers", node{"a", 1}, []node{{"b", 2}, {"b", 3}, {"c", 4}}, "a", "b (127.0.0.1)"},
		{"this node and another peer", node{"a", 1}, []node{{"b", 2}, {"a", 3}}, "a (127.0.0.1)", "b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hosts.Run(t, func(t *hosts.Test) {
				a := newNode(t, func(c *Config) { c.Hostname, c.Node = tt.own.host, handshake.NodeID{tt.own.id} })
				var first *Session
				for _, o := range tt.others {
					b := newNode(t, func(c *Config) { c.Hostname, c.Node = o.host, handshake.NodeID{o.id} })
					_, h := b.invite()
					if s := a.dial(h); first == nil {
						first = s
					}
				}
				if diff := cmp.Diff([]string{tt.local, tt.remote}, []string{first.LocalName(), first.Name()}); diff != "" {
					t.Errorf("names (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestBoth: a text about two processes of one node contains their IDs.
func TestBoth(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		for _, one := range []bool{true, false} {
			a := newNode(t, func(c *Config) {
				c.Hostname, c.Process, c.PID = "na", handshake.ProcessID{0x1a, 0x2b, 0x3c, 0x4d}, 4711
			})
			b := newNode(t, func(c *Config) {
				c.Hostname, c.Process = "na", handshake.ProcessID{0x5e, 0x6f}
				if !one {
					c.Hostname, c.Node = "nb", handshake.NodeID{2}
				}
			})
			_, h := b.invite()
			local, remote := a.dial(h).Both()
			want := []string{"na/1a2b3c4d (pid 4711)", "na/5e6f0000"}
			if !one {
				want = []string{"na", "nb"}
			}
			if diff := cmp.Diff(want, []string{local, remote}); diff != "" {
				t.Errorf("one node %v: names (-want +got):\n%s", one, diff)
			}
		}
	})
}
