package conn

import (
	"log/slog"
	"slices"
	"testing"

	"ncclmesh/transport/lane"
)

// noted is a registration that records the order of releases.
type noted struct {
	lane.Registration
	number   int
	released *[]int
}

func (n noted) Keys() (local, remote uint32) { return 0, 0 }
func (n noted) Release() error {
	*n.released = append(*n.released, n.number)
	return nil
}

// When a connection is closed, regions that are still registered are released in the order of their
// registration, in every run.
func TestRemoveRegionsInOrder(t *testing.T) {
	c := NewProbe(&Env{Log: slog.New(slog.DiscardHandler), Context: t.Context()}, nil, 1, true)
	var released, want []int
	c.Lock()
	defer c.Unlock()
	for i := range 100 {
		r := &lane.Region{Memory: lane.Memory{Addr: uintptr(1000 - i), Length: 1}}
		r.Hold(0, noted{number: i, released: &released})
		if err := c.addRegion(r); err != nil {
			t.Fatal(err)
		}
		want = append(want, i)
	}
	if err := c.removeRegions(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(released, want) {
		t.Errorf("released: %v", released)
	}
}
