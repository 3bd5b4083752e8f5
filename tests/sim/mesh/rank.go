package mesh

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ncclmesh/ncclnet"
)

// A Rank is one of a job: the thread that calls the plugin for it, and its connections.
type Rank struct {
	*Process
	pause
	number int
	flows  []flow
	broken []*Break // flows that a call has failed for, in the order of the failures
	err    error
	killed atomic.Bool
	died   time.Duration // set before killed
	idle   time.Duration // of the next pause
}

// A flow is one half of a connection that a rank has.
type flow interface {
	fmt.Stringer
	// step does what can be done now. It reports whether something was done, and whether all is over.
	step() (moved, over bool, err error)
	close() error
}

const (
	shortest = 2 * time.Microsecond  // a pause of a thread that has just moved something
	longest  = 20 * time.Millisecond // where news of sockets end it
	patient  = time.Millisecond      // where completions do not
)

// A Break is a call that has failed for a flow, which ends with it.
type Break struct {
	Flow flow
	At   time.Duration
	Err  error
}

// errKilled is what a rank ends with whose process was killed.
var errKilled = errors.New("the process was killed")

// run plays the thread until all flows are over, or have failed.
func (r *Rank) run() {
	r.err = r.play()
	for _, b := range r.broken {
		r.err = errors.Join(r.err, fmt.Errorf("%v: at %v: %w", b.Flow, b.At, b.Err))
	}
}

func (r *Rank) play() error {
	left := len(r.flows)
	over := make([]bool, len(r.flows))
	for left > 0 {
		moved := false
		for i, f := range r.flows {
			if over[i] {
				continue
			}
			if r.killed.Load() {
				return errKilled
			}
			m, o, err := f.step()
			if err != nil {
				r.broken = append(r.broken, &Break{f, r.world.Bus.Now(), err})
			}
			moved = moved || m
			if over[i] = o || err != nil; over[i] {
				left--
			}
		}
		r.rest(moved)
	}
	return nil
}

// end closes the flows and the context.
func (r *Rank) end() error {
	if r.killed.Load() {
		_ = r.Finalize() // ends the goroutines, which a dead process would not have
		return nil
	}
	var errs []error
	for _, f := range r.flows {
		errs = append(errs, f.close())
	}
	return errors.Join(append(errs, r.Finalize())...)
}

// call makes a call of the plugin, during which no time may pass.
func (r *Rank) call(what string, f func() ncclnet.Result) error {
	before := r.world.Bus.Now()
	result := f()
	if passed := r.world.Bus.Now() - before; passed > 0 {
		return fmt.Errorf("%s took %v of NCCL's thread", what, passed)
	}
	return r.failed(what, result)
}

// longest is the longest pause of the thread.
func (r *Rank) longest() time.Duration {
	if r.verbs != nil {
		return patient
	}
	return longest
}

// rest pauses after a look at all flows.
func (r *Rank) rest(moved bool) {
	if moved || r.idle == 0 {
		r.idle = shortest
	} else {
		r.idle = min(2*r.idle, r.longest())
	}
	r.wait(r.source.Between(r.idle/2, r.idle))
}

// wait waits for so long, or until shortly after there is news of the process.
func (p *pause) wait(d time.Duration) {
	woken := make(chan struct{})
	p.mu.Lock()
	p.woken, p.soon = woken, false
	p.mu.Unlock()
	p.arm(woken, d)
	<-woken
}

// arm asks for the end of a pause, in place of what was asked for before.
func (p *pause) arm(woken chan struct{}, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.woken != woken {
		return
	}
	if p.event != nil {
		p.event.Stop()
	}
	p.event = p.source.After(d, "go on", func() {
		p.mu.Lock()
		p.woken, p.event = nil, nil
		p.mu.Unlock()
		close(woken)
	})
}

// hurry shortens a pause.
func (p *pause) hurry() {
	p.mu.Lock()
	woken := p.woken
	again := p.soon
	p.soon = true
	p.mu.Unlock()
	if woken != nil && !again {
		p.arm(woken, p.source.Between(time.Microsecond, 20*time.Microsecond))
	}
}

// Broken returns what has failed, in the order of the failures.
func (r *Rank) Broken() []*Break { return r.broken }

// Peer is the rank at the other end of the flow.
func (b *Break) Peer() *Rank {
	switch f := b.Flow.(type) {
	case *inflow:
		return f.from
	case *outflow:
		return f.to
	}
	return nil
}
