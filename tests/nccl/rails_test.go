package nccl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Beside one GPU, and with a tuner, NCCL finds the speed of both slots and 16
// channels. On a node where sysfs shows no GPU it finds what it finds without a
// tuner; beside such a node the number of channels for sends is the same on both.
func TestRails(t *testing.T) {
	const whole, today = "Pattern 4, crossNic 0, nChannels 8, bw 3.0", "PCI[12.0] - NIC"
	tests := []struct {
		name string
		env  string
		hide string            // the GPU of a node
		see  map[string]string // by node
		sees map[string]string // of channels, by version
	}{
		{name: "both", see: map[string]string{"node-a": whole, "node-b": whole},
			sees: map[string]string{"2.22.3": "16 p2p channels, 2 p2p channels per peer", "2.29.7": "16 p2p channels, 8 p2p channels per peer"}},
		{name: "a node without a GPU", hide: "node-b", see: map[string]string{"node-a": "PCI[5000.0] - NIC", "node-b": today}},
		{name: "no tuner", env: "NCCL_MESH_TUNER=0", see: map[string]string{"node-a": today, "node-b": today}},
	}
	for _, v := range Versions {
		for _, tt := range tests {
			t.Run(v.Name+"/"+tt.name, func(t *testing.T) {
				sampled(t, v, tt.name == "both")
				rank := program(t, v)
				f := up(t, GB10("node-a", "node-b"))
				if err := AddGPUs(f); err != nil {
					t.Fatal(err)
				}
				if tt.hide != "" {
					gpu := filepath.Join(f.Dir, "nodes", tt.hide, "sys/bus/pci/devices", filepath.Base(gpu))
					if err := os.Remove(gpu); err != nil {
						t.Fatal(err)
					}
				}
				j := AllLanes[0].Job(rank, plugin(), "init", "check allreduce f32 sum 1048576", "check sendrecv f32 sum 1048576", "check alltoall f32 sum 70000", "destroy")
				j.Env = append(j.Env, "NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET")
				if tt.env != "" {
					j.Env = append(j.Env, tt.env)
				}
				perPeer := map[string]bool{}
				for _, r := range run(t, f, j) {
					for _, want := range []string{tt.see[r.Node], tt.sees[v.Name]} {
						if !strings.Contains(r.Output, want) {
							t.Errorf("%s does not say %q:\n%s", r.Node, want, r.Output)
						}
					}
					if said := channelsLine.FindStringSubmatch(r.Output); said != nil {
						perPeer[said[1]] = true
					}
				}
				if len(perPeer) != 1 {
					t.Errorf("channels for sends differ: %v", perPeer)
				}
			})
		}
	}
}
