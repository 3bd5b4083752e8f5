package mesh

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ncclmesh/ncclnet"
	"ncclmesh/tests/sim/adapter"
)

// A Rank is a rank of a job: the thread of NCCL that calls the plugin, and the rank's connections.
type Rank struct {
	*Process
	pause
	flows  []flow
	gpus   []*adapter.GPUMemory // for what a killed process leaves
	broken []*Break             // flows that a call has failed for, in the order of the failures
	err    error
	killed atomic.Bool
	died   time.Duration // set before killed
	idle   time.Duration // longest that the next pause may be
	shared shared        // of the rank's exchanges
}

// A flow is a rank's half of a connection: its sender or its receiver.
type flow interface {
	fmt.Stringer
	// step makes the calls of the plugin that can be made now. It reports whether a call got something done, and whether all
	// messages are done.
	step() (moved, over bool, err error)
	close() error
	// ready reports whether the connection is set up, as far as its end knows.
	ready() bool
	// peer returns the rank at the other end.
	peer() *Rank
}

const (
	shortest = 2 * time.Microsecond  // pause after a call that got something done
	longest  = 20 * time.Millisecond // longest pause of a thread whose lanes are sockets: an event of a socket ends it early
	patient  = time.Millisecond      // longest pause of a thread with RDMA, because a completion does not end it early
)

// A Break is a failed call of the plugin. The rank makes no more calls for its flow, except those that close it.
type Break struct {
	Flow flow
	At   time.Duration
	Err  error
}

// Error says which flow failed, when and why.
func (b *Break) Error() string { return fmt.Sprintf("%v: at %v: %v", b.Flow, b.At, b.Err) }

// errKilled is the error of a rank whose process was killed.
var errKilled = errors.New("the process was killed")

// run makes the calls of the rank's thread until each flow is over or has failed, and sets r.err.
func (r *Rank) run() {
	r.err = r.play()
	for _, b := range r.broken {
		r.err = errors.Join(r.err, b)
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

// end closes the flows and the context. For a killed process it only ends the goroutines.
func (r *Rank) end() error {
	r.Process.Gate.Wait()
	if r.killed.Load() {
		_ = r.Finalize() // ends the goroutines, which a dead process would not have
		for _, m := range r.gpus {
			if err := m.Free(); err != nil {
				return err
			}
		}
		return nil
	}
	var errs []error
	for _, f := range r.flows {
		errs = append(errs, f.close())
	}
	errs = append(errs, r.endExchanges(r.broken == nil))
	return errors.Join(append(errs, r.Finalize())...)
}

// call makes a call of the plugin. It fails when the call fails, and when virtual time passes during the call, unless the process
// was stopped within it.
func (r *Rank) call(what string, f func() ncclnet.Result) error {
	going := make(chan struct{}) // the goroutine may have woken from a pause within the process, while the process is stopped
	r.Process.Gate.Pass(func() { close(going) })
	<-going
	before, stops := r.world.Bus.Now(), r.Process.Gate.Times()
	result := f()
	if passed := r.world.Bus.Now() - before; passed > 0 && r.Process.Gate.Times() == stops {
		return fmt.Errorf("%s took %v of NCCL's thread", what, passed)
	}
	return r.failed(what, result)
}

// longest returns the longest pause that the thread may make.
func (r *Rank) longest() time.Duration {
	if r.Verbs != nil {
		return patient
	}
	return longest
}

// rest pauses after a step of each flow: shortly when something was done, else up to twice as long as before.
func (r *Rank) rest(moved bool) {
	if moved || r.idle == 0 {
		r.idle = shortest
	} else {
		r.idle = min(2*r.idle, r.longest())
	}
	r.wait(r.source.Between(r.idle/2, r.idle))
}

// wait waits for d, or until shortly after hurry was called.
func (p *pause) wait(d time.Duration) {
	woken := make(chan struct{})
	p.mu.Lock()
	p.woken, p.soon = woken, false
	p.mu.Unlock()
	p.arm(woken, d)
	<-woken
	p.gate.Wait()
}

// arm makes the pause that woken stands for end in d, instead of when it was to end before. It does nothing when that pause is
// over.
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

// hurry makes the thread's pause end within 20 µs; it does so once in each pause.
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

// Peer returns the rank at the other end of the connection.
func (b *Break) Peer() *Rank { return b.Flow.peer() }

// Broken returns the rank's failed calls, at most one for each flow, in the order in which they failed.
func (r *Rank) Broken() []*Break { return r.broken }
