package pace

import (
	"time"

	"ncclmesh/transport/clock"
)

// A Pace makes the pauses of one caller. It belongs to one goroutine. Wait allocates nothing on a real clock's spinning
// phase; a pause takes a timer.
type Pace struct {
	Clock clock.Clock
	Spins int           // polls before the first pause; 0 in virtual time, which stands still while a goroutine spins
	Max   time.Duration // the longest pause

	polls int
	pause time.Duration
}

// shortest is the first pause. The kernel wakes a sleeping thread after about as long.
const shortest = 20 * time.Microsecond

// Wait returns when the caller should poll again.
//
// While it spins it does not yield to Go's scheduler, because the goroutine of a call from C is locked to its thread: runtime.Gosched would
// switch to another thread and back, which takes some 10 µs.
func (p *Pace) Wait() {
	if p.polls < p.Spins {
		p.polls++
		return
	}
	p.pause = min(max(p.pause+p.pause/8, shortest), p.Max)
	p.Clock.Sleep(p.pause)
}

// Shorten makes the next pauses short again, without polls between them, because data moves that the caller does not wait for.
func (p *Pace) Shorten() { p.pause = 0 }

// Reset makes the next pauses short again, because a poll has found something.
func (p *Pace) Reset() { p.polls, p.pause = 0, 0 }
