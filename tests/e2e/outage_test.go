package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ncclmesh/tests/require"
)

// An interface is set down while its RDMA port goes on working: each connection gives its lane up once, whatever joins meanwhile, and has it
// again when the interface is up.
func TestInterfaceDown(t *testing.T) {
	require.Full(t, "tests/sim/mesh TestRDMACablesFail")
	t.Parallel()
	f := newFabric(t, four.topology())
	j := f.start(spec{args: f.endless("--work soak --max 64K")})
	j.moves()
	j.suffer("ip a link set ab1 down")
	j.await("a", `port 1 changed`)
	j.await("b", `port 1 changed`)
	j.suffer("down a:rab0", "moves", "up a:rab0") // the lanes that come back find one over a port without a carrier
	j.times(4, "a", `rab0:1 -> rab0:1 has come back`)
	j.suffer("moves", "moves", "moves")
	for _, h := range j.halves() {
		n := 0
		for _, lane := range h.lost {
			if strings.HasSuffix(lane, "rab1:1 -> rab1:1") {
				n++
			}
		}
		if n != h.ends {
			j.errorf("node %s, %s: lanes over the interface were given up %d times, want %d", h.node, h.conn, n, h.ends)
		}
	}
	j.suffer("ip a link set ab1 up")
	j.times(4, "a", `rab1:1 -> rab1:1 has come back`)
	j.enough().ok()
}

// Cables are out while connections are set up: they wait for a path as long as those do that have lost theirs, and the job goes on.
func TestOutageWhileSettingUp(t *testing.T) {
	require.Full(t, "transport/path TestWait and tests/sim/mesh TestCablesFail")
	spare := func(c cabling) cabling { // each rank's node has a port that is up all the time, whose cable leads to where no rank runs
		c.pairs += " ax bx cx dx"
		return c
	}
	tests := []struct {
		name  string
		over  cabling
		ranks string
		out   string // cables, by their pairs
	}{
		{"two nodes", spare(cabling{pairs: "ab", each: 2}), "ab", "ab"},
		{"opposite nodes of a ring", spare(ring4), "abcd", "ab da"},
	}
	for _, tt := range tests {
		for _, kind := range relayKinds {
			t.Run(tt.name+" over "+kind, func(t *testing.T) {
				t.Parallel()
				cables := tt.over
				env := []string{cables.alone(), "NCCL_MESH_LANE_WAIT=60"}
				if kind == "tcp" {
					cables.plain = "abcdx"
					env = append(env, "NCCL_MESH_TRANSPORT=tcp")
				}
				f := newFabric(t, cables.topology())
				var plug []string
				for _, pair := range strings.Fields(tt.out) {
					for k := range cables.each {
						port := fmt.Sprintf("%s:%s", pair[:1], cables.end(pair[:1], fmt.Sprintf("%s%d", pair, k)))
						f.fault("unplug", port)
						f.off(pair[:1], fmt.Sprintf("%s%d", pair, k))
						plug = append(plug, "plug "+port)
					}
				}
				j := f.start(spec{nodes: strings.Split(tt.ranks, ""), env: env, args: strings.Fields("--work storm,soak --connections 8 --duration 0 --max 64K --messages 50 --reopen 1")})
				t.Log(j.await("a", `NCCL WARN NET/Mesh : a path to b is waited for, .*: no path between a and b: (?:.*; )?these ports are down, or have no address: `))
				j.suffer(plug...)
				j.ok()
			})
		}
	}
}

// A process that begins while all its cables are out waits for one.
func TestOutageAtInit(t *testing.T) {
	require.Full(t, "transport TestAwaitPorts")
	for _, kind := range relayKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cables := two
			env := []string{"NCCL_MESH_LANE_WAIT=60"}
			if kind == "tcp" {
				cables = cables.without()
				env = append(env, "NCCL_MESH_TRANSPORT=tcp")
			}
			env = append(env, cables.alone())
			f := newFabric(t, cables.topology())
			ports := []string{"a:" + cables.end("a", "ab0"), "a:" + cables.end("a", "ab1")}
			for _, p := range ports {
				f.fault("unplug", p)
			}
			f.off("a", "ab0", "ab1")
			j := f.start(spec{env: env, args: strings.Fields("--work sendrecv --max 64K")})
			for _, node := range f.Nodes {
				j.await(node, `NCCL WARN NET/Mesh : no port is up: waiting for one of .*ab0\)?, .*ab1\)? for up to 1m0s`)
			}
			for _, p := range ports {
				f.fault("plug", p)
			}
			j.ok()
		})
	}
}
