package mesh

import (
	"fmt"
	"time"

	"ncclmesh/tests/sim/bus"
	"ncclmesh/transport/clock"
)

// Stop stops the process for a time, as SIGSTOP and SIGCONT do: none of its threads and goroutines does anything meanwhile,
// and none of its timers fires. The machine goes on: sockets receive until they are full, and adapters carry out what was
// posted and place what arrives. Of stops that overlap the last to end counts. It is to be called within an event, or before
// the process was initialised.
func (p *Process) Stop(d time.Duration) {
	p.halt(true)
	p.world.Clock.After(d, "continue "+p.name, func() { p.halt(false) })
}

// halt stops the process, or ends that.
func (p *Process) halt(on bool) {
	if on {
		p.stops++
		p.gate.Shut()
		return
	}
	if p.stops--; p.stops == 0 {
		p.gate.Open()
	}
}

// timers makes the timers of a process.
type timers struct {
	source *bus.Source
	gate   *bus.Gate
}

var _ clock.Events = (*timers)(nil)

// AfterFunc calls f by an event, or, where the process is stopped then, when it goes on.
func (t *timers) AfterFunc(d time.Duration, f func()) func() bool {
	return t.source.After(d, "timer", func() { t.gate.Pass(f) }).Stop
}

// State describes what the rank has done so far: its messages, what its process has logged, and what it has open.
func (r *Rank) State() string {
	return fmt.Sprintf("%s\n%v\n%v", r.where(), r.Open(), r.log())
}
