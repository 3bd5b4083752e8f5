package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// line3 is the least in which two nodes share no cable.
var line3 = cabling{pairs: "ab bc", each: 1}

// What the settings allow, and what the user is told of what they do not.
func TestRelayAllowed(t *testing.T) {
	off := []string{"NCCL_MESH_RELAY=0"}
	tests := []struct {
		name   string
		cables cabling
		env    []string
		on     map[string][]string
		says   map[string]string // by node; of a job that must fail
		relays map[string]string // of one that must not
	}{
		{"off", line3, off, nil, map[string]string{"a": `no path between a and c.* There is no route through other nodes either: relaying is off \(NCCL_MESH_RELAY=0\)`}, nil},
		{"off where no relay is needed", single, off, nil, nil, map[string]string{"a -> b": ""}},
		{"off on the relay", line3, nil, map[string][]string{"b": off}, map[string]string{"a": `no route through other nodes: no neighbour answered on ab0\. Check .* that all have NCCL_MESH_RELAY=auto`}, nil},
		{"off at one end", line3, nil, map[string][]string{"a": off}, map[string]string{"a": `relaying is off \(NCCL_MESH_RELAY=0\)`}, nil},
		{"only", single, []string{"NCCL_MESH_RELAY=only"}, nil, nil, map[string]string{"a -> b": "c", "c -> a": "b"}},
		{"one key", line3, []string{"NCCL_MESH_KEY=the key of these nodes"}, nil, nil, map[string]string{"a -> c": "b"}},
		{"another key on the relay", line3, []string{"NCCL_MESH_KEY=the key of these nodes"}, map[string][]string{"b": {"NCCL_MESH_KEY=a key of other nodes"}},
			map[string]string{"a": `no route through other nodes: no neighbour answered on ab0\. Check .* the same NCCL_MESH_KEY or none`}, nil},
		{"no key at one end", line3, []string{"NCCL_MESH_KEY=the key of these nodes"}, map[string][]string{"a": {"NCCL_MESH_KEY="}}, map[string]string{"a": `the same NCCL_MESH_KEY or none`}, nil},
	}
	for _, tt := range tests {
		for _, kind := range relayKinds {
			t.Run(tt.name+" over "+kind, func(t *testing.T) {
				if tt.name != "another key on the relay" || kind != "tcp" {
					require.Full(t, "transport/routing TestNoRoute and transport/relay TestRefusals")
				}
				t.Parallel()
				cables, env := relaying(kind, tt.cables)
				j := newFabric(t, cables.topology()).start(spec{
					env: append(append(env, cables.alone(), "NCCL_MESH_ROUTE_WAIT=2", "NCCL_MESH_LANE_WAIT=4"), tt.env...), on: tt.on,
					args: strings.Fields("--work alltoall --min 8 --max 64K --factor 64 --iters 2"),
				})
				if tt.says == nil {
					j.ok()
					for pair, want := range tt.relays {
						if got := j.relays(pair); got != want {
							j.errorf("%s goes through %q, want %q", pair, got, want)
						}
					}
					return
				}
				j.failed()
				for node, says := range tt.says {
					if j.rank(node).count(`NCCL WARN NET/Mesh : connect: peer not reachable`) == 0 { // c found the same out before, and left
						j.must("c", `NCCL WARN NET/Mesh : connect: .*no path between c and a`)
						continue
					}
					j.must(node, `NCCL WARN NET/Mesh : connect: .*`+says)
				}
				if strings.Contains(tt.name, "key") {
					j.must("b", `NCCL WARN NET/Mesh : neighbour discovery: refused a datagram; .* interface=ab0 .* error="neighbour query: wrong MAC: that node has another NCCL_MESH_KEY, or none"`)
				}
			})
		}
	}
}

func init() { helpers["squat"] = squat }

// squat holds the port of neighbour discovery for itself, until its input ends.
func squat() error {
	for _, network := range []string{"udp4", "udp6"} {
		c, err := net.ListenPacket(network, ":20045")
		if err != nil {
			return err
		}
		defer c.Close()
	}
	fmt.Println("squatting")
	_, err := os.Stdin.Read(make([]byte, 1))
	if err != nil && err.Error() != "EOF" {
		return err
	}
	return nil
}

// Another program has the UDP port of neighbour discovery: the user is told, direct cables serve, and there is no way through that node.
func TestDiscoveryPortTaken(t *testing.T) {
	require.Full(t, "transport/discovery TestTakenPort")
	tests := []struct {
		name   string
		cables cabling
		ok     bool
	}{
		{"direct", single, true},
		{"through it", line3, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cables, env := relaying("tcp", tt.cables)
			f := newFabric(t, cables.topology())
			f.helper("b", "squat", "squatting\n")
			j := f.start(spec{env: append(env, cables.alone(), "NCCL_MESH_ROUTE_WAIT=2"), args: strings.Fields("--work alltoall --min 8 --max 64K --factor 64 --iters 2")})
			if tt.ok {
				j.ok()
			} else {
				j.failed()
				const unheard = `no route through other nodes: no neighbour answered on `
				if j.rank("a").count(unheard+"ab0")+j.rank("c").count(unheard+"bc0") == 0 { // the first to know ends the job
					j.errorf("neither end said %q", unheard)
				}
			}
			for _, cable := range []string{"ab0", "bc0"} {
				if n := j.rank("b").count(`NCCL WARN NET/Mesh : neighbour discovery: another program has this UDP port to itself: .* port=20045 interface=` + cable); n != 1 {
					j.errorf("the port that is taken was told of %d times for %s", n, cable)
				}
			}
		})
	}
}
