package mesh

import (
	"fmt"
	"time"
)

// Stop stops the process for a time, as [world.Process.Halt] does.
func (p *Process) Stop(d time.Duration) {
	p.Halt(true)
	p.world.Clock.After(d, "continue "+p.Name, func() { p.Halt(false) })
}

// State describes what the rank has done so far: its messages, what its process has logged, and what it has open.
func (r *Rank) State() string {
	return fmt.Sprintf("%s\n%v\n%v", r.where(), r.Open(), r.log())
}
