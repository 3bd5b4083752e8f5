package forkfd

import "time"

// Do runs f, which opens or closes descriptors, marks or clears them, and does not block, while no fork happens.
func Do(f func()) {
	for gate.inside.Add(1); gate.forking.Load() != 0; gate.inside.Add(1) {
		gate.inside.Add(-1)
		time.Sleep(50 * time.Microsecond)
	}
	defer gate.inside.Add(-1)
	f()
}
