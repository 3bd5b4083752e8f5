package hosts

import (
	"fmt"
	"time"

	"ncclmesh/random"
	"ncclmesh/tests/sim/internet"
	"ncclmesh/tests/sim/process"
	"ncclmesh/transport/clock"
)

// A Process is one on a host: a sock.Network, with timers and random numbers of its own.
type Process struct {
	*internet.Process
	self   *process.Self
	test   *Test
	clock  clock.Clock
	random random.Source
}

// Process starts a process on the host of a name.
func (t *Test) Process(host string) *Process {
	self := process.New(t.Bus, t.draws, fmt.Sprintf("%s.%d", host, len(t.processes)+1))
	p := &Process{Process: t.Host(host).Process(self.Name), self: self, test: t, clock: self.Clock(), random: self.Random()}
	p.Through(self.Gate)
	t.processes = append(t.processes, p)
	return p
}

// Clock returns the timers of the process.
func (p *Process) Clock() clock.Clock { return p.clock }

// Random returns the source of the numbers that the process draws: a stream for each thing.
func (p *Process) Random() random.Source { return p.random }

// Stop stops the process for a time, as SIGSTOP and SIGCONT do: no call of its sockets returns and none of its timers fires
// meanwhile. Its host goes on.
func (p *Process) Stop(d time.Duration) {
	p.self.Halt(true)
	p.test.After(d, func() { p.self.Halt(false) })
}
