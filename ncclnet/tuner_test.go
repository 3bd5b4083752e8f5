package ncclnet

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclmesh/tuner"
)

func TestTuner(t *testing.T) {
	tests := []struct {
		name         string
		env          map[string]string
		closed       bool
		ranks, nodes int
		unmasked     bool
		left         bool
		without      []tuner.Algo
		log          string
	}{
		{name: "two nodes", ranks: 2, nodes: 2, log: "3 NET/Mesh : tuner: chooses algorithm, protocol and channels for 2 nodes; NCCL_MESH_TUNER=0 leaves it to NCCL"},
		{name: "four are on a ring", ranks: 4, nodes: 4, without: []tuner.Algo{tuner.PAT, tuner.Tree},
			log: "3 NET/Mesh : tuner: chooses algorithm, protocol and channels for 4 nodes, without PAT and Tree: some nodes have no cable between them (NCCL_MESH_TOPOLOGY=full, on all ranks, if they have); NCCL_MESH_TUNER=0 leaves it to NCCL"},
		{name: "if they are not", env: map[string]string{"NCCL_MESH_TOPOLOGY": "full"}, ranks: 4, nodes: 4,
			log: "3 NET/Mesh : tuner: chooses algorithm, protocol and channels for 4 nodes; NCCL_MESH_TUNER=0 leaves it to NCCL"},
		{name: "off", env: map[string]string{"NCCL_MESH_TUNER": "0"}, ranks: 2, nodes: 2, left: true, log: "NCCL_MESH_TUNER=0"},
		{name: "two ranks a node", ranks: 4, nodes: 2, left: true, log: "4 ranks on 2 nodes"},
		{name: "one node", ranks: 1, nodes: 1, left: true, log: "1 nodes"},
		{name: "no mesh", ranks: 1000, nodes: 1000, left: true, log: "1000 nodes"},
		{name: "another network", closed: true, ranks: 2, nodes: 2, left: true, log: ""},
		{name: "the user's algorithm", env: map[string]string{"NCCL_ALGO": "Tree"}, ranks: 2, nodes: 2,
			log: "3 NET/Mesh : tuner: chooses algorithm, protocol and channels for 2 nodes; NCCL_MESH_TUNER=0 leaves it to NCCL"},
		{name: "is not marked before version 3", env: map[string]string{"NCCL_ALGO": "Tree"}, ranks: 2, nodes: 2, unmasked: true,
			left: true, log: "NCCL_ALGO or NCCL_PROTO is set"},
		{name: "nor is the protocol", env: map[string]string{"NCCL_PROTO": "LL"}, ranks: 2, nodes: 2, unmasked: true,
			left: true, log: "NCCL_ALGO or NCCL_PROTO is set"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := newTestNet(t)
			n.env["NCCL_MESH_DEBUG"] = "debug"
			for k, v := range tt.env {
				n.env[k] = v
			}
			if !tt.closed {
				n.init()
			}
			n.logged()
			table := n.Tuner(n.logger(), tt.ranks, tt.nodes, !tt.unmasked)
			if (table == nil) != tt.left {
				t.Fatalf("table %v", table)
			}
			want := tt.log
			if tt.left && want != "" {
				want = "3 NET/Mesh : tuner: left to NCCL: " + want
			}
			if diff := cmp.Diff(want, n.logged()); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
			if table == nil {
				return
			}
			if diff := cmp.Diff(tt.without, table.Without); diff != "" {
				t.Errorf("without (-want +got):\n%s", diff)
			}
			if n.Tuner(n.logger(), tt.ranks, tt.nodes, true) != table || n.logged() != "" {
				t.Error("the second communicator gets another table, or is told of it again")
			}
		})
	}
}

func TestTunersAtOnce(t *testing.T) {
	n := newTestNet(t)
	h := n.init()
	tables := make([]*tuner.Table, 8)
	var wait sync.WaitGroup
	for i := range tables {
		wait.Add(1)
		go func() {
			defer wait.Done()
			tables[i] = n.Tuner(nil, 2+i%2, 2+i%2, true)
		}()
	}
	wait.Wait()
	for i, table := range tables {
		if table == nil || table != tables[i%2] {
			t.Errorf("communicator %d has another table", i)
		}
	}
	n.ok("finalize", n.Finalize(h))
	if n.Tuner(nil, 2, 2, true) != nil {
		t.Error("tuned after the network closed")
	}
}

// A malformed setting causes one error, of the network's init; the tuner is not used.
func TestGarbledTopology(t *testing.T) {
	n := newTestNet(t)
	n.env["NCCL_MESH_TOPOLOGY"] = "circle"
	if _, r := n.Init(n.logger(), Caller{}, -1); r != ncclInvalidUsage {
		t.Errorf("init: %v", r)
	}
	if log := n.logged(); !strings.Contains(log, `NCCL_MESH_TOPOLOGY="circle": want auto, full, ring or line; correct it or unset it`) ||
		strings.Contains(log, "\n") {
		t.Errorf("log: %s", log)
	}
	if n.Tuner(n.logger(), 2, 2, true) != nil || n.logged() != "" {
		t.Error("tuned all the same, or not silently")
	}
}
