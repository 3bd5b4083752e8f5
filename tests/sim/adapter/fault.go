package adapter

import (
	"maps"
	"slices"
	"syscall"
	"time"

	"ncclmesh/ibv"
)

// counters count what has happened, by name.
type counters map[string]int

// count counts something of interest. Preconditions: f.mu is locked.
func (f *Fabric) count(what string, n int) { f.counts[what] += n }

// Counts returns how often each thing of interest has happened: packets that were lost, repeats, refusals. A simulation that
// wants to know whether it was nasty reads it.
func (f *Fabric) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// A refusal makes calls of a verb fail.
type refusal struct {
	verb        string
	errno       syscall.Errno
	skip, times int
}

// Refuse makes a verb on the device fail: after skip calls that go well, times calls with that errno.
func (d *Device) Refuse(verb string, errno syscall.Errno, skip, times int) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	d.refusals = append(d.refusals, &refusal{verb, errno, skip, times})
}

// Allow ends what Refuse and Slow have begun.
func (d *Device) Allow() {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	d.refusals = nil
	clear(d.slow)
}

// Slow makes a verb on the device take so long. It is for verbs that enter the kernel, not for those of the data path.
func (d *Device) Slow(verb string, by time.Duration) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	d.slow[verb] = by
}

// AllowReads sets how many READs each queue pair may have outstanding, for processes that open the device later.
func (d *Device) AllowReads(n int) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	d.limits.Reads = n
}

// Late makes completions show later than what they tell of, by a draw up to most. They stay in order.
func (d *Device) Late(most time.Duration) {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	d.late = most
}

// refused is the errno that a call is to fail with, 0 if it is not to.
// Preconditions: f.mu is locked.
func (d *Device) refused(verb string) syscall.Errno {
	if d.dead {
		return syscall.EIO
	}
	for _, r := range d.refusals {
		switch {
		case r.verb != verb || r.times == 0:
		case r.skip > 0:
			r.skip--
		default:
			r.times--
			d.fabric.count("refused "+verb, 1)
			return r.errno
		}
	}
	return 0
}

// Fatal breaks the device for good: its ports are down, its queue pairs in error, and verbs fail.
func (d *Device) Fatal() {
	f := d.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	d.dead = true
	for _, c := range d.opened {
		c.post(ibv.AsyncEvent{Type: ibv.IBV_EVENT_DEVICE_FATAL}, nil)
		for _, q := range slices.Clone(c.qps) {
			q.fail()
		}
	}
}

// Break puts a queue pair into the error state and raises IBV_EVENT_QP_FATAL. It reports whether the queue pair exists.
func (f *Fabric) Break(qpn uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.qps[qpn]
	if q != nil {
		q.fail()
		q.raise(ibv.IBV_EVENT_QP_FATAL)
	}
	return q != nil
}

// Regions is how many regions of memory are registered with the device.
func (d *Device) Regions() int {
	d.fabric.mu.Lock()
	defer d.fabric.mu.Unlock()
	return len(d.byKey) / 2 // each has two keys
}

// QueuePairs are the numbers of the device's queue pairs that are not in error, in order.
func (d *Device) QueuePairs() (all []uint32) {
	f := d.fabric
	f.mu.Lock()
	defer f.mu.Unlock()
	for n, q := range f.qps {
		if q.domain.context.device == d && q.attr.QPState != ibv.IBV_QPS_ERR {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all
}

// Raise raises an asynchronous event of the port.
func (p *Port) Raise(event uint32) {
	p.device.fabric.mu.Lock()
	defer p.device.fabric.mu.Unlock()
	p.raise(event)
}

// raise raises an event of the port in each process that has the device open.
// Preconditions: f.mu is locked.
func (p *Port) raise(event uint32) {
	for _, c := range p.device.opened {
		c.post(ibv.AsyncEvent{Type: event, Element: uintptr(p.num)}, nil)
	}
}
