package control

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/handshake"
	"ncclmesh/tests/sim/hosts"
)

// A differing is a call of Config.Differ.
type differing struct {
	listen uint32
	err    error
}

// withSettings sets a node's host name and settings, and passes the calls of Config.Differ to told.
func withSettings(host string, id byte, settings []handshake.Setting, told chan<- differing) func(*Config) {
	return func(c *Config) {
		c.Hostname, c.Node = host, handshake.NodeID{id}
		c.Settings = func() []handshake.Setting { return settings }
		c.Differ = func(listen uint32, err error) { told <- differing{listen, err} }
	}
}

// Two processes that differ in a setting that must be equal have no session. The errors on both sides contain the
// setting and both values.
func TestSettingsMustBeTheSame(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		topology := func(value string) handshake.Setting {
			return handshake.Setting{Name: "NCCL_MESH_TOPOLOGY", Value: value, Rule: handshake.RuleSame}
		}
		algo := func(value string) handshake.Setting {
			return handshake.Setting{Name: "NCCL_ALGO", Value: value, Rule: handshake.RuleSame}
		}
		const remedy = ". All ranks of a job must have the same, or NCCL waits for ever: set one value everywhere, or unset it everywhere"
		tests := []struct {
			name           string
			a, b           []handshake.Setting
			hostB          string
			nodeB          byte
			dialler, other string // errors; "" where there is a session
		}{
			{"the same", []handshake.Setting{topology("ring"), algo("")}, []handshake.Setting{topology("ring"), algo("")}, "b", 2, "", ""},
			{"a process that tells none", []handshake.Setting{topology("ring")}, nil, "b", 2, "", ""},
			{"another value", []handshake.Setting{topology("ring"), algo("")}, []handshake.Setting{topology("full"), algo("")}, "b", 2,
				"NCCL_MESH_TOPOLOGY is ring on node a and full on node b" + remedy, "NCCL_MESH_TOPOLOGY is full on node b and ring on node a" + remedy},
			{"two", []handshake.Setting{topology("ring"), algo("")}, []handshake.Setting{topology("full"), algo("tree")}, "b", 2,
				"NCCL_MESH_TOPOLOGY is ring on node a and full on node b; NCCL_ALGO is not set on node a and tree on node b" + remedy,
				"NCCL_MESH_TOPOLOGY is full on node b and ring on node a; NCCL_ALGO is tree on node b and not set on node a" + remedy},
			{"one node", []handshake.Setting{algo("ring")}, []handshake.Setting{algo("")}, "a", 1,
				"NCCL_ALGO is ring on this process on node a and not set on another process there" + remedy,
				"NCCL_ALGO is not set on this process on node a and ring on another process there" + remedy},
			{"two nodes of one name", []handshake.Setting{algo("ring")}, []handshake.Setting{algo("")}, "a", 2,
				"NCCL_ALGO is ring on node a (127.0.0.1) and not set on node a (127.0.0.1)" + remedy,
				"NCCL_ALGO is not set on node a (127.0.0.1) and ring on node a (127.0.0.1)" + remedy},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *hosts.Test) {
				told := make(chan differing, 1)
				a := newNode(t, withSettings("a", 1, tt.a, nil))
				b := newNode(t, withSettings(tt.hostB, tt.nodeB, tt.b, told))
				l, h := b.invite()
				ctx, cancel := context.WithTimeout(context.Background(), hang)
				defer cancel()
				s, err := a.Dial(ctx, h)
				if tt.dialler == "" {
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(tt.b, s.Peer().Settings); diff != "" {
						t.Errorf("the peer's settings (-want +got):\n%s", diff)
					}
					a.send(s, &handshake.Connected{Conn: 1})
					if diff := cmp.Diff(tt.a, b.first().Peer().Settings); diff != "" {
						t.Errorf("the dialler's settings (-want +got):\n%s", diff)
					}
					return
				}
				var differ *SettingsError
				if !errors.As(err, &differ) || differ.Error() != tt.dialler {
					t.Errorf("dialler: %v\nwant %s", err, tt.dialler)
				}
				d := <-told
				if !errors.As(d.err, &differ) || differ.Error() != tt.other || d.listen != l.ID {
					t.Errorf("listener of %#x: %+v\nwant %#x, %s", d.listen, d.err, l.ID, tt.other)
				}
				if n := len(a.Sessions()) + len(b.Sessions()); n != 0 {
					t.Errorf("%d sessions", n)
				}
				if n := b.Stats().Refused[reasonSettings]; n != 1 {
					t.Errorf("%d refusals were counted", n)
				}
			})
		}
	})
}

// A difference that both sides can work with is logged once on each side, however many peers have it, and is no error.
func TestSettledSettings(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		relay := func(value string) []handshake.Setting {
			return []handshake.Setting{{Name: "NCCL_MESH_RELAY", Value: value, Rule: handshake.RuleSettled}, {Name: "NCCL_IB_HCA", Value: value}}
		}
		a := newNode(t, withSettings("a", 1, relay("auto"), nil))
		for i := range byte(3) {
			b := newNode(t, withSettings("b", 2+i, relay("0"), nil))
			_, h := b.invite()
			a.dial(h)
			a.send(a.dial(h), &handshake.Connected{Conn: 1})
			b.first()
			if log := b.logged(); !strings.Contains(log, "NCCL_MESH_RELAY is 0 on node b and auto on node a. Each node goes by its own") || strings.Contains(log, "NCCL_IB_HCA") {
				t.Errorf("log of b:\n%s", log)
			}
		}
		if n := strings.Count(a.logged(), "NCCL_MESH_RELAY is auto on node a and 0 on node b. Each node goes by its own"); n != 1 {
			t.Errorf("a logged it %d times", n)
		}
	})
}

// A neighbour, which may belong to another job, gets no settings, and the settings that it sends are ignored.
func TestSettingsOfNeighbours(t *testing.T) {
	hosts.Run(t, func(t *hosts.Test) {
		told := make(chan differing, 1)
		settings := []handshake.Setting{{Name: "NCCL_ALGO", Value: "ring", Rule: handshake.RuleSame}}
		n := newNode(t, withSettings("a", 1, settings, told))
		if s := n.settingsFor("lo"); s != nil {
			t.Errorf("a neighbour is told %v", s)
		}
		other := Peer{Hostname: "b", Settings: []handshake.Setting{{Name: "NCCL_ALGO", Value: "tree", Rule: handshake.RuleSame}}}
		if err := n.agree(&other, "lo", nil); err != nil {
			t.Errorf("a neighbour: %v", err)
		}
	})
}
