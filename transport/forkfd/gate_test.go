package forkfd

import (
	"sync/atomic"
	"testing"
	"time"
)

func TestDoWaitsForFork(t *testing.T) {
	gate.forking.Store(1)
	var ran atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		Do(func() { ran.Store(true) })
	}()
	time.Sleep(20 * time.Millisecond)
	if ran.Load() {
		t.Error("ran during a fork")
	}
	gate.forking.Store(0)
	<-done
	if !ran.Load() || gate.inside.Load() != 0 {
		t.Errorf("after the fork: ran %v, %d inside", ran.Load(), gate.inside.Load())
	}
	Do(func() {
		if gate.inside.Load() != 1 {
			t.Error("a fork would not wait")
		}
	})
}
