package verbs

import (
	"testing"

	"ncclmesh/transport/lane"
)

// The lanes of a port are notified of its events in the order of their queue pair numbers.
func TestWatchedInOrder(t *testing.T) {
	p := &Port{queues: map[uint32]*lane.Lane{}}
	for i := range uint32(100) {
		p.Watch(i*7919%1000, &lane.Lane{Epoch: i * 7919 % 1000})
	}
	last := -1
	for _, l := range p.watched() {
		if int(l.Epoch) <= last {
			t.Fatalf("the lane of queue pair %d comes behind that of %d", l.Epoch, last)
		}
		last = int(l.Epoch)
	}
}
