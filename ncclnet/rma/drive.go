package rma

import (
	"context"
	"runtime"
	"time"
)

// Pauses of the group's goroutine.
const (
	shortPause = 50 * time.Microsecond // after something has moved
	longPause  = time.Millisecond      // while nothing moves, or NCCL's threads poll
)

// Progress moves operations on, and applies the signals of other ranks. NCCL's GIN thread calls it.
func (g *Group) Progress() {
	g.driven.Store(true)
	g.calls.Add(1)
	g.progress()
}

// progress moves all links on. It reports whether something has moved.
func (g *Group) progress() (moved bool) {
	moved = g.space.Progress()
	for i := range g.links {
		moved = g.links[i].progress() || moved
	}
	return moved
}

// drive makes progress while no thread of NCCL does.
func (g *Group) drive(ctx context.Context) {
	defer close(g.stopped)
	timer := g.clock.NewTimer(shortPause)
	defer timer.Stop()
	pause, seen := shortPause, g.calls.Load()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		switch now := g.calls.Load(); {
		case now != seen:
			seen, pause = now, longPause
		case g.poll(ctx):
			pause = shortPause
		default:
			pause = min(2*pause, longPause)
		}
		timer.Reset(pause)
	}
}

// poll makes progress until nothing has moved for some time. It reports whether something has moved.
func (g *Group) poll(ctx context.Context) (moved bool) {
	for idle := 0; ctx.Err() == nil; {
		if g.progress() {
			moved, idle = true, 0
			continue
		}
		if idle++; !moved || idle > g.polls {
			break
		}
		runtime.Gosched()
	}
	return moved
}
