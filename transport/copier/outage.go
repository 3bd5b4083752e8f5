package copier

import (
	"fmt"
	"time"

	"ncclmesh/transport/clock"
	"ncclmesh/transport/fault"
)

// outage is the state of a copier whose devices have all failed, one after the other, since a step succeeded.
//
//	works ──► lasts ──► works      queue pairs were made again, and the devices are tried: Renew
//	            │  ▲
//	            │  └── they fail again; the time of the outage goes on
//	            └────► works      after Config.Wait: the tasks fail, and later ones are tried
//
// The tasks wait meanwhile, because a cable that fails for a moment must not end a job.
type outage struct {
	why error       // why the last device failed, while the outage lasts; else nil
	ran clock.Watch // since the first time that all devices had failed
}

// lasts reports whether no device is to be tried.
func (o *outage) lasts() bool { return o.why != nil }

var (
	errClosed       = fmt.Errorf("%w: the copier was closed", fault.ErrUsage)
	errUnregistered = fmt.Errorf("%w: a copy to or from memory that is not registered any more", fault.ErrUsage)
)

// works notes that a device has carried a step out.
func (c *Copier) works() {
	if c.failed > 0 {
		c.failed = 0
		c.outage.ran.Stop()
		c.outage.ran.Reset()
	}
}

// next goes on with the next device, because the current one failed. If all have failed, the tasks wait. advance then
// begins the oldest task again.
//
// Preconditions: c.mu is locked.
func (c *Copier) next(why error) {
	c.step = idle
	c.current = (c.current + 1) % len(c.devices)
	if c.failed++; c.failed%len(c.devices) == 0 {
		c.outage.why = why
		c.outage.ran.Look()
	}
	if !c.repairing {
		c.repairing = true
		c.Background(c.repair)
	}
}

// How long repair pauses before it renews queue pairs: at first, and at most. A queue pair fails without a change of its port, too.
const (
	firstRepairPause   = 100 * time.Millisecond
	longestRepairPause = 2 * time.Second
)

// repair renews queue pairs until none is broken.
func (c *Copier) repair() {
	for pause := firstRepairPause; c.Clock.Pause(c.Context, c.Clock.Scaled(pause)); pause = min(2*pause, longestRepairPause) {
		_ = c.Renew() // the next time may succeed
		if c.allRepaired() {
			return
		}
	}
}

// allRepaired reports whether no queue pair is broken, and then notes that repair ends.
func (c *Copier) allRepaired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.devices {
		if d.shut || d.loop.Broken() {
			return false
		}
	}
	c.repairing = false
	return true
}

// tryAgain ends an outage, because a device may work again.
//
// Preconditions: c.mu is locked.
func (c *Copier) tryAgain() {
	c.outage.why = nil
	c.advance()
}

// checkOutage fails all tasks if no device has worked for too long.
//
// Preconditions: c.mu is locked.
func (c *Copier) checkOutage() {
	o := &c.outage
	if !o.lasts() {
		return
	}
	if spent := o.ran.Look(); spent >= c.Wait {
		err := fmt.Errorf("%w: no adapter has been able to reach GPU memory of this process for %v (NCCL_MESH_LANE_WAIT); check the cables of its ports: %w",
			fault.ErrDevice, spent.Round(10*time.Millisecond), o.why)
		c.queue.fail(c.queue.begun, err)
		c.works()
		o.why = nil
	}
}
