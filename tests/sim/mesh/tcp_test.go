package mesh_test

import (
	"fmt"
	"testing"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/tests/sim/mesh"
)

// cable is 100 Gb/s.
var cable = internet.LinkConfig{Rate: 12_500_000_000, Latency: 2 * time.Microsecond, Jitter: time.Microsecond}

// machines adds n machines.
func machines(w *mesh.World, n int) {
	for i := range n {
		w.AddMachine(fmt.Sprintf("n%c", 'a'+i))
	}
}

// Two nodes with two cables talk over TCP; two runs of a seed are one history.
func TestTwoNodes(t *testing.T) {
	run := func() bus.Summary {
		return bus.Run(t, 1, func(t *testing.T, b *bus.Bus) {
			w := mesh.NewWorld(t, b)
			machines(w, 2)
			for i := range 2 {
				w.Cable(i, cable, w.Machines[0], w.Machines[1])
			}
			w.Management()
			j := w.NewJob(nil, w.Machines...)
			j.Ring(50, 1<<20)
			j.Run(time.Minute)
			j.End()
			t.Log(j.Logs(), w.Net.Counts(), w.Bus.Now())
		})
	}
	first := run()
	if t.Failed() {
		return
	}
	if again := run(); again != first {
		t.Errorf("the second run was %+v, the first %+v", again, first)
	}
}
