package pace

import (
	"runtime"
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
func (p *Pace) Wait() {
	if p.polls < p.Spins {
		p.polls++
		runtime.Gosched()
		return
	}
	p.pause = min(max(p.pause+p.pause/8, shortest), p.Max)
	p.Clock.Sleep(p.pause)
}

// Reset makes the next pauses short again, because a poll has found something.
func (p *Pace) Reset() { p.polls, p.pause = 0, 0 }
