package stats

import (
	"testing"
)

// A reader sees a counter increase and never more than was added.
func TestCounter(t *testing.T) {
	t.Parallel()
	const rounds, each = 10000, 3
	var c Counter
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range rounds {
			c.Add(each)
		}
	}()
	for last := uint64(0); last < rounds*each; {
		now := c.Value()
		if now < last || now > rounds*each || now%each != 0 {
			t.Fatalf("%d after %d", now, last)
		}
		last = now
	}
	<-over
}
