package threads

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ncclmesh/guard"
	"ncclmesh/transport/clock"
)

// A pool runs at most n tasks at once, returns errors and panics, and its threads end when there is no task.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closing := make(chan struct{})
		c := New(3, clock.Clock{}, closing)
		var inside, most, all atomic.Int32
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				_ = c.Do(func() error {
					most.Store(max(most.Load(), inside.Add(1)))
					time.Sleep(time.Second)
					inside.Add(-1)
					all.Add(1)
					return nil
				})
			})
		}
		wg.Wait()
		if most.Load() != 3 || all.Load() != 20 {
			t.Errorf("%d at once, %d in all; want 3 and 20", most.Load(), all.Load())
		}
		time.Sleep(2 * idleTimeout)
		synctest.Wait()
		if c.available != 3 {
			t.Errorf("%d places are free, want 3", c.available)
		}
		fault := errors.New("fault")
		if err := c.Do(func() error { return fault }); err != fault {
			t.Errorf("error %v, want %v", err, fault)
		}
		var p *guard.Panic
		if err := c.Do(func() error { panic(fault) }); !errors.As(err, &p) || p.Value != fault {
			t.Errorf("error %v, want a panic with %v", err, fault)
		}
		close(closing)
		if err := c.Do(func() error { return fault }); err != fault { // what is left is still done
			t.Errorf("error %v, want %v", err, fault)
		}
	})
}
