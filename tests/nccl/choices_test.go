package nccl

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChoices(t *testing.T) {
	c := Choices{Version: "2.29.7", Tuned: true, Nodes: 3}
	for _, line := range []string{
		"vm:1:1 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 8, bw 3.000000/3.000000, type LOC/PHB, sameChannels 1",
		"vm:1:1 [0] NCCL INFO Pattern 3, crossNic 0, nChannels 8, bw 6.000000/3.000000, type LOC/PHB, sameChannels 1",
		"vm:1:1 [0] NCCL INFO 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels, 8 p2p channels per peer",
		"kernel AllReduce ring LL channels=1",
		"kernel AllGather ring LL channels=1",
		"kernel AllReduce tree Simple channels=16",
	} {
		c.read(line)
	}
	want := Choices{Version: "2.29.7", Tuned: true, Nodes: 3, Channels: "16", PerPeer: "8", Speed: "24.0", Chosen: []Choice{{"ring LL", "1"}, {"tree Simple", "16"}}}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("choices (-want +got):\n%s", diff)
	}
	for bytes, want := range map[int]string{8: "8 B", 1 << 10: "1 KiB", 512 << 10: "512 KiB", 32 << 20: "32 MiB"} {
		if got := sizeText(bytes); got != want {
			t.Errorf("sizeText(%d) = %q, want %q", bytes, got, want)
		}
	}
}
